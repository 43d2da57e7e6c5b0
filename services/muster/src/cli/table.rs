//! Plain-text tables: columns without borders.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell as Painted, CellAlignment, Color, ContentArrangement};

use super::words::one_line;

/// A table to render.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// Content of one field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Text(String),
    /// A number, or text that is compared like one. Right-aligned.
    Number(String),
    /// A state, coloured by its severity.
    State(String),
    /// No content, rendered as `-`.
    None,
}

impl Cell {
    pub(crate) fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    pub(crate) fn number(number: impl ToString) -> Self {
        Self::Number(number.to_string())
    }

    pub(crate) fn state(state: impl ToString) -> Self {
        Self::State(state.to_string())
    }

    /// Creates a text field. `None` creates an empty one.
    pub(crate) fn optional(text: Option<impl ToString>) -> Self {
        text.map_or(Self::None, Self::text)
    }

    fn paint(&self) -> Painted {
        match self {
            Self::Text(text) => Painted::new(one_line(text)),
            Self::Number(text) => Painted::new(text).set_alignment(CellAlignment::Right),
            Self::State(state) => match colour_of(state) {
                Some(colour) => Painted::new(one_line(state)).fg(colour),
                None => Painted::new(one_line(state)),
            },
            Self::None => Painted::new("-"),
        }
    }
}

/// Returns the colour of a state: green is good, yellow is in progress, red is bad. The word of the state
/// carries the information even without colour.
fn colour_of(state: &str) -> Option<Color> {
    match state.split(' ').next().unwrap_or_default() {
        "RUNNING" | "PRESENT" | "SUCCEEDED" | "COMPLETE" | "FRESH" | "HEALTHY" | "LEADS" | "completed"
        | "ok" => Some(Color::Green),
        "CLAIMED" | "UNCLAIMED" | "PENDING" | "RESOLVING" | "EVACUATING" | "STOPPING" | "BLOCKED"
        | "SILENT" | "DEGRADED" | "updating" | "rollback_started" | "warning" => Some(Color::Yellow),
        "CRASHED" | "ABSENT" | "FAILED" | "UNHEALTHY" | "NOT" | "paused" | "rollback_paused"
        | "rolled_back" | "failed" => Some(Color::Red),
        _ => None,
    }
}

/// Formats a state in the colour that tables use.
pub(crate) fn painted_state(state: &str, colour: bool) -> String {
    let code = match colour_of(state).filter(|_| colour) {
        Some(Color::Green) => 32,
        Some(Color::Yellow) => 33,
        Some(_) => 31,
        None => return one_line(state),
    };
    format!("\u{1b}[1;{code}m{}\u{1b}[0m", one_line(state))
}

impl Table {
    /// Creates a table with these columns.
    pub(crate) fn new(headers: &[impl ToString]) -> Self {
        Self { headers: headers.iter().map(ToString::to_string).collect(), rows: vec![] }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Renders the table, without a line end after the last line.
    pub(crate) fn render(&self, colour: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let numbers = |at: usize| self.rows.iter().any(|row| matches!(row.get(at), Some(Cell::Number(_))));
        let header = self.headers.iter().enumerate().map(|(at, name)| {
            let name = Painted::new(name).add_attribute(Attribute::Bold);
            if numbers(at) { name.set_alignment(CellAlignment::Right) } else { name }
        });
        table.set_header(header.collect::<Vec<_>>());
        table.add_rows(self.rows.iter().map(|row| row.iter().map(Cell::paint).collect::<Vec<_>>()));
        for column in table.column_iter_mut() {
            column.set_padding((0, 3));
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

/// Formats names and values, one pair per line, with aligned values. Empty values are left out.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let shown: Vec<_> = facts.iter().filter(|(_, value)| !value.is_empty()).collect();
    let width = shown.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &&(&str, String)| format!("{name:width$}  {}", one_line(value));
    shown.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_rendered_without_borders() {
        let mut table = Table::new(&["NAME", "STATE", "CRASHES", "CELL"]);
        table.row(vec![Cell::text("web/0"), Cell::state("RUNNING"), Cell::number(0), Cell::text("c1")]);
        table.row(vec![Cell::text("worker/10"), Cell::state("CRASHED"), Cell::number(12), Cell::None]);
        assert_eq!(
            table.render(false),
            "NAME        STATE     CRASHES   CELL\n\
             web/0       RUNNING         0   c1\n\
             worker/10   CRASHED        12   -"
        );
        assert!(table.render(true).contains("\u{1b}["));
        assert_eq!(Table::new(&["A", "B"]).render(false), "A   B");
    }

    #[test]
    fn control_characters_in_cells_are_escaped() {
        let mut table = Table::new(&["NOTE"]);
        table.row(vec![Cell::text("a\nb\u{1b}[2J")]);
        assert_eq!(table.render(false), "NOTE\na\\nb\\u{1b}[2J");
    }

    #[test]
    fn facts_are_aligned() {
        let text = facts(&[("a", "1".into()), ("empty", String::new()), ("long", "2".into())]);
        assert_eq!(text, "a     1\nlong  2");
    }
}
