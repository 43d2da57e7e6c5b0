//! Output of programs. The output of a program is copied to the container's log. The output of a probe is
//! retained instead, to explain a failure of the probe.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, timeout_at};

use schemas::limits::{PROBE_OUTPUT_LINES, truncate};

use super::log::{Log, MAX_LINE_BYTES, Source};
use crate::clock;

/// Size of the read buffer in bytes. Equal to the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;
/// Maximum time that an incomplete line is held back, counted from the first byte of the line.
const PARTIAL_LINE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a UTF-8 character in bytes.
const MAX_CHAR_BYTES: usize = 4;
/// Maximum number of bytes of the last line that are retained for a failure reason.
const MAX_LAST_LINE_BYTES: usize = 256;
/// Maximum number of consecutive reads before the task yields.
const MAX_CONSECUTIVE_READS: usize = 16;

/// Destination of output.
#[derive(Clone)]
pub(super) enum Sink {
    /// The log of the container, with this label. An empty label is omitted.
    Log(Rc<RefCell<Log>>, Rc<str>),
    /// A buffer of the last lines.
    Tail(Rc<RefCell<VecDeque<String>>>),
}

impl Sink {
    /// Returns a copy of the sink with the label `label`. If `label` is empty, or if the sink has no label,
    /// the copy equals the sink.
    pub(super) fn with_label(&self, label: &str) -> Self {
        match self {
            Self::Log(log, _) if !label.is_empty() => Self::Log(Rc::clone(log), label.into()),
            Self::Log(..) | Self::Tail(_) => self.clone(),
        }
    }

    /// Writes lines to the sink.
    pub(super) fn write<'a>(&self, source: Source, lines: impl Iterator<Item = &'a str>) {
        match self {
            Self::Log(log, label) => log.borrow_mut().write(clock::now(), source, label, lines),
            Self::Tail(tail) => {
                let mut tail = tail.borrow_mut();
                for line in lines {
                    if tail.len() >= PROBE_OUTPUT_LINES {
                        tail.pop_front();
                    }
                    tail.push_back(line.to_owned());
                }
            }
        }
    }
}

/// One of the two output streams of a program.
pub(super) struct Output {
    pipe: Receiver,
    source: Source,
    sink: Sink,
    line: RefCell<PartialLine>,
    /// Last line that is not blank.
    last: RefCell<String>,
}

/// Incomplete line.
#[derive(Default)]
struct PartialLine {
    bytes: Vec<u8>,
    /// Time when the first byte of the line, or of its remaining part, arrived. `None` if the line is empty.
    since: Option<Instant>,
    /// `true` if the start of the line was already emitted as a separate line.
    emitted_in_part: bool,
}

impl Output {
    /// Takes the read end of a program's pipe.
    pub(super) fn new(pipe: OwnedFd, source: Source, sink: Sink) -> io::Result<Self> {
        Ok(Self {
            pipe: Receiver::from_owned_fd(pipe)?,
            source,
            sink,
            line: RefCell::default(),
            last: RefCell::default(),
        })
    }

    /// Returns the last line that the program wrote to its standard error. `None` if the program wrote no
    /// line, or if its output does not go to the container's log.
    pub(super) fn last_error(&self) -> Option<String> {
        let is_logged = matches!((self.source, &self.sink), (Source::Err, Sink::Log(..)));
        let last = self.last.borrow();
        (is_logged && !last.is_empty()).then(|| last.clone())
    }

    /// Copies the output until all processes have closed the other end of the pipe. Output without a line end
    /// is emitted as a line after `PARTIAL_LINE_TIMEOUT`.
    pub(super) async fn copy(&self) -> io::Result<()> {
        loop {
            let due = self.line.borrow().since.map(|since| since + PARTIAL_LINE_TIMEOUT);
            let readable = async {
                match due {
                    Some(due) => timeout_at(due, self.pipe.readable()).await.ok(),
                    None => Some(self.pipe.readable().await),
                }
            };
            let Some(readable) = readable.await else {
                let rest = self.line.borrow_mut().take_partial();
                self.write(&rest);
                continue;
            };
            readable?;
            match self.read(|bytes| self.pipe.try_read(bytes)) {
                // There may be more output, but other tasks must be able to run first.
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Copies the output that is available now. Does not wait for more.
    pub(super) fn drain(&self) -> io::Result<()> {
        match self.read(|bytes| Ok(rustix::io::read(&self.pipe, bytes)?)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads all output that is available now. Returns an error when no output is left at the moment. Returns
    /// `true` if there may be more output, and `false` at the end of the stream.
    fn read(&self, read: impl Fn(&mut [u8]) -> io::Result<usize>) -> io::Result<bool> {
        let mut bytes = vec![0; READ_BYTES];
        for _ in 0..MAX_CONSECUTIVE_READS {
            match read(&mut bytes) {
                Ok(0) => {
                    let rest = self.line.borrow_mut().take_rest();
                    self.write(&rest);
                    return Ok(false);
                }
                Ok(count) => {
                    let lines = self.line.borrow_mut().push(&bytes[..count]);
                    self.write(&lines);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn write(&self, lines: &[String]) {
        if let Some(last) = lines.iter().rev().find(|line| !line.trim().is_empty()) {
            *self.last.borrow_mut() = truncate(last.trim(), MAX_LAST_LINE_BYTES);
        }
        if !lines.is_empty() {
            self.sink.write(self.source, lines.iter().map(String::as_str));
        }
    }
}

impl PartialLine {
    /// Adds bytes and returns the completed lines. A line that is too long is returned in several pieces.
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = vec![];
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            for piece in text.chunks(MAX_LINE_BYTES) {
                self.bytes.extend(piece);
                while self.bytes.len() > MAX_LINE_BYTES {
                    let whole = len_of_whole_chars(&self.bytes[..MAX_LINE_BYTES]);
                    lines.push(self.take_text(whole));
                }
            }
            if ends {
                let is_rest_of_piece = std::mem::take(&mut self.emitted_in_part) && self.bytes.is_empty();
                if !is_rest_of_piece {
                    let text = self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes).len();
                    lines.push(self.take_text(text));
                }
                self.bytes.clear();
                (self.emitted_in_part, self.since) = (false, None);
            }
        }
        if !self.bytes.is_empty() {
            self.since.get_or_insert_with(Instant::now);
        }
        lines
    }

    /// Emits the incomplete line, except for an incomplete character at its end.
    fn take_partial(&mut self) -> Vec<String> {
        let whole = len_of_whole_chars(&self.bytes);
        self.since = (whole < self.bytes.len()).then(Instant::now);
        vec![self.take_text(whole)]
    }

    /// Emits the incomplete line at the end of the stream.
    fn take_rest(&mut self) -> Vec<String> {
        let all = self.bytes.len();
        if all == 0 { vec![] } else { vec![self.take_text(all)] }
    }

    /// Removes the first `count` bytes and returns them as text.
    fn take_text(&mut self, count: usize) -> String {
        self.emitted_in_part = true;
        String::from_utf8_lossy(&self.bytes.drain(..count).collect::<Vec<_>>()).into_owned()
    }
}

/// Returns the length of `bytes` without an incomplete character at its end.
fn len_of_whole_chars(bytes: &[u8]) -> usize {
    match std::str::from_utf8(&bytes[bytes.len().saturating_sub(MAX_CHAR_BYTES)..]) {
        Ok(_) => bytes.len(),
        Err(_) => {
            let begins = |at: &usize| bytes[*at] & 0b1100_0000 == 0b1100_0000;
            let last = (bytes.len().saturating_sub(MAX_CHAR_BYTES - 1)..bytes.len()).rev().find(begins);
            let is_cut = |at: &usize| {
                std::str::from_utf8(&bytes[*at..]).is_err_and(|error| error.error_len().is_none())
            };
            last.filter(is_cut).filter(|at| *at > 0).unwrap_or(bytes.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_regardless_of_chunks() {
        let mut line = PartialLine::default();
        assert_eq!(line.push(b"on"), Vec::<String>::new());
        assert_eq!(line.push(b"e\ntwo\r\n\nthr"), ["one", "two", ""]);
        assert_eq!(line.take_rest(), ["thr"]);
        assert_eq!(line.take_rest(), Vec::<String>::new());
        assert_eq!(line.push(b"\xff\n"), ["\u{fffd}"]);
    }

    #[test]
    fn long_line_is_split_without_loss() {
        let long = "\u{e4}x\u{20ac}".repeat(5 * MAX_LINE_BYTES / 3);
        for chunk in [1, 7, 4096, MAX_LINE_BYTES, READ_BYTES] {
            let mut line = PartialLine::default();
            let text = format!("{long}\nnext\n");
            let lines: Vec<String> = text.as_bytes().chunks(chunk).flat_map(|part| line.push(part)).collect();
            let (next, pieces) = lines.split_last().unwrap();
            assert_eq!((next.as_str(), pieces.concat().as_str()), ("next", long.as_str()));
            assert!(
                pieces.iter().all(|piece| piece.len() <= MAX_LINE_BYTES && piece.len() > MAX_LINE_BYTES - 4
                    || piece == pieces.last().unwrap())
            );
        }
        let mut line = PartialLine::default();
        let exact = line.push(&[b'x'; 2 * MAX_LINE_BYTES]);
        assert_eq!(exact.len(), 1);
        assert_eq!(line.push(b"\n").len(), 1);
        assert_eq!(line.push(b"\nz\n"), ["", "z"]);
    }

    #[test]
    fn partial_line_is_emitted_once() {
        let mut line = PartialLine::default();
        assert_eq!(line.push("half \u{e4}".as_bytes()), Vec::<String>::new());
        assert_eq!(line.take_partial(), ["half \u{e4}"]);
        assert_eq!(line.push(b"\nnext\n"), ["next"], "the end of an emitted partial line adds no empty line");
        assert_eq!(line.push(&"b\u{e4}".as_bytes()[..2]), Vec::<String>::new());
        assert_eq!(line.take_partial(), ["b"]);
        assert_eq!(line.push(&["\u{e4}".as_bytes()[1]]), Vec::<String>::new());
        assert_eq!(line.push(b" more\n"), ["\u{e4} more"]);
        assert_eq!(line.push(b"\n"), [""]);
    }
}
