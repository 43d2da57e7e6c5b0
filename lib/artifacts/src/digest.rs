//! Checksums.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use schemas::action::ChecksumAlgorithm;
use sha1::Sha1;
use sha2::Sha256;

use crate::limits::PIECE_BYTES;

/// A checksum that is being computed.
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

    /// What came out, as bytes.
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Md5(sum) => sum.finalize().to_vec(),
            Self::Sha1(sum) => sum.finalize().to_vec(),
            Self::Sha256(sum) => sum.finalize().to_vec(),
        }
    }

    /// What came out, in hexadecimal digits.
    pub(crate) fn text(self) -> String {
        HEXLOWER.encode(&self.bytes())
    }
}

/// The checksum of a whole file, which is read from its first byte on and left there.
pub(crate) fn of_file(file: &File, algorithm: ChecksumAlgorithm) -> io::Result<String> {
    let (sum, _) = sum_file(file, Summing::by(algorithm))?;
    Ok(sum.text())
}

/// The same, and how many bytes the file has.
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
