//! Checksums of files and streams.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use schemas::action::ChecksumAlgorithm;
use sha1::Sha1;
use sha2::Sha256;

use crate::limits::CHUNK_BYTES;

/// Checksum in progress.
#[derive(Clone)]
pub(crate) enum Hasher {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    pub(crate) fn new(algorithm: ChecksumAlgorithm) -> Self {
        match algorithm {
            ChecksumAlgorithm::Md5 => Self::Md5(Md5::new()),
            ChecksumAlgorithm::Sha1 => Self::Sha1(Sha1::new()),
            ChecksumAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(sum) => sum.update(bytes),
            Self::Sha1(sum) => sum.update(bytes),
            Self::Sha256(sum) => sum.update(bytes),
        }
    }

    /// Returns the digest as bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Md5(sum) => sum.finalize().to_vec(),
            Self::Sha1(sum) => sum.finalize().to_vec(),
            Self::Sha256(sum) => sum.finalize().to_vec(),
        }
    }

    /// Returns the digest in lower-case hexadecimal digits.
    pub(crate) fn into_hex(self) -> String {
        HEXLOWER.encode(&self.into_bytes())
    }
}

/// Returns the checksum of a whole file in hexadecimal digits. Afterwards, the file is positioned at its
/// start.
pub(crate) fn file_checksum(file: &File, algorithm: ChecksumAlgorithm) -> io::Result<String> {
    let (sum, _) = hash_file(file, Hasher::new(algorithm))?;
    Ok(sum.into_hex())
}

/// Adds a whole file to a checksum. Returns the checksum and the file's length in bytes. Afterwards, the file
/// is positioned at its start.
pub(crate) fn hash_file(mut file: &File, mut sum: Hasher) -> io::Result<(Hasher, u64)> {
    file.seek(SeekFrom::Start(0))?;
    let (mut piece, mut bytes) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            break;
        }
        sum.update(&piece[..count]);
        bytes += count as u64;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok((sum, bytes))
}
