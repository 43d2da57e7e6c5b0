//! Where answers and notes go. Answers go to the standard output, everything else to the standard error.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use data_encoding::BASE64;
use schemas::Timestamp;
use serde::Serialize;

use super::args::{Color, Format, Global};
use super::failure::{Exit, Failure};
use super::table::Table;
use super::words::{visible, visible_json};

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
    /// Whether text of programs and clients is made safe for a terminal.
    safe: bool,
    /// When what is shown was so; none: it is so now.
    at: Option<Timestamp>,
}

impl Output {
    /// As the user asked.
    pub(crate) fn new(global: &Global) -> Self {
        let tty = io::stdout().is_terminal();
        let colour = colour(global.color, tty, |name| std::env::var(name).ok());
        let at = global.past.as_ref().map(|past| past.at);
        Self { format: global.output, colour, full_ids: global.full_ids, safe: tty && !global.raw, at }
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

    /// Returns text of a program as it may be written: on a terminal only what a terminal doesn't act on.
    pub(crate) fn of_program(self, text: &str) -> Cow<'_, str> {
        if self.safe { visible(text).into() } else { text.into() }
    }

    /// Writes bytes of a program to the standard output.
    pub(crate) fn bytes_of_program(self, bytes: &[u8]) -> Result<(), Failure> {
        if !self.safe {
            return bytes_as_they_are(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        match self.format {
            Format::Table | Format::Csv => text_as_it_is(&visible(&text)),
            Format::Json | Format::Jsonl => text_as_it_is(&visible_json(&text)),
        }
    }

    fn json_text(self, json: String) -> String {
        if self.safe { visible_json(&json) } else { json }
    }

    /// Shows rows.
    pub(crate) fn rows<T: Serialize>(
        self,
        rows: &[T],
        table: impl FnOnce(&[T], Look) -> Table,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv => line(&table(rows, self.look()).render(self.colour)),
            Format::Json => line(&self.json_text(pretty(&rows)?)),
            Format::Jsonl => rows.iter().try_for_each(|row| line(&self.json_text(compact(row)?))),
        }
    }

    /// Shows one thing.
    pub(crate) fn one<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(&T, Look) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.json(thing),
            Format::Table | Format::Csv | Format::Jsonl => self.stream(thing, text),
        }
    }

    /// Shows one thing that has no other form than JSON.
    pub(crate) fn json<T: Serialize>(self, thing: &T) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv | Format::Json => line(&self.json_text(pretty(thing)?)),
            Format::Jsonl => line(&self.json_text(compact(thing)?)),
        }
    }

    /// Shows one of the things that a command is about. As JSON all of them are one value, which [`finish`] writes: the thing
    /// itself, or a list if there are several.
    pub(crate) fn next<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(&T, Look) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv => line(&text(thing, self.look())),
            Format::Json => {
                ANSWER.lock().values.push(self.json_text(compact(thing)?));
                Ok(())
            }
            Format::Jsonl => line(&self.json_text(compact(thing)?)),
        }
    }

    /// Starts an answer that is a list in JSON, however many things [`Output::next`] adds.
    pub(crate) fn list(self) {
        ANSWER.lock().is_list = self.format == Format::Json;
    }

    /// Shows one thing of a stream that goes on until the user ends it: JSON is one value per line.
    pub(crate) fn stream<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(&T, Look) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv => line(&text(thing, self.look())),
            Format::Json | Format::Jsonl => line(&self.json_text(compact(thing)?)),
        }
    }
}

/// The one JSON value that a command answers with, while it is put together.
static ANSWER: Answer = Answer(Mutex::new(Values { values: vec![], is_list: false }));

struct Answer(Mutex<Values>);

struct Values {
    values: Vec<String>,
    is_list: bool,
}

impl Answer {
    fn lock(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Values {
    fn text(&self) -> String {
        match &self.values[..] {
            [one] if !self.is_list => one.clone(),
            [] if !self.is_list => String::new(),
            several => format!("[{}]", several.join(",\n")),
        }
    }
}

/// Writes the JSON value that a command has put together, if there is one. A command that fails has one, too, of what it did.
pub(crate) fn finish() -> Result<(), Failure> {
    let text = std::mem::replace(&mut *ANSWER.lock(), Values { values: vec![], is_list: false }).text();
    line(&text)
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
    write_note(&visible(text));
}

fn write_note(text: &str) {
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
        Format::Table => write_note(&failure.text(colour)),
        Format::Json | Format::Jsonl | Format::Csv => write_note(&visible_json(&failure.json())),
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
    fn an_answer_is_one_json_value() {
        let text = |values: &[&str], is_list| {
            Values { values: values.iter().map(|value| (*value).to_owned()).collect(), is_list }.text()
        };
        assert_eq!(text(&[], false), "");
        assert_eq!(text(&["{}"], false), "{}");
        assert_eq!(text(&["1", "2"], false), "[1,\n2]");
        assert_eq!((text(&[], true), text(&["{}"], true)), ("[]".into(), "[{}]".into()));
    }

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
