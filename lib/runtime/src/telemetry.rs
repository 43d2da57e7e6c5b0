//! Logging to standard error, so that standard output carries only the program's results.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Human-readable, in colour on a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Error of starting telemetry.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("invalid log filter {filter:?}: expected a level, or target=level separated by commas")]
    Filter {
        filter: String,
        #[source]
        source: ParseError,
    },
    /// `start` was called before in this process.
    #[error("telemetry is already started")]
    Started(#[source] TryInitError),
}

/// Directive that overrides every filter. Under this target the NATS client logs whole messages and its
/// password.
const SUPPRESSED_DIRECTIVE: &str = "async_nats::connection=off";

/// Maximum number of diverted lines that wait to be read. Further lines are dropped.
const DIVERSION_CAPACITY: usize = 256;

/// Destination of diverted log lines, instead of standard error. `None` if lines are not diverted.
static DIVERSION: Mutex<Option<SyncSender<String>>> = Mutex::new(None);

/// Receiver of log lines. Until it is dropped, the lines are diverted from standard error. Intended for a
/// program that draws on the terminal.
#[derive(Debug)]
pub struct DivertedLog(Receiver<String>);

impl DivertedLog {
    /// Starts diverting log lines. An earlier receiver gets no further lines.
    #[must_use]
    pub fn start() -> Self {
        let (sender, receiver) = sync_channel(DIVERSION_CAPACITY);
        *DIVERSION.lock() = Some(sender);
        Self(receiver)
    }

    /// Returns the lines that have been diverted since the last call.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.try_iter()
    }
}

impl Drop for DivertedLog {
    /// Writes unread lines to standard error.
    fn drop(&mut self) {
        DIVERSION.lock().take();
        let mut out = io::stderr().lock();
        for line in self.0.try_iter() {
            // A failed write to standard error can't be reported anywhere.
            drop(writeln!(out, "{line}"));
        }
    }
}

/// Writer of the subscriber. Each call of `write` passes one event.
struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut diversion = DIVERSION.lock();
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

/// Starts telemetry, once per process. `log` (the program's `--log`) takes precedence over the environment
/// variable `RUST_LOG`. Without both, the filter is `warn` plus `default`, such as `muster=info`.
///
/// # Errors
/// Returns an error if the filter is invalid or telemetry is already started.
pub fn start(log: Option<&str>, default: &str, format: Format) -> Result<(), TelemetryError> {
    let environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = log.map(str::to_owned).or(environment).unwrap_or_else(|| format!("warn,{default}"));
    let parsed = parse(&filter)?;
    let lines = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(|| LogWriter);
    match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).finish().try_init(),
        Format::Json => lines.json().flatten_event(true).finish().try_init(),
    }
    .map_err(TelemetryError::Started)
}

fn parse(filter: &str) -> Result<EnvFilter, TelemetryError> {
    let parsed = EnvFilter::try_new(filter)
        .map_err(|source| TelemetryError::Filter { filter: filter.to_owned(), source })?;
    Ok(parsed.add_directive(SUPPRESSED_DIRECTIVE.parse().expect("the directive is valid")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_enables_nats_connection_logs() {
        for asked in ["trace", "async_nats=trace", "async_nats::connection=trace"] {
            let filter = parse(asked).unwrap().to_string();
            let said: Vec<&str> = filter.split(',').filter(|of| of.starts_with("async_nats::")).collect();
            assert_eq!(said, [SUPPRESSED_DIRECTIVE], "{filter}");
        }
    }

    #[test]
    fn start_rejects_invalid_filter_and_second_start() {
        let bad = start(Some("runtime=loud"), "muster=info", Format::Text).unwrap_err();
        assert!(bad.to_string().starts_with("invalid log filter \"runtime=loud\""), "{bad}");
        start(Some("off"), "muster=info", Format::Json).unwrap();
        tracing::error!("not logged: the filter is off");
        let diverted = DivertedLog::start();
        LogWriter.write_all(b"a line\n").unwrap();
        assert_eq!(diverted.lines().collect::<Vec<_>>(), ["a line"]);
        drop(diverted);
        assert!(DIVERSION.lock().is_none());
        let twice = start(Some("off"), "muster=info", Format::Text).unwrap_err();
        assert!(matches!(twice, TelemetryError::Started(_)));
    }
}
