//! Checksums: CRC-32C (Castagnoli, as in iSCSI, ext4 and Kafka) for entries, CRC-64/XZ for snapshots.

use crc::{CRC_32_ISCSI, CRC_64_XZ, Crc, Table};

static CRC_32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
static CRC_64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_XZ);

/// Returns the CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    CRC_32C.checksum(bytes)
}

/// Returns the CRC-64/XZ of the concatenation of `parts`.
#[must_use]
pub fn crc64(parts: &[&[u8]]) -> u64 {
    let mut digest = CRC_64.digest();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

#[cfg(test)]
mod tests {
    #[test]
    fn checksums_match_published_check_values() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(super::crc64(&[b"1234", b"", b"56789"]), 0x995d_c9bb_df19_39fa);
    }
}
