//! Digests of id sequences in the spelling that artifacts use: the text that
//! Python prints for a list or a tuple.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// SHA-256 of `[1, 2, 3]`, lowercase hex.
pub fn list_sha256(ids: &[u32]) -> String {
    hex(&Sha256::digest(format!("[{}]", joined(ids))))
}

/// SHA-256 of `(1, 2, 3)`, or of `(7,)` for a single id, lowercase hex.
pub fn tuple_sha256(ids: &[u32]) -> String {
    let comma = if ids.len() == 1 { "," } else { "" };
    hex(&Sha256::digest(format!("({}{comma})", joined(ids))))
}

fn joined(ids: &[u32]) -> String {
    let mut text = String::with_capacity(ids.len() * 7);
    for (place, id) in ids.iter().enumerate() {
        let separator = if place == 0 { "" } else { ", " };
        write!(text, "{separator}{id}").expect("a String takes everything");
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_of_the_texts_that_python_prints() {
        // printf '[1, 2, 3]' | sha256sum, and so on.
        for (digest, expected) in [
            (
                list_sha256(&[1, 2, 3]),
                "a36b1f2c3f84522dd1005145646617d7054c0851e97c72a039c0bdfac9fa07f3",
            ),
            (
                tuple_sha256(&[1, 2, 3]),
                "dfd5726d86ed2c8b202855bbea88990ec37a26ab1d2217b55a61b4b6719ff6fd",
            ),
            (
                tuple_sha256(&[7]),
                "24a6ade6d35f1e5ecc7a2982ec631d0848f6d1a5bd903c1be2c04491e4cc224c",
            ),
            (
                list_sha256(&[]),
                "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
            ),
        ] {
            assert_eq!(digest, expected);
        }
    }
}
