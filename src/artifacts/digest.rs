//! A writer that digests what passes through it.

use std::io;

use sha2::{Digest as _, Sha256};

use crate::units::hex;

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
    use crate::units::sha256_hex;

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
