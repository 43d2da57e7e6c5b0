//! Reading a container's log. Its files are named after the offset of their first byte, so an offset finds its place
//! whatever was rotated away.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use schemas::names::InstanceGuid;

/// Most bytes in one chunk, whatever the reader asks for.
pub const CHUNK_BYTES: usize = 1024 * 1024;
/// Fewest bytes of a read: the longest character of UTF-8, so that a reader always gets on.
const CHARACTER_BYTES: usize = 4;
/// How often a read begins again when the file that it wanted was rotated away meanwhile.
const ATTEMPTS: usize = 8;

/// A piece of a container's log: lines of `<time> OUT|ERR <text>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogChunk {
    /// Whole lines, unless one alone is longer than the limit. If bytes before them were dropped, one line more says so.
    pub text: String,
    /// The offset behind the text, in bytes: where to read on.
    pub next: u64,
    /// Whether nothing will ever follow.
    pub ended: bool,
}

/// Why a log can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// There is no such container here.
    #[error("no container {0} on this cell")]
    Unknown(InstanceGuid),
    /// The files can't be read.
    #[error("cannot read the log")]
    Read(#[source] io::Error),
}

/// Reads at most `limit` bytes from the offset `from`, or from the oldest byte that is kept. `completed`: the
/// container writes no more.
pub(super) fn read(log: &Path, from: u64, limit: usize, completed: bool) -> io::Result<LogChunk> {
    for _ in 1..ATTEMPTS {
        match read_once(log, from, limit, completed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    read_once(log, from, limit, completed)
}

fn read_once(log: &Path, from: u64, limit: usize, completed: bool) -> io::Result<LogChunk> {
    let files = files(log)?;
    let Some((oldest, _)) = files.first() else {
        return Ok(LogChunk { text: String::new(), next: from, ended: completed });
    };
    let (asked, from) = (from, from.max(*oldest));
    let at =
        files.iter().rposition(|(start, _)| *start <= from).expect("the oldest starts at or before `from`");
    let (start, path) = &files[at];
    let (bytes, size) = piece(path, from - start, limit.clamp(CHARACTER_BYTES, CHUNK_BYTES))?;
    let last = at + 1 == files.len();
    let text = whole_lines(&bytes);
    let next = match u64::try_from(text.len()).expect("a chunk is small") {
        0 if !last => files[at + 1].0,
        0 => from.min(start + size),
        length => from + length,
    };
    let ended = completed && last && next >= start + size;
    let text = String::from_utf8_lossy(text).into_owned();
    Ok(LogChunk { text: marked(text, from - asked), next, ended })
}

/// The text, behind a line that says how much of the log before it is gone. It has the time of the first line after it.
fn marked(text: String, dropped: u64) -> String {
    match text.split_once(' ') {
        Some((time, _)) if dropped > 0 => {
            format!("{time} ERR [{dropped} bytes of the log before this line were dropped]\n{text}")
        }
        Some(_) | None => text,
    }
}

/// The files with the offsets of their first bytes, the oldest first.
fn files(log: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
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

/// At most `limit` bytes from `offset` of a file, and the size of it.
fn piece(path: &Path, offset: u64, limit: usize) -> io::Result<(Vec<u8>, u64)> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = vec![];
    file.seek(SeekFrom::Start(offset.min(size)))?;
    file.take(u64::try_from(limit).expect("a chunk is small")).read_to_end(&mut bytes)?;
    Ok((bytes, size))
}

/// The whole lines in `bytes`; all whole characters of it if it has no line end.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    if let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') {
        return &bytes[..=end];
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes,
        // Cut within its last character, or, where a reader began within one, foreign from its first byte on.
        Err(error) if error.valid_up_to() > 0 => &bytes[..error.valid_up_to()],
        Err(_) => bytes,
    }
}
