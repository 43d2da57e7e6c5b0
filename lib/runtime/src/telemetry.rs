//! What a program says about itself: lines on standard error, so that standard output stays the program's answer.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people; in colour on a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter isn't one.
    #[error("{filter:?} is not a log filter: use a level, or target=level with commas between")]
    Filter {
        /// The filter as it was given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// `start` was called before in this process.
    #[error("telemetry has been started before")]
    Started(#[source] TryInitError),
}

/// What no filter turns on: the NATS client tells there every message as a whole, and by which password it connects.
const NEVER_SAID: &str = "async_nats::connection=off";

/// Lines that wait to be read where they are diverted to. More are lost.
const DIVERTED: usize = 256;

/// Where lines go instead of to standard error.
static DIVERSION: Mutex<Option<SyncSender<String>>> = Mutex::new(None);

/// Lines that come here instead of to standard error, until this is dropped: for a program that draws on the terminal.
#[derive(Debug)]
pub struct Diverted(Receiver<String>);

impl Diverted {
    /// Begins. Whoever diverted them before gets no more.
    #[must_use]
    pub fn begin() -> Self {
        let (sender, receiver) = sync_channel(DIVERTED);
        *DIVERSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Self(receiver)
    }

    /// The lines that came since.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.try_iter()
    }
}

impl Drop for Diverted {
    /// What nobody has read goes where it would have gone.
    fn drop(&mut self) {
        DIVERSION.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut out = io::stderr().lock();
        for line in self.0.try_iter() {
            // If nobody reads that, nobody wants to know.
            drop(writeln!(out, "{line}"));
        }
    }
}

/// What the subscriber writes to: one call of `write` is one event.
struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut diversion = DIVERSION.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*diversion {
            let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
            match sender.try_send(text) {
                Ok(()) | Err(TrySendError::Full(_)) => return Ok(bytes.len()),
                Err(TrySendError::Disconnected(_)) => *diversion = None,
            }
        }
        io::stderr().lock().write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Starts telemetry, once in a program. `log` (the program's `--log`) goes before the environment's `RUST_LOG`;
/// without either, warnings and `default` are shown, as `muster=info`.
///
/// # Errors
/// The filter isn't one, or telemetry runs already.
pub fn start(log: Option<&str>, default: &str, format: Format) -> Result<(), TelemetryError> {
    let environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = log.map(str::to_owned).or(environment).unwrap_or_else(|| format!("warn,{default}"));
    let parsed = parse(&filter)?;
    let lines = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(|| Lines);
    match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).finish().try_init(),
        Format::Json => lines.json().flatten_event(true).finish().try_init(),
    }
    .map_err(TelemetryError::Started)
}

fn parse(filter: &str) -> Result<EnvFilter, TelemetryError> {
    let parsed = EnvFilter::try_new(filter)
        .map_err(|source| TelemetryError::Filter { filter: filter.to_owned(), source })?;
    Ok(parsed.add_directive(NEVER_SAID.parse().expect("this is a directive")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_turns_on_what_tells_whole_messages() {
        for asked in ["trace", "async_nats=trace", "async_nats::connection=trace"] {
            let filter = parse(asked).unwrap().to_string();
            let said: Vec<&str> = filter.split(',').filter(|of| of.starts_with("async_nats::")).collect();
            assert_eq!(said, [NEVER_SAID], "{filter}");
        }
    }

    #[test]
    fn a_filter_is_checked_and_telemetry_starts_once() {
        let bad = start(Some("runtime=loud"), "muster=info", Format::Text).unwrap_err();
        assert!(bad.to_string().starts_with("\"runtime=loud\" is not a log filter"), "{bad}");
        start(Some("off"), "muster=info", Format::Json).unwrap();
        tracing::error!("not shown: the filter is off");
        let diverted = Diverted::begin();
        Lines.write_all(b"a line\n").unwrap();
        assert_eq!(diverted.lines().collect::<Vec<_>>(), ["a line"]);
        drop(diverted);
        assert!(DIVERSION.lock().unwrap().is_none());
        let twice = start(Some("off"), "muster=info", Format::Text).unwrap_err();
        assert!(matches!(twice, TelemetryError::Started(_)));
    }
}
