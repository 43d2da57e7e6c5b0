//! What a program writes, on its way to the log or, of a probe, to whoever wants to know why it failed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::net::unix::pipe::Receiver;

use schemas::limits::PROBE_OUTPUT_LINES;

use super::log::{LINE_BYTES, Log, Source};
use crate::clock;

/// Bytes that are read at once: what a pipe holds.
const READ_BYTES: usize = 64 * 1024;
/// Reads in a row before others get their turn.
const READS: usize = 16;

/// Where output goes.
#[derive(Clone)]
pub(super) enum Sink {
    /// Into the log of the container, told as this; empty: as nothing.
    Log(Rc<RefCell<Log>>, Rc<str>),
    /// Nowhere, but the last lines are kept.
    Tail(Rc<RefCell<VecDeque<String>>>),
}

impl Sink {
    /// The same with its lines told as this, unless that is empty.
    pub(super) fn told_as(&self, label: &str) -> Self {
        match self {
            Self::Log(log, _) if !label.is_empty() => Self::Log(Rc::clone(log), label.into()),
            Self::Log(..) | Self::Tail(_) => self.clone(),
        }
    }

    /// Takes lines.
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

/// One of the two streams of a program.
pub(super) struct Output {
    pipe: Receiver,
    source: Source,
    sink: Sink,
    line: RefCell<Line>,
}

/// A line that has no end yet. What is too long is dropped as it comes.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
}

impl Output {
    /// Takes the reading end of a program's pipe.
    pub(super) fn new(pipe: OwnedFd, source: Source, sink: Sink) -> io::Result<Self> {
        Ok(Self { pipe: Receiver::from_owned_fd(pipe)?, source, sink, line: RefCell::default() })
    }

    /// Copies until nobody holds the other end.
    pub(super) async fn copy(&self) -> io::Result<()> {
        loop {
            self.pipe.readable().await?;
            match self.read(|bytes| self.pipe.try_read(bytes)) {
                // There is more, and this stream had its turn.
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Copies what is there, without waiting to be told that something is.
    pub(super) fn drain(&self) -> io::Result<()> {
        match self.read(|bytes| Ok(rustix::io::read(&self.pipe, bytes)?)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads until that would block, which is an error: true if there may be more, false if the stream ended.
    fn read(&self, read: impl Fn(&mut [u8]) -> io::Result<usize>) -> io::Result<bool> {
        let mut bytes = vec![0; READ_BYTES];
        for _ in 0..READS {
            match read(&mut bytes) {
                Ok(0) => {
                    let rest = self.line.borrow_mut().rest();
                    self.write(&rest);
                    return Ok(false);
                }
                Ok(count) => {
                    let lines = self.line.borrow_mut().split(&bytes[..count]);
                    self.write(&lines);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn write(&self, lines: &[String]) {
        if !lines.is_empty() {
            self.sink.write(self.source, lines.iter().map(String::as_str));
        }
    }
}

impl Line {
    /// The lines that end in `bytes`.
    fn split(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = vec![];
        let mut parts = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            // One byte more than fits tells the log that there was more.
            let room = (LINE_BYTES + 1).saturating_sub(self.bytes.len());
            self.bytes.extend(&part[..part.len().min(room)]);
            if parts.peek().is_some() {
                lines.push(self.take());
            }
        }
        lines
    }

    /// What has no end, as a line.
    fn rest(&mut self) -> Vec<String> {
        if self.bytes.is_empty() { vec![] } else { vec![self.take()] }
    }

    fn take(&mut self) -> String {
        let bytes = std::mem::take(&mut self.bytes);
        let text = String::from_utf8_lossy(bytes.strip_suffix(b"\r").unwrap_or(&bytes));
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let mut line = Line::default();
        assert_eq!(line.split(b"on"), Vec::<String>::new());
        assert_eq!(line.split(b"e\ntwo\r\n\nthr"), ["one", "two", ""]);
        assert_eq!(line.rest(), ["thr"]);
        assert_eq!(line.rest(), Vec::<String>::new());
        assert_eq!(line.split(&[b'x'; 3 * LINE_BYTES]), Vec::<String>::new());
        assert_eq!(line.split(b"y\nz\n").iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES + 1, 1]);
        assert_eq!(line.split(b"\xff\n"), ["\u{fffd}"]);
    }
}
