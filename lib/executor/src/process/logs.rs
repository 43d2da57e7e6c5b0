//! Reading of a container's log. The log files are named after the offset of their first byte. An offset
//! therefore stays valid when older files are removed by the rotation.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use schemas::names::InstanceGuid;

/// Maximum size of a chunk in bytes, regardless of the limit of the request.
pub const MAX_CHUNK_BYTES: usize = 1024 * 1024;
/// Minimum size of a read in bytes. It is the maximum length of a UTF-8 character, so that each read makes
/// progress.
const MIN_READ_BYTES: usize = 4;
/// Number of attempts to read a file that may be removed by the rotation during the read.
const MAX_ATTEMPTS: usize = 8;

/// Chunk of a container's log: lines of `<time> OUT|ERR <text>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogChunk {
    /// Whole lines, unless a single line exceeds the limit. If bytes before these lines were dropped, an
    /// additional line reports that.
    pub text: String,
    /// Offset after the last byte of the text. The next read continues there.
    pub next: u64,
    /// `true` if no further text will follow.
    pub ended: bool,
}

/// Reason why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no such container on this cell.
    #[error("no container {0} on this cell")]
    Unknown(InstanceGuid),
    /// The files cannot be read.
    #[error("cannot read the log")]
    Read(#[source] io::Error),
}

/// Reads at most `limit` bytes from the offset `from`, or from the oldest retained byte if that is later.
/// `completed` is `true` if the container writes no more output.
pub(super) fn read(log: &Path, from: u64, limit: usize, completed: bool) -> io::Result<LogChunk> {
    for _ in 1..MAX_ATTEMPTS {
        match read_once(log, from, limit, completed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    read_once(log, from, limit, completed)
}

fn read_once(log: &Path, from: u64, limit: usize, completed: bool) -> io::Result<LogChunk> {
    let files = log_files(log)?;
    let Some((oldest, _)) = files.first() else {
        return Ok(LogChunk { text: String::new(), next: from, ended: completed });
    };
    let (asked, from) = (from, from.max(*oldest));
    let at =
        files.iter().rposition(|(start, _)| *start <= from).expect("the oldest starts at or before `from`");
    let (start, path) = &files[at];
    let (bytes, size) = read_at(path, from - start, limit.clamp(MIN_READ_BYTES, MAX_CHUNK_BYTES))?;
    let last = at + 1 == files.len();
    let text = whole_lines(&bytes);
    let next = match u64::try_from(text.len()).expect("a chunk is small") {
        0 if !last => files[at + 1].0,
        0 => from.min(start + size),
        length => from + length,
    };
    let ended = completed && last && next >= start + size;
    let text = String::from_utf8_lossy(text).into_owned();
    Ok(LogChunk { text: with_dropped_notice(text, from - asked), next, ended })
}

/// Prepends a line that reports the number of dropped bytes. The line has the time of the first line of
/// `text`.
fn with_dropped_notice(text: String, dropped: u64) -> String {
    match text.split_once(' ') {
        Some((time, _)) if dropped > 0 => {
            format!("{time} ERR [{dropped} bytes of the log before this line were dropped]\n{text}")
        }
        Some(_) | None => text,
    }
}

/// Returns the log files with the offsets of their first bytes, the oldest first.
fn log_files(log: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = vec![];
    for entry in fs::read_dir(log)? {
        let entry = entry?;
        if let Some(start) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            files.push((start, entry.path()));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Reads at most `limit` bytes from `offset` of a file, and returns them with the file's size.
fn read_at(path: &Path, offset: u64, limit: usize) -> io::Result<(Vec<u8>, u64)> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = vec![];
    file.seek(SeekFrom::Start(offset.min(size)))?;
    file.take(u64::try_from(limit).expect("a chunk is small")).read_to_end(&mut bytes)?;
    Ok((bytes, size))
}

/// Returns the whole lines in `bytes`. If `bytes` contains no line end, returns the whole characters.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    if let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') {
        return &bytes[..=end];
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes,
        // The last character is incomplete. If the read started within a character, the first byte is invalid
        // instead.
        Err(error) if error.valid_up_to() > 0 => &bytes[..error.valid_up_to()],
        Err(_) => bytes,
    }
}
