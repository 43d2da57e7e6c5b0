//! Output of the command line. Results go to standard output, everything else to standard error.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};

use data_encoding::BASE64;
use parking_lot::Mutex;
use runtime::exit::Exit;
use schemas::Timestamp;
use schemas::spec::{self, Item};
use serde::Serialize;
use text::words::{escape_json, escape_text};

use super::failure::Failure;
use super::options::{Color, Format, Global};
use super::table::Table;

/// Options for rendering rows as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// Reference time for ages.
    pub now: Timestamp,
    /// `true` to print ids in full.
    pub full_ids: bool,
    pub colour: bool,
}

/// Writer of results to the standard output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub format: Format,
    colour: bool,
    full_ids: bool,
    /// `true` if control characters in text of programs and clients must be escaped, because the output is a
    /// terminal.
    safe: bool,
    /// Time of the shown state. `None` for the present state.
    at: Option<Timestamp>,
}

impl Output {
    /// Creates an output with the user's options.
    #[must_use]
    pub fn new(global: &Global) -> Self {
        let tty = io::stdout().is_terminal();
        let colour = colour(global.color, tty, |name| std::env::var(name).ok());
        let at = global.past.as_ref().map(|past| past.at);
        Self { format: global.output, colour, full_ids: global.full_ids, safe: tty && !global.raw, at }
    }

    /// Returns `true` if the output format is meant for people.
    #[must_use]
    pub fn is_human_readable(self) -> bool {
        match self.format {
            Format::Table => true,
            Format::Json | Format::Jsonl | Format::Csv | Format::Toml => false,
        }
    }

    /// Returns the options for rendering rows now.
    pub fn look(self) -> RenderOptions {
        RenderOptions {
            now: self.at.unwrap_or_else(clock::now),
            full_ids: self.full_ids,
            colour: self.colour,
        }
    }

    /// Returns the text of a program, with control characters escaped if the output is a terminal.
    #[must_use]
    pub fn program_text(self, text: &str) -> Cow<'_, str> {
        if self.safe { escape_text(text).into() } else { text.into() }
    }

    /// Writes bytes of a program to the standard output. Control characters are escaped if the output is a
    /// terminal.
    pub fn write_program_bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        if !self.safe {
            return write_bytes(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        match self.format {
            Format::Table | Format::Csv | Format::Toml => write_text(&escape_text(&text)),
            Format::Json | Format::Jsonl => write_text(&escape_json(&text)),
        }
    }

    fn json_text(self, json: String) -> String {
        if self.safe { escape_json(&json) } else { json }
    }

    /// Writes rows as a table or as JSON.
    pub fn write_rows<T: Serialize>(
        self,
        rows: &[T],
        table: impl FnOnce(&[T], RenderOptions) -> Table,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv | Format::Toml => {
                write_line(&table(rows, self.look()).render(self.colour))
            }
            Format::Json => write_line(&self.json_text(pretty(&rows)?)),
            Format::Jsonl => rows.iter().try_for_each(|row| write_line(&self.json_text(compact(row)?))),
        }
    }

    /// Writes a single result.
    pub fn write_one<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(&T, RenderOptions) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.write_json(thing),
            Format::Table | Format::Csv | Format::Jsonl | Format::Toml => self.write_stream_item(thing, text),
        }
    }

    /// Writes a row with details, or with `--output toml` its item as a definition file, which `muster apply`
    /// accepts.
    ///
    /// # Errors
    /// If the item cannot be a file: it is no longer desired, it has values that the user may not read, or
    /// routes that TOML cannot represent.
    pub fn write_details<T: Serialize>(
        self,
        row: &T,
        item: impl FnOnce(&T) -> Option<Item>,
        text: impl FnOnce(&T, RenderOptions) -> String,
    ) -> Result<(), Failure> {
        if self.format != Format::Toml {
            return self.write_one(row, text);
        }
        let Some(item) = item(row) else {
            return Err(Failure::new(
                Exit::Failed,
                "InvalidStateTransition",
                "the object is no longer desired, so it has no definition",
            ));
        };
        let file = spec::item_spec(&item);
        spec::document(file.clone())
            .map_err(|refusal| Failure::from(refusal).while_doing("write the definition as a file"))?;
        let toml = toml::to_string_pretty(&file).map_err(|error| {
            Failure::new(Exit::Failed, "InvalidRequest", format!("TOML cannot represent the routes: {error}"))
        })?;
        write_text(&if self.safe { escape_text(&toml) } else { toml })
    }

    /// Writes a single result that is always formatted as JSON.
    pub fn write_json<T: Serialize>(self, thing: &T) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv | Format::Json | Format::Toml => {
                write_line(&self.json_text(pretty(thing)?))
            }
            Format::Jsonl => write_line(&self.json_text(compact(thing)?)),
        }
    }

    /// Adds one result of a command. With `--output json`, [`finish`] writes all results as one value: the
    /// result itself, or a list if there are several results.
    pub fn add_result<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(&T, RenderOptions) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv | Format::Toml => write_line(&text(thing, self.look())),
            Format::Json => {
                ANSWER.lock().values.push(self.json_text(compact(thing)?));
                Ok(())
            }
            Format::Jsonl => write_line(&self.json_text(compact(thing)?)),
        }
    }

    /// Makes the JSON output a list, even if [`Output::add_result`] adds fewer than two results.
    pub fn begin_list(self) {
        ANSWER.lock().is_list = self.format == Format::Json;
    }

    /// Writes an item of a stream. The stream continues until the user ends it. JSON items are written one
    /// per line.
    pub fn write_stream_item<T: Serialize>(
        self,
        thing: &T,
        text: impl FnOnce(&T, RenderOptions) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Csv | Format::Toml => write_line(&text(thing, self.look())),
            Format::Json | Format::Jsonl => write_line(&self.json_text(compact(thing)?)),
        }
    }
}

/// JSON results of the running command. [`finish`] writes them.
static ANSWER: Mutex<Values> = Mutex::new(Values { values: vec![], is_list: false });

struct Values {
    values: Vec<String>,
    is_list: bool,
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

/// Writes the collected JSON results as one value, if there are any. If a command fails, the results before
/// the failure are written.
pub fn finish() -> Result<(), Failure> {
    let text = std::mem::replace(&mut *ANSWER.lock(), Values { values: vec![], is_list: false }).text();
    write_line(&text)
}

fn pretty(thing: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(thing).map_err(json_error)
}

fn compact(thing: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(thing).map_err(json_error)
}

fn json_error(error: serde_json::Error) -> Failure {
    Failure::new(Exit::Failed, "Output", format!("can't write the result as JSON: {error}"))
}

/// Writes a line to the standard output. Writes nothing if the text is empty.
pub fn write_line(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    write_text(&format!("{text}\n"))
}

/// Writes text unchanged to the standard output.
pub fn write_text(text: &str) -> Result<(), Failure> {
    write_bytes(text.as_bytes())
}

/// Writes bytes unchanged to standard output, and flushes standard output.
pub fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            return Failure::broken_pipe();
        }
        Failure::new(Exit::Failed, "Output", format!("can't write to the standard output: {error}"))
    })
}

/// Decodes the base64 data in the reply of a cell.
pub fn decode_base64(data: &str) -> Result<Vec<u8>, Failure> {
    BASE64.decode(data.as_bytes()).map_err(|error| {
        Failure::new(Exit::Failed, "Answer", format!("the cell answered with invalid base64: {error}"))
    })
}

/// Writes a line to standard error. Write errors are ignored, because there is no other place to report them.
pub fn note(text: &str) {
    write_note(&escape_text(text));
}

fn write_note(text: &str) {
    let mut out = io::stderr().lock();
    drop(writeln!(out, "{text}"));
}

/// Reports a failure on the standard error.
pub fn report_failure(failure: &Failure, global: &Global) {
    if failure.is_silent() {
        return;
    }
    let colour = colour(global.color, io::stderr().is_terminal(), |name| std::env::var(name).ok());
    match global.output {
        Format::Table | Format::Toml => write_note(&failure.text(colour)),
        Format::Json | Format::Jsonl | Format::Csv => write_note(&escape_json(&failure.json())),
    }
}

/// Returns `true` if output is coloured. The user's option takes precedence, followed by `NO_COLOR` and
/// `CLICOLOR_FORCE`. Otherwise a terminal gets colours unless `TERM` is `dumb`.
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
    fn results_are_combined_into_one_json_value() {
        let text = |values: &[&str], is_list| {
            Values { values: values.iter().map(|value| (*value).to_owned()).collect(), is_list }.text()
        };
        assert_eq!(text(&[], false), "");
        assert_eq!(text(&["{}"], false), "{}");
        assert_eq!(text(&["1", "2"], false), "[1,\n2]");
        assert_eq!((text(&[], true), text(&["{}"], true)), ("[]".into(), "[{}]".into()));
    }

    #[test]
    fn colours_are_used_on_terminals_or_on_request() {
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
