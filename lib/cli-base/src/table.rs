//! Plain-text tables: columns without borders, cut or wrapped to the width of a terminal.

use text::words::one_line;
use unicode_width::UnicodeWidthChar;

/// Spaces between two columns.
const GAP: usize = 3;
/// Spaces between two columns of a table that would otherwise be too wide.
const NARROW_GAP: usize = 2;
/// Columns that are left out on a narrow terminal, the least important first.
const EXPENDABLE: [&str; 6] = ["ZONE", "ID", "ADDRESS", "DEFINITION", "DOMAIN", "CHANGED"];
/// Minimum width of the last column, which is usually a note. If it would be narrower, expendable columns are
/// left out.
const MIN_NOTE_WIDTH: usize = 40;
/// Minimum width of a column.
const MIN_COLUMN_WIDTH: usize = 3;

/// A table to render.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
    fit: Fit,
}

/// Treatment of a table that is wider than the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fit {
    /// The table is as wide as its content.
    #[default]
    Content,
    /// Expendable columns are left out, and long fields end with an ellipsis.
    Cut(usize),
    /// Long fields continue on the next line.
    Wrap(usize),
}

/// Content of one field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Text(String),
    /// A number, or text that is compared like a number. Right-aligned.
    Number(String),
    /// A state, coloured by its severity.
    State(String),
    /// No content, rendered as `-`.
    None,
}

impl Cell {
    /// Creates a cell with left-aligned text.
    pub fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    /// Creates a cell with a right-aligned number.
    pub fn number(number: impl ToString) -> Self {
        Self::Number(number.to_string())
    }

    /// Creates a cell with a state, coloured by its severity.
    pub fn state(state: impl ToString) -> Self {
        Self::State(state.to_string())
    }

    /// Creates a text field. `None` creates an empty field.
    pub fn optional(text: Option<impl ToString>) -> Self {
        text.map_or(Self::None, Self::text)
    }

    fn as_text(&self) -> String {
        match self {
            Self::Text(text) | Self::Number(text) | Self::State(text) => one_line(text),
            Self::None => "-".to_owned(),
        }
    }

    /// Returns the code of the field's colour. `None` if the field has no colour.
    fn colour(&self) -> Option<&'static str> {
        match self {
            Self::State(state) => colour_of(state),
            Self::Text(_) | Self::Number(_) | Self::None => None,
        }
    }
}

/// Returns the code of the colour of a state: green is good, yellow is in progress, red is bad. Without
/// colour, the word of the state carries the same information.
fn colour_of(state: &str) -> Option<&'static str> {
    match state.split(' ').next().unwrap_or_default() {
        "RUNNING" | "PRESENT" | "SUCCEEDED" | "COMPLETE" | "FRESH" | "HEALTHY" | "LEADS" | "completed"
        | "ok" => Some("1;32"),
        "CLAIMED" | "UNCLAIMED" | "PENDING" | "RESOLVING" | "EVACUATING" | "STOPPING" | "BLOCKED"
        | "SILENT" | "DEGRADED" | "updating" | "rollback_started" | "warning" => Some("1;33"),
        "CRASHED" | "ABSENT" | "FAILED" | "UNHEALTHY" | "NOT" | "paused" | "rollback_paused"
        | "rolled_back" | "failed" => Some("1;31"),
        _ => None,
    }
}

/// Formats a state in the colour that tables use for the state.
#[must_use]
pub fn painted_state(state: &str, colour: bool) -> String {
    paint(&one_line(state), colour_of(state).filter(|_| colour))
}

fn paint(text: &str, code: Option<&str>) -> String {
    code.map_or_else(|| text.to_owned(), |code| format!("\u{1b}[{code}m{text}\u{1b}[0m"))
}

impl Table {
    /// Creates a table with these columns.
    pub fn new(headers: &[impl ToString]) -> Self {
        Self { headers: headers.iter().map(ToString::to_string).collect(), rows: vec![], fit: Fit::Content }
    }

    /// Creates a table with a row for each item.
    pub fn with_rows<T, const N: usize>(
        headers: [&str; N],
        items: impl IntoIterator<Item = T>,
        mut cells: impl FnMut(T) -> [Cell; N],
    ) -> Self {
        let mut table = Self::new(&headers);
        items.into_iter().for_each(|item| table.row(cells(item).into()));
        table
    }

    /// Adds a row with one cell per column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Limits the width: expendable columns are left out, and long fields end with an ellipsis.
    #[must_use]
    pub fn cut(self, width: usize) -> Self {
        Self { fit: Fit::Cut(width), ..self }
    }

    /// Limits the width: long fields continue on the next line.
    #[must_use]
    pub fn wrap(self, width: usize) -> Self {
        Self { fit: Fit::Wrap(width), ..self }
    }

    /// Returns the width of the table with its whole content.
    #[must_use]
    pub fn content_width(&self) -> usize {
        Columns::of_content(&column_widths(&self.lines(false))).total()
    }

    /// Returns the header and the rows as text.
    fn lines(&self, colour: bool) -> Vec<Vec<Field>> {
        let field = |text: String, code: Option<&'static str>| Field {
            width: display_width(&text),
            text,
            code: code.filter(|_| colour),
        };
        let header = self.headers.iter().map(|name| field(name.clone(), Some("1"))).collect();
        let rows =
            self.rows.iter().map(|row| row.iter().map(|cell| field(cell.as_text(), cell.colour())).collect());
        std::iter::once(header).chain(rows).collect()
    }

    /// Renders the table, without a line end after the last line.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let lines = self.lines(colour);
        let natural = column_widths(&lines);
        let columns = match self.fit {
            Fit::Content => Columns::of_content(&natural),
            Fit::Cut(width) => Columns::cut(&self.headers, &natural, width),
            Fit::Wrap(width) => Columns::wrapped(&natural, width),
        };
        let is_number = |at: usize| self.rows.iter().any(|row| matches!(row.get(at), Some(Cell::Number(_))));
        let numbers: Vec<bool> = (0..self.headers.len()).map(is_number).collect();
        let rendered = lines.into_iter().flat_map(|line| self.wrapped_line(line, &columns, &numbers));
        rendered.collect::<Vec<_>>().join("\n")
    }

    /// Returns the lines of a row: as many as its longest wrapped field has, at least one.
    fn wrapped_line(&self, fields: Vec<Field>, columns: &Columns, numbers: &[bool]) -> Vec<String> {
        let mut lines: Vec<(String, usize)> = vec![];
        let mut start = 0;
        for (at, Field { text, width: natural, code }) in fields.into_iter().enumerate() {
            let Some(width) = columns.widths.get(at).copied().flatten() else { continue };
            let parts = match self.fit {
                _ if natural <= width => vec![text],
                Fit::Content | Fit::Cut(_) => vec![cut_with_ellipsis(&text, width)],
                Fit::Wrap(_) => wrap(&text, width),
            };
            lines.resize(lines.len().max(parts.len()), Default::default());
            for ((line, end), part) in lines.iter_mut().zip(parts) {
                let part_width = display_width(&part);
                let indent = if numbers[at] { width.saturating_sub(part_width) } else { 0 };
                line.push_str(&" ".repeat((start + indent).saturating_sub(*end)));
                line.push_str(&paint(&part, code));
                *end = start + indent + part_width;
            }
            start += width + columns.gap;
        }
        lines.into_iter().map(|(line, _)| line.trim_end().to_owned()).collect()
    }
}

/// A field of a table as text.
struct Field {
    text: String,
    width: usize,
    /// Code of the text's colour. `None` if the text has no colour.
    code: Option<&'static str>,
}

fn column_widths(lines: &[Vec<Field>]) -> Vec<usize> {
    let columns = lines.first().map_or(0, Vec::len);
    let widest =
        |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|field: &Field| field.width).max();
    (0..columns).map(|at| widest(at).unwrap_or_default()).collect()
}

/// Widths of the columns of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// `None` if the column is left out.
    pub widths: Vec<Option<usize>>,
    /// Spaces between two columns.
    pub gap: usize,
}

impl Columns {
    /// Returns columns that are as wide as their content.
    fn of_content(natural: &[usize]) -> Self {
        Self { widths: natural.iter().copied().map(Some).collect(), gap: GAP }
    }

    /// Fits columns into a width: first narrows the gaps, then leaves out expendable columns, then shortens
    /// the widest columns.
    pub fn cut(headers: &[impl AsRef<str>], natural: &[usize], width: usize) -> Self {
        let mut columns = Self::of_content(natural);
        if columns.total() > width {
            columns.gap = NARROW_GAP;
        }
        let note = natural.last().copied().unwrap_or_default();
        let spare = note.saturating_sub(MIN_NOTE_WIDTH);
        for name in EXPENDABLE {
            let at = headers.iter().position(|header| header.as_ref() == name);
            if let Some(at) = at.filter(|_| columns.total() > width + spare) {
                columns.widths[at] = None;
            }
        }
        if columns.total() > width + spare {
            columns.gap = 1;
        }
        columns.shorten(width);
        columns
    }

    /// Fits columns into a width: first narrows the gaps, then limits the last column to a quarter of the width,
    /// then shortens the widest columns.
    fn wrapped(natural: &[usize], width: usize) -> Self {
        let mut columns = Self::of_content(natural);
        if columns.total() > width {
            columns.gap = NARROW_GAP;
            columns.widths.last_mut().into_iter().flatten().for_each(|last| *last = (*last).min(width / 4));
        }
        columns.shorten(width);
        columns
    }

    fn total(&self) -> usize {
        let shown = self.widths.iter().flatten();
        shown.clone().sum::<usize>() + self.gap * shown.count().saturating_sub(1)
    }

    /// Shortens the widest columns.
    fn shorten(&mut self, width: usize) {
        while self.total() > width {
            let widest = self.widths.iter_mut().flatten().max();
            let Some(widest) = widest.filter(|widest| **widest > MIN_COLUMN_WIDTH) else { return };
            *widest -= 1;
        }
    }
}

/// Returns the characters of a line with their widths on a terminal. Colour codes have no width.
fn char_widths(line: &str) -> impl Iterator<Item = (char, usize)> {
    let mut in_colour = false;
    line.chars().map(move |c| {
        let counts = !in_colour && c != '\u{1b}';
        in_colour = if in_colour { c != 'm' } else { c == '\u{1b}' };
        (c, if counts { c.width().unwrap_or_default() } else { 0 })
    })
}

/// Returns the number of terminal columns that a line occupies.
pub(crate) fn display_width(line: &str) -> usize {
    if line.is_ascii() && !line.contains('\u{1b}') {
        return line.len();
    }
    char_widths(line).map(|(_, width)| width).sum()
}

/// Cuts a line to a width. A cut line ends with an ellipsis.
#[must_use]
pub fn cut(line: &str, width: usize) -> String {
    if display_width(line) <= width { line.to_owned() } else { cut_with_ellipsis(line, width) }
}

/// Cuts a line, even if it fits. The cut line fills the width together with the ellipsis at its end.
#[must_use]
pub fn cut_with_ellipsis(line: &str, width: usize) -> String {
    let (mut text, mut shown) = (String::new(), 0);
    for (c, columns) in char_widths(line) {
        shown += columns;
        if shown >= width && columns > 0 {
            break;
        }
        text.push(c);
    }
    if width > 0 {
        text.push('…');
    }
    if text.contains('\u{1b}') {
        text.push_str("\u{1b}[0m");
    }
    text
}

/// Wraps a line to a width, between words where possible. Keeps the indentation of the first line.
#[must_use]
pub fn wrap(line: &str, width: usize) -> Vec<String> {
    let (mut lines, mut text, mut shown) = (vec![], String::new(), 0);
    for (at, word) in line.split(' ').enumerate() {
        if at > 0 && shown + 1 + display_width(word) > width && !text.trim().is_empty() {
            lines.push(std::mem::take(&mut text));
            shown = 0;
        } else if at > 0 {
            text.push(' ');
            shown += 1;
        }
        for (c, columns) in char_widths(word) {
            if shown + columns > width && shown > 0 {
                lines.push(std::mem::take(&mut text));
                shown = 0;
            }
            text.push(c);
            shown += columns;
        }
    }
    lines.push(text);
    lines
}

/// Formats names and values, one pair per line, with aligned values. Empty values are left out.
#[must_use]
pub fn facts(facts: &[(&str, String)]) -> String {
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

    /// Returns the table of instances of a process after an update.
    fn instances() -> Table {
        let headers = ["INSTANCE", "DEFINITION", "ID", "STATE", "CELL", "ADDRESS", "CRASHES", "AGE", "NOTE"];
        let row = |texts: [&str; 9]| texts.map(Cell::text).to_vec();
        let mut table = Table::new(&headers);
        table.row(row([
            "crasher/0",
            "crasher",
            "-",
            "CRASHED",
            "-",
            "-",
            "4",
            "12s",
            "Exited with status 3; restarts in 48s",
        ]));
        table.row(row([
            "web/0",
            "web-restart-12",
            "6a66b158",
            "RUNNING",
            "c3",
            "127.0.0.1:24436",
            "0",
            "9s",
            "-",
        ]));
        table
    }

    #[test]
    fn narrow_table_leaves_out_columns_and_ends_long_fields_with_an_ellipsis() {
        let shown = |width| instances().cut(width).render(false);
        assert_eq!(shown(200), instances().render(false));
        assert_eq!([100, 80, 60, 40].map(shown).join("\n"), include_str!("narrow_tables.txt").trim_end());
        for width in 0..150 {
            let lines = shown(width);
            let widest = lines.lines().map(display_width).max();
            assert!(width < 30 || widest <= Some(width), "{width}: {lines}");
        }
    }

    #[test]
    fn wrapped_table_continues_long_fields_on_the_next_line() {
        let mut table = Table::new(&["POSITION", "WHAT", "WHO"]);
        let what = "web/0: crashed on c1: Exited with status 3";
        table.row(vec![Cell::number(9), Cell::text(what), Cell::text("cell c1")]);
        assert_eq!(table.clone().wrap(80).render(false), table.render(false));
        assert_eq!(
            table.wrap(40).render(false),
            "POSITION  WHAT                   WHO\n       \
             9  web/0: crashed on c1:  cell c1\n          \
             Exited with status 3"
        );
        assert_eq!(wrap("  abcdef gh", 6), ["  abcd", "ef gh"]);
        assert_eq!(wrap("", 6), [""]);
    }

    #[test]
    fn cut_counts_columns_of_the_terminal_and_ignores_colours() {
        assert_eq!(cut("\u{1b}[32mRUNNING on c1\u{1b}[0m", 7), "\u{1b}[32mRUNNIN…\u{1b}[0m");
        assert_eq!((cut("abc", 3), cut("abc", 2), cut("abc", 0)), ("abc".into(), "a…".into(), String::new()));
        assert_eq!((cut("世界", 4), cut("世界", 3)), ("世界".into(), "世…".into()));
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
