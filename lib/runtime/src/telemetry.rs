//! What a program says about itself: lines on standard error, so that standard output stays the program's answer.

use std::io::{self, IsTerminal};

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
    #[error("{filter:?} is no log filter: use a level, or target=level with commas between")]
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

/// Starts telemetry, once in a program. `log` (the program's `--log`) goes before the environment's `RUST_LOG`;
/// without either, warnings and `default` are shown, as `muster=info`.
///
/// # Errors
/// The filter isn't one, or telemetry runs already.
pub fn start(log: Option<&str>, default: &str, format: Format) -> Result<(), TelemetryError> {
    let environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = log.map(str::to_owned).or(environment).unwrap_or_else(|| format!("warn,{default}"));
    let parsed = EnvFilter::try_new(&filter).map_err(|source| TelemetryError::Filter { filter, source })?;
    let lines = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(io::stderr);
    match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).finish().try_init(),
        Format::Json => lines.json().flatten_event(true).finish().try_init(),
    }
    .map_err(TelemetryError::Started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_checked_and_telemetry_starts_once() {
        let bad = start(Some("runtime=loud"), "muster=info", Format::Text).unwrap_err();
        assert!(bad.to_string().starts_with("\"runtime=loud\" is no log filter"), "{bad}");
        start(Some("off"), "muster=info", Format::Json).unwrap();
        let twice = start(Some("off"), "muster=info", Format::Text).unwrap_err();
        assert!(matches!(twice, TelemetryError::Started(_)));
    }
}
