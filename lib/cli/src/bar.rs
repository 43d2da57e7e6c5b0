//! Progress line on standard error.

use std::time::Duration;

use cli_base::output::{Output, note};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use text::words::escape_text;

use super::screen::terminal_problem;

/// A progress line. Hidden unless the output is for people.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Starts a progress line.
    pub(crate) fn new(output: Output, text: String) -> Self {
        if !output.is_human_readable() {
            return Self { bar: None };
        }
        let hidden = terminal_problem().map(|_| ProgressDrawTarget::hidden());
        let bar = ProgressBar::with_draw_target(None, hidden.unwrap_or_else(ProgressDrawTarget::stderr));
        // The template is a valid constant, so this never fails.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}") {
            bar.set_style(style);
        }
        bar.set_message(escape_text(&text));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar: Some(bar) }
    }

    /// Updates the text of the progress line.
    pub(crate) fn set(&self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(escape_text(&text));
        }
    }

    /// Prints a permanent line.
    pub(crate) fn print_line(&self, line: &str) {
        match &self.bar {
            Some(bar) if bar.is_hidden() => note(line),
            Some(bar) => bar.suspend(|| note(line)),
            None => {}
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
