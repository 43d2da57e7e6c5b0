//! Log of a container. It consists of lines of the form `<time> OUT|ERR <text>`, in files of limited size.
//! The two newest files are kept. If a line has a label, such as `[APP/PROC/WEB/0]`, the label precedes `OUT`
//! or `ERR`. A file is named after the offset of its first byte.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use schemas::Timestamp;
use schemas::limits::{OUTPUT_BYTES_PER_MINUTE, truncate};

/// Maximum length of a line in bytes. Longer lines of programs are split into several lines. Longer lines
/// from other sources are truncated.
pub(super) const MAX_LINE_BYTES: usize = 8 * 1024;
/// Number of log files that are kept.
const MAX_FILES: usize = 2;
/// Interval for which [`OUTPUT_BYTES_PER_MINUTE`] limits the output of a container.
const MINUTE: Duration = Duration::from_secs(60);

/// Stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Out,
    Err,
}

/// Log of a container.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    file_bytes: u64,
    file: Option<File>,
    /// Offsets of the first bytes of the retained files.
    starts: Vec<u64>,
    /// Offset after the last byte.
    end: u64,
    /// Number of lines that could not be written.
    lost_lines: u64,
    minute: Minute,
}

/// Number of bytes that were logged since the start of the current minute.
#[derive(Debug, Default)]
struct Minute {
    /// Start of the current minute. `None` if nothing was logged yet.
    start: Option<Timestamp>,
    bytes: u64,
    /// `true` if lines are dropped until the minute ends.
    is_over_limit: bool,
}

/// Result of checking a line against the limit per minute.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Write,
    /// Drop the line. It is the first dropped line of the minute, and lines are dropped until this time.
    DropFirst(Timestamp),
    Drop,
}

impl Minute {
    fn admit(&mut self, now: Timestamp, bytes: usize) -> Admission {
        // If the clock was set back, a new minute starts.
        let start = self.start.filter(|start| (*start..*start + MINUTE).contains(&now)).unwrap_or(now);
        if self.start != Some(start) {
            *self = Self { start: Some(start), ..Self::default() };
        }
        if self.is_over_limit {
            return Admission::Drop;
        }
        self.bytes += bytes as u64;
        if self.bytes <= OUTPUT_BYTES_PER_MINUTE {
            return Admission::Write;
        }
        self.is_over_limit = true;
        Admission::DropFirst(start + MINUTE)
    }
}

impl Log {
    /// Creates an empty log in an empty folder.
    pub(super) const fn new(folder: PathBuf, file_bytes: u64) -> Self {
        let minute = Minute { start: None, bytes: 0, is_over_limit: false };
        Self { folder, file_bytes, file: None, starts: vec![], end: 0, lost_lines: 0, minute }
    }

    /// Appends lines with a label, or without one if `label` is empty. If lines cannot be written, their
    /// number is counted, and the next successful write logs it. If lines exceed the limit per minute, they
    /// are dropped, and one notice is logged in their place.
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
        if self.lost_lines > 0 {
            text = format!(
                "{now} ERR {} lines are missing here: the log could not be written\n",
                self.lost_lines
            );
        }
        for line in lines {
            let line = match self.minute.admit(now, line.len().min(MAX_LINE_BYTES) + 1) {
                Admission::Write => format!("{now} {word} {}\n", truncate(line, MAX_LINE_BYTES)),
                Admission::DropFirst(until) => format!(
                    "{now} ERR lines are dropped until {until}: more than {OUTPUT_BYTES_PER_MINUTE} bytes were logged in a minute\n"
                ),
                Admission::Drop => continue,
            };
            if self.room() < text.len() + line.len() && !text.is_empty() {
                self.append(&text, count);
                (text, count) = (String::new(), 0);
            }
            text.push_str(&line);
            count += 1;
        }
        self.append(&text, count);
    }

    /// Returns the number of bytes that fit into the current file.
    fn room(&self) -> usize {
        let used = self.starts.last().map_or(0, |start| self.end - start);
        usize::try_from(self.file_bytes.saturating_sub(used)).unwrap_or(usize::MAX)
    }

    fn append(&mut self, text: &str, lines: u64) {
        if text.is_empty() {
            return;
        }
        match self.try_append(text) {
            Ok(()) => self.lost_lines = 0,
            Err(error) => {
                if self.lost_lines == 0 {
                    super::log_error(&format!("cannot write the log: {error}"));
                }
                self.lost_lines += lines;
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
                // A part of the text may have been written. This part is removed, so that the next line
                // starts at the expected offset.
                let start = self.starts.last().copied().unwrap_or_default();
                file.set_len(self.end - start)?;
                Err(error)
            }
        }
    }

    /// Starts a new file and removes the oldest ones.
    fn rotate(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(self.path(self.end))?;
        self.file = Some(file);
        if self.starts.last() != Some(&self.end) {
            self.starts.push(self.end);
        }
        while self.starts.len() > MAX_FILES {
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

    fn retained_files(log: &Log) -> Vec<String> {
        log.starts.iter().map(|start| fs::read_to_string(log.path(*start)).unwrap()).collect()
    }

    #[test]
    fn rotation_keeps_two_files_with_whole_lines() {
        let root = tempfile::tempdir().unwrap();
        let mut log = Log::new(root.path().to_owned(), 100);
        for number in 0..20 {
            log.write(Timestamp(0), Source::Out, "", [format!("line {number:02}").as_str()].into_iter());
        }
        // A line has 37 bytes, so two fit into a file.
        assert_eq!(log.starts, [8 * 74, 9 * 74]);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 2);
        assert!(
            retained_files(&log).concat().ends_with("Z OUT line 18\n1970-01-01T00:00:00.000Z OUT line 19\n")
        );
    }

    #[test]
    fn lines_beyond_the_limit_of_a_minute_are_dropped_with_one_notice() {
        let root = tempfile::tempdir().unwrap();
        let mut log = Log::new(root.path().to_owned(), 4 * OUTPUT_BYTES_PER_MINUTE);
        let long = "x".repeat(MAX_LINE_BYTES - 1);
        let lines = |count: u64| (0..count).map(|_| long.as_str());
        let most = OUTPUT_BYTES_PER_MINUTE / MAX_LINE_BYTES as u64;
        log.write(Timestamp(0), Source::Out, "", lines(most));
        assert_eq!(retained_files(&log).concat().lines().count() as u64, most, "all lines within the limit");
        let later = |seconds| Timestamp(0) + Duration::from_secs(seconds);
        log.write(later(1), Source::Err, "", lines(3));
        log.write(later(59), Source::Out, "", ["short"].into_iter());
        log.write(later(60), Source::Out, "", ["after"].into_iter());
        let text = retained_files(&log).concat();
        let rest: Vec<&str> = text.lines().skip(usize::try_from(most).unwrap()).collect();
        let notice = "1970-01-01T00:00:01.000Z ERR lines are dropped until 1970-01-01T00:01:00.000Z: more than 10485760 bytes";
        assert!(rest.len() == 2 && rest[0].starts_with(notice), "{rest:?}");
        assert_eq!(rest[1], "1970-01-01T00:01:00.000Z OUT after");
        // The clock is set back.
        log.write(Timestamp(0), Source::Out, "", lines(most));
        log.write(Timestamp(0), Source::Out, "", lines(most));
        assert_eq!(retained_files(&log).concat().matches("are dropped until").count(), 2);
    }

    #[test]
    fn label_precedes_the_stream_of_a_line() {
        let root = tempfile::tempdir().unwrap();
        let mut log = Log::new(root.path().to_owned(), 1000);
        log.write(Timestamp(0), Source::Err, "APP/PROC/WEB/0", ["a", "b"].into_iter());
        let line = |text: &str| format!("1970-01-01T00:00:00.000Z [APP/PROC/WEB/0] ERR {text}\n");
        assert_eq!(retained_files(&log), [line("a") + &line("b")]);
    }

    #[test]
    fn batch_is_split_over_files_and_long_line_is_cut() {
        let root = tempfile::tempdir().unwrap();
        let mut log = Log::new(root.path().to_owned(), 80);
        log.write(Timestamp(0), Source::Err, "", ["a", "b", "c", "d", "e"].into_iter());
        assert_eq!(retained_files(&log).iter().map(|text| text.lines().count()).collect::<Vec<_>>(), [2, 1]);
        let long = "x".repeat(2 * MAX_LINE_BYTES);
        log.write(Timestamp(0), Source::Err, "", [long.as_str()].into_iter());
        let texts = retained_files(&log);
        assert_eq!(texts[1].len(), "1970-01-01T00:00:00.000Z ERR ".len() + MAX_LINE_BYTES + 1);
    }
}
