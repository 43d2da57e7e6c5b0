//! Rendering of the page. This module only reads a model and draws widgets.

use cli_base::output::RenderOptions;
use cli_base::table::{Columns, cut, cut_with_ellipsis, wrap};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, TableState, Wrap};
use schemas::names::CellId;
use schemas::query::{CellRow, Health, InstanceRow, InstanceState, LrpRow};
use text::words::{age, count, duration_text, mebibytes, one_line, short_id};

use super::model::{Model, OpenedItem, Pane};
use crate::rows::{note, state};

/// Minimum size of the terminal: columns and lines.
const MIN_SIZE: (u16, u16) = (40, 10);
/// Number of header lines.
const HEADER_LINES: u16 = 4;
/// Minimum width of the terminal for absolute numbers and additional columns.
const WIDE_COLUMNS: u16 = 110;
/// Minimum height of the page below the header for showing all panes. On a lower page, only the active pane
/// is shown.
const MIN_PAGE_HEIGHT: u16 = 12;
/// Lines of a pane that are not rows: its frame and the header of its table.
const PANE_LINES: u16 = 3;
const HELP: &str = "\
up, down, j, k      move by one row
PageUp, PageDown    move by one page
g, G                move to the first or the last row
Tab                 next pane
Enter               open the row; explain an instance
w                   explain why an instance is where it is
/                   filter rows: Enter applies, Esc clears
Esc, q              go back; quit from the main page
Ctrl-C              quit";

/// Draws the page.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, look: RenderOptions) {
    let area = frame.area();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        let text = format!("the terminal is too small: expected at least {} by {}", MIN_SIZE.0, MIN_SIZE.1);
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    let rows = [Constraint::Length(HEADER_LINES), Constraint::Min(0), Constraint::Length(1)];
    let [head, body, foot] = Layout::vertical(rows).areas(area);
    let lines = header(model, look).into_iter().map(|line| cut_line(line, head.width.into()));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), head);
    if model.text.is_some() {
        text(frame, model, body);
    } else {
        page(frame, model, body, look);
    }
    frame.render_widget(Paragraph::new(cut_line(footer(model), foot.width.into())), foot);
    if model.help {
        help(frame, Rect { height: area.height - foot.height, ..area });
    }
}

/// Cuts a line to a width. A cut line ends with an ellipsis.
fn cut_line(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let (mut shown, mut left) = (vec![], width);
    for span in line.spans {
        let text = if span.width() < left {
            span.content.to_string()
        } else {
            cut_with_ellipsis(&span.content, left)
        };
        left = left.saturating_sub(span.width());
        shown.push(Span::styled(text, span.style));
    }
    Line::from(shown).style(line.style)
}

/// Returns the header: leaders, position of the log, rates and the first problem.
fn header(model: &Model, look: RenderOptions) -> Vec<Line<'static>> {
    let bad = colour_style(look, Color::Red).add_modifier(Modifier::BOLD);
    let trouble = model.outage.as_ref().map(|(since, why)| {
        let text =
            format!("no answer from the cluster for {}: {}; retrying", age(look.now, *since), one_line(why));
        Line::styled(text, bad)
    });
    let Some(seen) = &model.seen else {
        let text = trouble.unwrap_or_else(|| Line::raw("querying the cluster ..."));
        return vec![Line::styled("muster top", Modifier::BOLD), text];
    };
    let cluster = &seen.status.cluster;
    let leads = |leader: Option<&schemas::cluster::Leader>| {
        leader.map_or_else(|| "none".to_owned(), |leader| short_id(&leader.id, look.full_ids))
    };
    let lag = cluster.services.rows.iter().map(|row| row.lag).max().unwrap_or(0);
    let health = match seen.status.health {
        Health::Healthy => colour_style(look, Color::Green),
        Health::Degraded => colour_style(look, Color::Yellow),
        Health::Unhealthy => colour_style(look, Color::Red),
    };
    let first = Line::from(vec![
        Span::styled("muster top", Modifier::BOLD),
        Span::raw(format!("  cluster {}  ", short_id(&cluster.cluster_id, look.full_ids))),
        Span::styled(seen.status.health.as_str().to_owned(), health.add_modifier(Modifier::BOLD)),
        Span::raw(format!(
            "  bbs {}  auctioneer {}",
            leads(cluster.bbs.as_ref()),
            leads(cluster.auctioneer.as_ref())
        )),
    ]);
    let rates = model.rates.per_second().map_or_else(String::new, |(entries, commands)| {
        format!("  {entries:.1} entries/s  {commands:.1} commands/s")
    });
    let second = Line::raw(format!("position {}  lag {lag}{rates}", seen.position));
    let third = Line::raw(format!(
        "{} of {} running, {} crashed, {} unplaced",
        model.instance_count(InstanceState::Running),
        count(seen.status.instances_desired, "instance"),
        model.instance_count(InstanceState::Crashed),
        seen.status.instances_unplaced,
    ));
    let finding = || {
        let first = seen.status.findings.first()?;
        let more = seen.status.findings.len() - 1;
        let more = if more > 0 { format!(" (and {more} more: muster status)") } else { String::new() };
        Some(Line::styled(format!("{}{more}", one_line(&first.message)), colour_style(look, Color::Yellow)))
    };
    vec![first, second, third, trouble.or_else(finding).unwrap_or_default()]
}

fn page(frame: &mut Frame<'_>, model: &mut Model, area: Rect, look: RenderOptions) {
    let is_low = area.height < MIN_PAGE_HEIGHT;
    let events = if is_low { 0 } else { (area.height / 4).max(4) };
    if let Some(opened) = model.opened.clone() {
        let [above, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(events)]).areas(area);
        instances(frame, model, &opened, above, look);
        return draw_events(frame, model, below, false);
    }
    if is_low {
        return match model.pane {
            Pane::Cells => cells(frame, model, area, look),
            Pane::Processes => processes(frame, model, area, look),
            Pane::Events => draw_events(frame, model, area, true),
        };
    }
    // The events take the lines that the tables do not need.
    let height = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(PANE_LINES);
    let (known_cells, known_processes) =
        model.seen.as_ref().map_or((0, 0), |seen| (seen.cells.len(), seen.lrps.len()));
    let cells_height = height(known_cells).clamp(4, (area.height / 3).max(4));
    let processes_height = height(known_processes).min(area.height - cells_height - events).max(4);
    let rows = [Constraint::Length(cells_height), Constraint::Length(processes_height), Constraint::Min(0)];
    let [top, middle, bottom] = Layout::vertical(rows).areas(area);
    cells(frame, model, top, look);
    processes(frame, model, middle, look);
    draw_events(frame, model, bottom, model.pane == Pane::Events);
}

/// Cells of a table row.
type Cells = Vec<Span<'static>>;

/// A framed table with an optional selected row.
struct ListView {
    title: String,
    head: Vec<&'static str>,
    rows: Vec<Cells>,
    selected: Option<usize>,
}

impl ListView {
    /// Draws the table. Returns the number of rows that fit.
    fn draw(self, frame: &mut Frame<'_>, area: Rect) -> usize {
        let natural = self.column_widths();
        let Self { title, head, rows, selected } = self;
        let Columns { widths, gap } = Columns::cut(&head, &natural, area.width.saturating_sub(2).into());
        let row =
            |cells: Cells| {
                let shown = cells.into_iter().zip(&widths);
                Row::new(shown.filter_map(|(cell, width)| {
                    Some(Span::styled(cut(&cell.content, (*width)?), cell.style))
                }))
            };
        let table = Table::new(
            rows.into_iter().map(row),
            widths.iter().flatten().map(|width| Constraint::Length(length(*width))),
        )
        .header(row(head.into_iter().map(Span::raw).collect()).style(Modifier::BOLD))
        .column_spacing(length(gap))
        .block(frame_block(title, area, selected.is_some()))
        .row_highlight_style(Modifier::REVERSED);
        let mut at = TableState::new().with_selected(selected);
        frame.render_stateful_widget(table, area, &mut at);
        usize::from(area.height.saturating_sub(PANE_LINES))
    }

    fn column_widths(&self) -> Vec<usize> {
        let widest = |(at, name): (usize, &&str)| {
            self.rows.iter().filter_map(|row| row.get(at)).map(Span::width).fold(name.len(), usize::max)
        };
        self.head.iter().enumerate().map(widest).collect()
    }
}

fn length(columns: usize) -> u16 {
    u16::try_from(columns).unwrap_or(u16::MAX)
}

fn frame_block(title: String, area: Rect, active: bool) -> Block<'static> {
    let title = cut(&title, usize::from(area.width).saturating_sub(4));
    let style = if active { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
    Block::bordered().title(Span::styled(format!(" {title} "), style))
}

fn cells(frame: &mut Frame<'_>, model: &mut Model, area: Rect, look: RenderOptions) {
    let wide = area.width >= WIDE_COLUMNS;
    let bar_width = match area.width {
        0..60 => 0,
        60..80 => 10,
        80..WIDE_COLUMNS => 15,
        WIDE_COLUMNS.. => 20,
    };
    let rows: Vec<Cells> = model.shown_cells().map(|row| cell(row, bar_width, wide, look)).collect();
    let active = model.pane == Pane::Cells;
    let chosen = active.then_some(model.cells.at).filter(|_| !rows.is_empty());
    let title = format!("cells: {}", rows.len());
    let mut head = vec!["CELL", "ZONE", "STATE", "MEMORY", "DISK", "CONTAINERS"];
    if wide {
        head.extend(["INSTANCES", "TASKS", "HEARTBEAT"]);
    }
    let page = ListView { title, head, rows, selected: chosen }.draw(frame, area);
    if active {
        model.page = page;
    }
}

fn cell(row: &CellRow, bar_width: usize, wide: bool, look: RenderOptions) -> Cells {
    let (used, total) = (row.used, row.presence.total);
    let shown = |used: u64, total: u64, numbers: String| {
        let numbers = if wide { numbers } else { format!("{}%", percent(used, total)) };
        let bar = bar(used, total, bar_width.saturating_sub(numbers.chars().count() + 1));
        Span::styled(format!("{bar} {numbers}").trim_start().to_owned(), fill_style(used, total, look))
    };
    let of = |used: u64, total: u64| format!("{}/{}", mebibytes(used), mebibytes(total));
    let said = row.state.as_str();
    let mut columns = vec![
        Span::raw(row.cell_id.to_string()),
        Span::raw(row.presence.zone.to_string()),
        Span::styled(
            if row.cordoned { format!("{said}!") } else { said.to_owned() },
            state_style(said, look),
        ),
        shown(used.memory_mb, total.memory_mb, of(used.memory_mb, total.memory_mb)),
        shown(used.disk_mb, total.disk_mb, of(used.disk_mb, total.disk_mb)),
        shown(
            used.containers.into(),
            total.containers.into(),
            format!("{}/{}", used.containers, total.containers),
        ),
    ];
    if wide {
        let heard = row.heartbeat_ms_ago.filter(|_| row.absent_reason.is_none());
        let heard = heard.map(|ago| duration_text(std::time::Duration::from_millis(ago - ago % 1_000)));
        columns.extend(
            [row.instances.to_string(), row.tasks.to_string(), heard.unwrap_or_else(|| "-".to_owned())]
                .map(Span::raw),
        );
    }
    columns
}

fn processes(frame: &mut Frame<'_>, model: &mut Model, area: Rect, look: RenderOptions) {
    let rows: Vec<Cells> = model.shown_processes().map(|row| process(row, look)).collect();
    let active = model.pane == Pane::Processes;
    let chosen = active.then_some(model.processes.at).filter(|_| !rows.is_empty());
    let known = model.seen.as_ref().map_or(0, |seen| seen.lrps.len());
    let more = if model.seen.as_ref().is_some_and(|seen| seen.more) { " of more" } else { "" };
    let title = if rows.len() == known {
        format!("processes: {known}{more}")
    } else {
        format!("processes: {} of {known}{more}", rows.len())
    };
    let head =
        vec!["PROCESS", "DOMAIN", "DESIRED", "RUNNING", "START", "WAIT", "CRASHED", "ROLLOUT", "CHANGED"];
    let page = ListView { title, head, rows, selected: chosen }.draw(frame, area);
    if active {
        model.page = page;
    }
}

fn process(row: &LrpRow, look: RenderOptions) -> Cells {
    let rollout = match row.rollout_under_way() {
        _ if !row.desired => "being deleted".to_owned(),
        Some(rollout) => format!("{}/{} {}", rollout.replaced, rollout.total, rollout.status),
        None => String::new(),
    };
    let number = |count: u32, bad: bool, colour: Color| {
        Span::styled(count.to_string(), if bad { colour_style(look, colour) } else { Style::new() })
    };
    vec![
        Span::raw(row.process_guid.to_string()),
        Span::raw(row.domain.to_string()),
        Span::raw(row.instances.to_string()),
        number(row.running, row.running < row.instances, Color::Yellow),
        number(row.claimed, false, Color::Yellow),
        number(row.unclaimed, row.unclaimed > 0, Color::Yellow),
        number(row.crashed, row.crashed > 0, Color::Red),
        Span::raw(rollout),
        Span::raw(age(look.now, row.changed_at)),
    ]
}

fn instances(frame: &mut Frame<'_>, model: &mut Model, opened: &OpenedItem, area: Rect, look: RenderOptions) {
    let what = match opened {
        OpenedItem::Process(guid) => format!("process {guid}"),
        OpenedItem::Cell(id) => format!("cell {id}"),
    };
    let shown = model.shown_instances();
    let title = match &model.instances {
        None => format!("{what}: loading ..."),
        Some(_) => format!("{what}: {}", count(u64::try_from(shown.len()).unwrap_or(u64::MAX), "instance")),
    };
    let rows: Vec<Cells> = shown.iter().map(|(name, row)| instance(name, row, look)).collect();
    let chosen = (!rows.is_empty()).then_some(model.rows.at);
    let head = vec!["INSTANCE", "STATE", "CELL", "CRASHES", "AGE", "NOTE"];
    model.page = ListView { title, head, rows, selected: chosen }.draw(frame, area);
}

fn instance(name: &str, row: &InstanceRow, look: RenderOptions) -> Cells {
    vec![
        Span::raw(name.to_owned()),
        Span::styled(state(row), state_style(row.state.as_str(), look)),
        Span::raw(row.cell_id.as_ref().map_or("-", CellId::as_str).to_owned()),
        Span::raw(row.crash_count.to_string()),
        Span::raw(age(look.now, row.since)),
        Span::raw(note(row, look).map(|note| one_line(&note)).unwrap_or_default()),
    ]
}

/// Draws the latest events. The newest event is at the bottom.
fn draw_events(frame: &mut Frame<'_>, model: &mut Model, area: Rect, active: bool) {
    let room = usize::from(area.height.saturating_sub(2));
    let width = usize::from(area.width.saturating_sub(2));
    let shown = model.shown_events().count();
    let chosen = model.selected_event.at.min(shown.saturating_sub(1));
    // The selected event always stays visible. The newest events are also visible if they fit.
    let skipped = if active { (chosen + 1).saturating_sub(room) } else { 0 };
    let mut lines: Vec<Line<'_>> = model
        .shown_events()
        .rev()
        .enumerate()
        .skip(skipped)
        .take(room)
        .map(|(at, one)| {
            let style = if active && at == chosen { Modifier::REVERSED } else { Modifier::empty() };
            Line::styled(cut(&one_line(&one.line), width), style)
        })
        .collect();
    lines.reverse();
    let block = frame_block("events".to_owned(), area, active);
    frame.render_widget(Paragraph::new(lines).block(block), area);
    if active {
        model.page = room;
    }
}

fn text(frame: &mut Frame<'_>, model: &mut Model, area: Rect) {
    let Some(text) = &mut model.text else { return };
    let width = usize::from(area.width.saturating_sub(2));
    let wrapped: Vec<String> = text.lines.iter().flat_map(|line| wrap(line, width)).collect();
    let room = usize::from(area.height.saturating_sub(2));
    text.last = wrapped.len().saturating_sub(room);
    text.scrolled = text.scrolled.min(text.last);
    let lines: Vec<Line<'_>> = wrapped.into_iter().skip(text.scrolled).take(room).map(Line::raw).collect();
    frame.render_widget(Paragraph::new(lines).block(frame_block(text.title.clone(), area, true)), area);
    model.page = room;
}

fn footer(model: &Model) -> Line<'static> {
    if model.typing {
        return Line::raw(format!("/{}_   Enter applies, Esc clears", model.filter));
    }
    let keys = if model.text.is_some() {
        "q back  Esc back  arrows scroll"
    } else if model.opened.is_some() {
        "q back  ? help  arrows move  Enter or w why  / filter"
    } else {
        "q quit  ? help  arrows move  Tab next pane  Enter open  w why  / filter"
    };
    let filter = if model.filter.is_empty() { String::new() } else { format!("filter {:?}  ", model.filter) };
    Line::styled(format!("{filter}{keys}"), Modifier::DIM)
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let width = area.width.min(90);
    let lines: Vec<Line<'_>> =
        HELP.lines().flat_map(|line| wrap(line, width.saturating_sub(2).into())).map(Line::raw).collect();
    let height = area.height.min(length(lines.len() + 2));
    let over =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, over);
    frame.render_widget(Paragraph::new(lines).block(frame_block("keys".to_owned(), over, true)), over);
}

/// Renders a fill level as a bar of the given width.
fn bar(used: u64, total: u64, width: usize) -> String {
    let full = usize::try_from(percent(used, total)).unwrap_or(100).min(100) * width / 100;
    // At least 1% shows at least one block.
    let full = if percent(used, total) > 0 { full.max(1).min(width) } else { full };
    format!("{}{}", "█".repeat(full), "·".repeat(width - full))
}

const fn percent(used: u64, total: u64) -> u64 {
    match used.saturating_mul(100).checked_div(total) {
        Some(percent) => percent,
        None => 0,
    }
}

fn fill_style(used: u64, total: u64, look: RenderOptions) -> Style {
    match percent(used, total) {
        0..80 => colour_style(look, Color::Green),
        80..95 => colour_style(look, Color::Yellow),
        _ => colour_style(look, Color::Red),
    }
}

/// Returns the style of a state. The colour repeats the information in the word of the state.
fn state_style(state: &str, look: RenderOptions) -> Style {
    match state {
        "RUNNING" | "PRESENT" => colour_style(look, Color::Green),
        "CRASHED" | "ABSENT" | "UNHEALTHY" => colour_style(look, Color::Red),
        _ => colour_style(look, Color::Yellow),
    }
}

/// Returns a style in this colour, or a plain style if colours are off.
const fn colour_style(look: RenderOptions, colour: Color) -> Style {
    if look.colour { Style::new().fg(colour) } else { Style::new() }
}
