//! Checksums of files and streams.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use schemas::action::ChecksumAlgorithm;
use sha1::Sha1;
use sha2::Sha256;

use crate::limits::PIECE_BYTES;

/// Checksum in progress.
#[derive(Clone)]
pub(crate) enum Summing {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Summing {
    pub(crate) fn by(algorithm: ChecksumAlgorithm) -> Self {
        match algorithm {
            ChecksumAlgorithm::Md5 => Self::Md5(Md5::new()),
            ChecksumAlgorithm::Sha1 => Self::Sha1(Sha1::new()),
            ChecksumAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
        }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(sum) => sum.update(bytes),
            Self::Sha1(sum) => sum.update(bytes),
            Self::Sha256(sum) => sum.update(bytes),
        }
    }

    /// Returns the digest as bytes.
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Md5(sum) => sum.finalize().to_vec(),
            Self::Sha1(sum) => sum.finalize().to_vec(),
            Self::Sha256(sum) => sum.finalize().to_vec(),
        }
    }

    /// Returns the digest in lower-case hexadecimal digits.
    pub(crate) fn text(self) -> String {
        HEXLOWER.encode(&self.bytes())
    }
}

/// Returns the checksum of a whole file in hexadecimal digits. The file is left at its start.
pub(crate) fn of_file(file: &File, algorithm: ChecksumAlgorithm) -> io::Result<String> {
    let (sum, _) = sum_file(file, Summing::by(algorithm))?;
    Ok(sum.text())
}

/// Feeds a whole file into a checksum and returns the checksum with the file's length in bytes. The file is
/// left at its start.
pub(crate) fn sum_file(mut file: &File, mut sum: Summing) -> io::Result<(Summing, u64)> {
    file.seek(SeekFrom::Start(0))?;
    let (mut piece, mut bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            break;
        }
        sum.add(&piece[..count]);
        bytes += count as u64;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok((sum, bytes))
}
