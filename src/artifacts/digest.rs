//! The SHA-256 digests of artifacts: raw bytes, lists of token ids in the
//! spelling of Python, and a writer that digests what passes through it.

use std::fmt::Write as _;
use std::io;

use sha2::{Digest as _, Sha256};

/// SHA-256 of `bytes`, lowercase hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Digest of a list of ids, over the text `[1, 2, 3]`.
pub fn id_list_sha256(ids: &[u32]) -> String {
    sha256_hex(format!("[{}]", joined(ids)).as_bytes())
}

/// Digest of a tuple of ids, over the text `(1, 2, 3)`, or `(7,)` for one.
pub fn id_tuple_sha256(ids: &[u32]) -> String {
    let comma = if ids.len() == 1 { "," } else { "" };
    sha256_hex(format!("({}{comma})", joined(ids)).as_bytes())
}

fn joined(ids: &[u32]) -> String {
    let mut text = String::with_capacity(ids.len() * 7);
    for (place, id) in ids.iter().enumerate() {
        let separator = if place == 0 { "" } else { ", " };
        write!(text, "{separator}{id}").expect("writing to a string does not fail");
    }
    text
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
    }
    text
}

/// Counts and digests the bytes on their way to `inner`.
pub(crate) struct DigestingWriter<W> {
    inner: W,
    digest: Sha256,
    bytes: u64,
}

impl<W: io::Write> DigestingWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self {
            inner,
            digest: Sha256::new(),
            bytes: 0,
        }
    }

    /// The writer below, the digest in hex, and the number of bytes.
    pub(crate) fn finish(self) -> (W, String, u64) {
        (self.inner, hex(&self.digest.finalize()), self.bytes)
    }
}

impl<W: io::Write> io::Write for DigestingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.digest.update(&buffer[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests of `golden/vectors.json`, `hash_inputs`.
    #[test]
    fn id_digests_use_python_spelling() {
        assert_eq!(
            id_list_sha256(&[259, 264, 5]),
            "281784685b06ddacb3f0a45997a8ff0b87a2b5bc704bc5b34a648f58c4fc45e0"
        );
        assert_eq!(
            id_tuple_sha256(&[259, 264]),
            "5a79dd00cdffac80cab3dc4286fe9972321d98300f6fb4ed98e581d53856df63"
        );
        assert_eq!(
            id_tuple_sha256(&[7]),
            "24a6ade6d35f1e5ecc7a2982ec631d0848f6d1a5bd903c1be2c04491e4cc224c"
        );
    }

    #[test]
    fn a_digesting_writer_counts_what_passed() {
        let mut writer = DigestingWriter::new(Vec::new());
        io::Write::write_all(&mut writer, b"ab").unwrap();
        io::Write::write_all(&mut writer, b"c").unwrap();
        let (inner, digest, bytes) = writer.finish();
        assert_eq!((inner.as_slice(), bytes), (b"abc".as_slice(), 3));
        assert_eq!(digest, sha256_hex(b"abc"));
    }
}
