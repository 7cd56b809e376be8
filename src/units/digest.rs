//! SHA-256 digests in the spellings that artifacts use: of bytes, and of token
//! ids written as Python prints a list or a tuple.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// `bytes` in lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text
}

/// SHA-256 of `bytes`, lowercase hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of `[1, 2, 3]`, lowercase hex.
pub fn id_list_sha256(ids: &[u32]) -> String {
    sha256_hex(format!("[{}]", joined(ids)).as_bytes())
}

/// SHA-256 of `(1, 2, 3)`, or of `(7,)` for a single id, lowercase hex.
pub fn id_tuple_sha256(ids: &[u32]) -> String {
    let comma = if ids.len() == 1 { "," } else { "" };
    sha256_hex(format!("({}{comma})", joined(ids)).as_bytes())
}

fn joined(ids: &[u32]) -> String {
    let mut text = String::with_capacity(ids.len() * 7);
    for (place, id) in ids.iter().enumerate() {
        let separator = if place == 0 { "" } else { ", " };
        write!(text, "{separator}{id}").expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_of_the_texts_that_python_prints() {
        // printf '[1, 2, 3]' | sha256sum, and so on.
        for (digest, expected) in [
            (
                id_list_sha256(&[1, 2, 3]),
                "a36b1f2c3f84522dd1005145646617d7054c0851e97c72a039c0bdfac9fa07f3",
            ),
            (
                id_tuple_sha256(&[1, 2, 3]),
                "dfd5726d86ed2c8b202855bbea88990ec37a26ab1d2217b55a61b4b6719ff6fd",
            ),
            (
                id_tuple_sha256(&[7]),
                "24a6ade6d35f1e5ecc7a2982ec631d0848f6d1a5bd903c1be2c04491e4cc224c",
            ),
            (
                id_list_sha256(&[259, 264, 5]),
                "281784685b06ddacb3f0a45997a8ff0b87a2b5bc704bc5b34a648f58c4fc45e0",
            ),
            (
                id_tuple_sha256(&[259, 264]),
                "5a79dd00cdffac80cab3dc4286fe9972321d98300f6fb4ed98e581d53856df63",
            ),
            (
                id_list_sha256(&[]),
                "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
            ),
        ] {
            assert_eq!(digest, expected);
        }
    }
}
