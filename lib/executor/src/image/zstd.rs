//! Decoder for layers compressed with Zstandard (RFC 8878): a sequence of frames, possibly with skippable
//! frames between them.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Reader of the decompressed content of all frames.
pub(super) struct FrameReader<R> {
    source: R,
    decoder: FrameDecoder,
    /// `true` while a frame is being decoded.
    in_frame: bool,
}

impl<R: BufRead> FrameReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), in_frame: false }
    }

    /// Starts the next frame. Returns `false` at the end of the input.
    fn start_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for FrameReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            while self.in_frame && self.decoder.can_collect() == 0 {
                if self.decoder.is_finished() {
                    self.in_frame = false;
                } else {
                    let one = BlockDecodingStrategy::UptoBlocks(1);
                    self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
                }
            }
            if self.in_frame {
                return self.decoder.read(into);
            }
            if !self.start_frame()? {
                return Ok(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = vec![];
        FrameReader::new(packed).read_to_end(&mut out).map(|_| out)
    }

    #[test]
    fn all_frames_are_read_and_skippable_frames_are_ignored() {
        let packed = |text: &[u8]| compress_to_vec(text, CompressionLevel::Fastest);
        let large: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
        let skipped = [&0x184D_2A50_u32.to_le_bytes()[..], &3_u32.to_le_bytes(), b"abc"].concat();
        let all = [packed(b"one "), skipped.clone(), packed(b""), packed(&large), skipped].concat();
        assert_eq!(read(&all).unwrap(), [b"one ", &large[..]].concat());
        assert_eq!(read(b"").unwrap(), b"");
        assert!(read(&all[..all.len() - 1]).is_err(), "truncated skippable frame");
        assert!(read(&packed(&large)[..100]).is_err(), "truncated frame");
        assert!(read(b"no frame").is_err());
    }
}
