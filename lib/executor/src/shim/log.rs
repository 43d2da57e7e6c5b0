//! The log of a container: lines of `<time> OUT|ERR <text>` in files of limited size, of which two are kept. Where a line is
//! told as something, that stands before `OUT` or `ERR`, as `[APP/PROC/WEB/0]`. A file is named after the offset of its first
//! byte.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use schemas::Timestamp;
use schemas::limits::cut;

/// Longest line, in bytes. What programs write beyond that is split into several lines; another line is cut.
pub(super) const LINE_BYTES: usize = 8 * 1024;
/// Log files that are kept.
const FILES: usize = 2;

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Out,
    Err,
}

/// The log of a container.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    file_bytes: u64,
    file: Option<File>,
    /// The offsets of the first bytes of the files that are kept.
    starts: Vec<u64>,
    /// The offset behind the last byte.
    end: u64,
    /// Lines that could not be written.
    lost: u64,
}

impl Log {
    /// A log without a line, in a folder without a file.
    pub(super) const fn new(folder: PathBuf, file_bytes: u64) -> Self {
        Self { folder, file_bytes, file: None, starts: vec![], end: 0, lost: 0 }
    }

    /// Adds lines. What can't be written is counted, and logged as soon as something can be.
    /// `label` is what they are told as; empty: nothing.
    pub(super) fn write<'a>(
        &mut self,
        now: Timestamp,
        source: Source,
        label: &str,
        lines: impl Iterator<Item = &'a str>,
    ) {
        let word = match source {
            Source::Out => "OUT",
            Source::Err => "ERR",
        };
        let word = if label.is_empty() { word.to_owned() } else { format!("[{label}] {word}") };
        let mut text = String::new();
        let mut count = 0;
        if self.lost > 0 {
            text = format!("{now} ERR {} lines are missing here: the log could not be written\n", self.lost);
        }
        for line in lines {
            let line = format!("{now} {word} {}\n", cut(line, LINE_BYTES));
            if self.room() < text.len() + line.len() && !text.is_empty() {
                self.append(&text, count);
                (text, count) = (String::new(), 0);
            }
            text.push_str(&line);
            count += 1;
        }
        self.append(&text, count);
    }

    /// Bytes that fit into the present file.
    fn room(&self) -> usize {
        let used = self.starts.last().map_or(0, |start| self.end - start);
        usize::try_from(self.file_bytes.saturating_sub(used)).unwrap_or(usize::MAX)
    }

    fn append(&mut self, text: &str, lines: u64) {
        if text.is_empty() {
            return;
        }
        match self.try_append(text) {
            Ok(()) => self.lost = 0,
            Err(error) => {
                if self.lost == 0 {
                    super::complain(&format!("cannot write the log: {error}"));
                }
                self.lost += lines;
            }
        }
    }

    fn try_append(&mut self, text: &str) -> io::Result<()> {
        if self.file.is_none() || self.room() < text.len() {
            self.rotate()?;
        }
        let file = self.file.as_mut().expect("a file is open after rotating");
        match file.write_all(text.as_bytes()) {
            Ok(()) => {
                self.end += u64::try_from(text.len()).expect("lines are short");
                Ok(())
            }
            Err(error) => {
                // Part of it may stand there: what follows goes behind it, on a line of its own.
                let start = self.starts.last().copied().unwrap_or_default();
                file.set_len(self.end - start)?;
                Err(error)
            }
        }
    }

    /// Begins another file, and removes what is too many.
    fn rotate(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(self.path(self.end))?;
        self.file = Some(file);
        if self.starts.last() != Some(&self.end) {
            self.starts.push(self.end);
        }
        while self.starts.len() > FILES {
            fs::remove_file(self.path(self.starts[0]))?;
            self.starts.remove(0);
        }
        Ok(())
    }

    fn path(&self, start: u64) -> PathBuf {
        self.folder.join(format!("{start:020}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(log: &Log) -> Vec<String> {
        log.starts.iter().map(|start| fs::read_to_string(log.path(*start)).unwrap()).collect()
    }

    #[test]
    fn two_files_are_kept_and_lines_stay_whole() {
        let root = tempfile::tempdir().unwrap();
        let mut log = Log::new(root.path().to_owned(), 100);
        for number in 0..20 {
            log.write(Timestamp(0), Source::Out, "", [format!("line {number:02}").as_str()].into_iter());
        }
        // A line is 37 bytes: two fit into a file.
        assert_eq!(log.starts, [8 * 74, 9 * 74]);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
        assert!(kept(&log).concat().ends_with("Z OUT line 18\n1970-01-01T00:00:00.000Z OUT line 19\n"));
    }

    #[test]
    fn what_a_line_is_told_as_stands_before_it() {
        let root = tempfile::tempdir().unwrap();
        let mut log = Log::new(root.path().to_owned(), 1000);
        log.write(Timestamp(0), Source::Err, "APP/PROC/WEB/0", ["a", "b"].into_iter());
        let line = |text: &str| format!("1970-01-01T00:00:00.000Z [APP/PROC/WEB/0] ERR {text}\n");
        assert_eq!(kept(&log), [line("a") + &line("b")]);
    }

    #[test]
    fn a_batch_is_spread_over_files_and_a_long_line_is_cut() {
        let root = tempfile::tempdir().unwrap();
        let mut log = Log::new(root.path().to_owned(), 80);
        log.write(Timestamp(0), Source::Err, "", ["a", "b", "c", "d", "e"].into_iter());
        assert_eq!(kept(&log).iter().map(|text| text.lines().count()).collect::<Vec<_>>(), [2, 1]);
        let long = "x".repeat(2 * LINE_BYTES);
        log.write(Timestamp(0), Source::Err, "", [long.as_str()].into_iter());
        let texts = kept(&log);
        assert_eq!(texts[1].len(), "1970-01-01T00:00:00.000Z ERR ".len() + LINE_BYTES + 1);
    }
}
