//! Where answers and notes go. Answers go to the standard output, everything else to the standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use data_encoding::BASE64;
use schemas::Timestamp;
use serde::Serialize;

use super::args::{Color, Format, Global};
use super::failure::{Exit, Failure};
use super::table::Table;

/// How rows become text: all that rendering depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The time, for ages.
    pub(crate) now: Timestamp,
    /// Whether ids are shown in full.
    pub(crate) full_ids: bool,
    /// Whether there are colours.
    pub(crate) colour: bool,
}

/// Where answers go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// How they are written.
    pub(crate) format: Format,
    colour: bool,
    full_ids: bool,
    /// When what is shown was so; none: it is so now.
    at: Option<Timestamp>,
}

impl Output {
    /// As the user asked.
    pub(crate) fn new(global: &Global) -> Self {
        let tty = io::stdout().is_terminal();
        let colour = colour(global.color, tty, |name| std::env::var(name).ok());
        let at = global.past.as_ref().map(|past| past.at);
        Self { format: global.output, colour, full_ids: global.full_ids, at }
    }

    /// Whether people read it.
    pub(crate) fn is_for_people(self) -> bool {
        match self.format {
            Format::Table => true,
            Format::Json | Format::Jsonl | Format::Csv => false,
        }
    }

    /// How rows look at this moment.
    pub(crate) fn look(self) -> Look {
        Look { now: self.at.unwrap_or_else(clock::now), full_ids: self.full_ids, colour: self.colour }
    }

    /// Shows rows.
    pub(crate) fn rows<T: Serialize>(
        self,
        rows: &[T],
        table: impl FnOnce(&[T], Look) -> Table,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv => line(&table(rows, self.look()).render(self.colour)),
            Format::Json => line(&pretty(&rows)?),
            Format::Jsonl => rows.iter().try_for_each(|row| line(&compact(row)?)),
        }
    }

    /// Shows one thing.
    pub(crate) fn one<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(&T, Look) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv => line(&text(thing, self.look())),
            Format::Json => line(&pretty(thing)?),
            Format::Jsonl => line(&compact(thing)?),
        }
    }

    /// Shows one thing that has no other form than JSON.
    pub(crate) fn json<T: Serialize>(self, thing: &T) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv | Format::Json => line(&pretty(thing)?),
            Format::Jsonl => line(&compact(thing)?),
        }
    }

    /// Shows one thing of a stream, which has no end: JSON is one value per line.
    pub(crate) fn next<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(&T, Look) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv => line(&text(thing, self.look())),
            Format::Json | Format::Jsonl => line(&compact(thing)?),
        }
    }
}

fn pretty(thing: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(thing).map_err(no_json)
}

fn compact(thing: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(thing).map_err(no_json)
}

fn no_json(error: serde_json::Error) -> Failure {
    Failure::new(Exit::Failed, "Output", format!("the answer can't be written as JSON: {error}"))
}

/// Writes a line to the standard output; of an empty text nothing is written.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    text_as_it_is(&format!("{text}\n"))
}

/// Writes text to the standard output.
pub(crate) fn text_as_it_is(text: &str) -> Result<(), Failure> {
    bytes_as_they_are(text.as_bytes())
}

/// Writes bytes to the standard output.
pub(crate) fn bytes_as_they_are(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            return Failure::nobody_reads();
        }
        Failure::new(Exit::Failed, "Output", format!("can't write to the standard output: {error}"))
    })
}

/// The bytes that a cell answered with, in base64.
pub(crate) fn decoded(data: &str) -> Result<Vec<u8>, Failure> {
    BASE64.decode(data.as_bytes()).map_err(|error| {
        Failure::new(Exit::Failed, "Answer", format!("the cell answered with what is no base64: {error}"))
    })
}

/// Writes a line to the standard error. If nobody reads that, nobody wants to know.
pub(crate) fn note(text: &str) {
    let mut out = io::stderr().lock();
    drop(writeln!(out, "{text}"));
}

/// Tells of a failure on the standard error.
pub(crate) fn failed(failure: &Failure, global: &Global) {
    if failure.is_silent() {
        return;
    }
    let colour = colour(global.color, io::stderr().is_terminal(), |name| std::env::var(name).ok());
    match global.output {
        Format::Table => note(&failure.text(colour)),
        Format::Json | Format::Jsonl | Format::Csv => note(&failure.json()),
    }
}

/// Whether there are colours: what the user says, else `NO_COLOR` and `CLICOLOR_FORCE`, else whether it is a terminal.
fn colour(wanted: Color, terminal: bool, environment: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name| environment(name).is_some_and(|value| !value.is_empty());
    match wanted {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR") => false,
        Color::Auto if environment("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        Color::Auto => terminal && environment("TERM").is_none_or(|term| term != "dumb"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_and_for_who_asks() {
        let with = |name: &'static str, value: &'static str| {
            move |asked: &str| (asked == name).then(|| value.to_owned())
        };
        let none = |_: &str| None;
        assert!(colour(Color::Auto, true, none) && !colour(Color::Auto, false, none));
        assert!(
            !colour(Color::Auto, true, with("NO_COLOR", "1"))
                && colour(Color::Auto, true, with("NO_COLOR", ""))
        );
        assert!(!colour(Color::Auto, true, with("TERM", "dumb")));
        assert!(colour(Color::Auto, false, with("CLICOLOR_FORCE", "1")));
        assert!(colour(Color::Always, false, with("NO_COLOR", "1")) && !colour(Color::Never, true, none));
    }
}
