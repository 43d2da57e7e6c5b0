//! State of the page. This module does no I/O: it receives poll results, events and keys, and returns
//! requests.

use std::collections::VecDeque;

use cli_base::output::RenderOptions;
use explain::names::Names;
use schemas::names::{CellId, ProcessGuid};
use schemas::query::{CellRow, InstanceRow, InstanceState, LrpRow, ReadEntry, RecordedEntry, StatusRow};
use schemas::stamp::Actor;
use schemas::{Position, Timestamp};

use super::rates::Rates;
use super::selection::Selection;
use crate::keys::{Key, Move, movement};
use crate::live::{event_lines, sort_by_severity};

/// Maximum number of retained events.
const MAX_EVENTS: usize = 500;

/// Result of a poll.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PollResult {
    pub(super) at: Timestamp,
    pub(super) position: Position,
    pub(super) status: StatusRow,
    pub(super) cells: Vec<CellRow>,
    pub(super) lrps: Vec<LrpRow>,
    /// `true` if the cluster has more processes than this result lists.
    pub(super) more: bool,
    /// The opened item and its instances, if an item is open.
    pub(super) instances: Option<(OpenedItem, Vec<InstanceRow>)>,
}

/// An input of the page.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Key(Key),
    Polled(Box<PollResult>),
    /// The cluster does not answer.
    Unreachable {
        at: Timestamp,
        error: String,
    },
    /// A log entry was recorded.
    Recorded(Box<RecordedEntry>, RenderOptions),
    /// A requested explanation.
    Explained {
        title: String,
        text: String,
    },
}

/// A request of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Quit,
    /// Explain the state of this instance.
    Why(String),
    /// Start to poll the instances of this item. `None` stops polling instances.
    Instances(Option<OpenedItem>),
}

/// A part of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    Cells,
    #[default]
    Processes,
    Events,
}

/// An item whose instances are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenedItem {
    Process(ProcessGuid),
    Cell(CellId),
}

/// A text that covers the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    pub(super) scrolled: usize,
    /// Maximum of `scrolled` in the last rendering.
    pub(super) last: usize,
}

/// A displayed event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventLine {
    pub(super) position: Position,
    pub(super) line: String,
}

/// State of the page.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) seen: Option<Box<PollResult>>,
    /// Start of the outage, and the last error.
    pub(super) outage: Option<(Timestamp, String)>,
    pub(super) events: VecDeque<EventLine>,
    pub(super) rates: Rates,
    pub(super) pane: Pane,
    pub(super) opened: Option<OpenedItem>,
    /// Instances of the opened item. `None` until they are known.
    pub(super) instances: Option<Vec<InstanceRow>>,
    pub(super) text: Option<Text>,
    pub(super) help: bool,
    pub(super) filter: String,
    /// `true` while the user types the filter.
    pub(super) typing: bool,
    pub(super) cells: Selection,
    pub(super) processes: Selection,
    pub(super) rows: Selection,
    /// Selected event, counted backwards from the newest.
    pub(super) selected_event: Selection,
    /// Number of visible rows of the active list in the last rendering.
    pub(super) page: usize,
}

impl Model {
    /// Applies an input. Returns the resulting request, if there is one.
    pub(super) fn take(&mut self, input: Input) -> Option<Request> {
        match input {
            Input::Key(key) => return self.apply_key(key),
            Input::Polled(seen) => self.apply_poll(seen),
            Input::Unreachable { at, error } => {
                let since = self.outage.take().map_or(at, |(since, _)| since);
                self.outage = Some((since, error));
            }
            Input::Recorded(entry, look) => self.apply_entry(&entry, look),
            Input::Explained { title, text } => {
                self.text = Some(Text {
                    title,
                    lines: text.lines().map(str::to_owned).collect(),
                    scrolled: 0,
                    last: 0,
                });
            }
        }
        None
    }

    fn apply_poll(&mut self, mut seen: Box<PollResult>) {
        self.outage = None;
        self.rates.record(seen.at, seen.position);
        let bad = |row: &LrpRow| match () {
            () if row.crashed > 0 => 0,
            () if row.rollout_under_way().is_some() => 1,
            () if row.running < row.instances || !row.desired => 2,
            () => 3,
        };
        seen.lrps.sort_by(|a, b| bad(a).cmp(&bad(b)).then_with(|| a.process_guid.cmp(&b.process_guid)));
        if let Some((opened, mut rows)) = seen.instances.take()
            && self.opened.as_ref() == Some(&opened)
        {
            sort_by_severity(&mut rows, &mut []);
            self.instances = Some(rows);
        }
        self.seen = Some(seen);
        self.update_selections();
    }

    fn apply_entry(&mut self, entry: &RecordedEntry, look: RenderOptions) {
        if let ReadEntry::Known(known) = &entry.entry {
            let asked = |actor: &Actor| matches!(actor, Actor::Client { .. } | Actor::Operator(_));
            let commands = known.decisions.iter().filter(|decision| asked(&decision.actor)).count();
            self.rates.commands(entry.position, u64::try_from(commands).unwrap_or(u64::MAX));
        }
        let position = entry.position;
        let lines: Vec<String> = event_lines(entry, look);
        if self.selected_event.at > 0 {
            // The selection stays on its event when newer events arrive.
            self.selected_event.at += lines.iter().filter(|line| self.matches_filter(&[line])).count();
        }
        self.events.extend(lines.into_iter().map(|line| EventLine { position, line }));
        let extra = self.events.len().saturating_sub(MAX_EVENTS);
        self.events.drain(..extra);
    }

    /// Updates every selection after its list changed.
    fn update_selections(&mut self) {
        let (cells, processes, rows) = (self.cell_keys(), self.process_keys(), self.instance_keys());
        self.cells.update(&cells);
        self.processes.update(&processes);
        self.rows.update(&rows);
        self.selected_event.at = self.selected_event.at.min(self.shown_events().count().saturating_sub(1));
    }

    fn apply_key(&mut self, key: Key) -> Option<Request> {
        if key == Key::Interrupt {
            return Some(Request::Quit);
        }
        if let Key::Resized | Key::Control(_) = key {
            return None;
        }
        if self.typing {
            self.type_filter(key);
            return None;
        }
        if self.help {
            self.help = false;
            return None;
        }
        match (key, movement(key)) {
            (_, Some(moves)) => self.move_by(moves),
            (Key::Char('q'), _) if self.text.is_none() && self.opened.is_none() => {
                return Some(Request::Quit);
            }
            (Key::Char('q') | Key::Escape, _) => return self.back(),
            (Key::Char('?' | 'h'), _) => self.help = true,
            (Key::Char('/'), _) if self.text.is_none() => self.typing = true,
            (Key::Char('w'), _) => return self.why(),
            (Key::Enter, _) => return self.open_selected(),
            (Key::Tab, _) => self.switch_pane([Pane::Cells, Pane::Processes, Pane::Events]),
            (Key::BackTab, _) => self.switch_pane([Pane::Events, Pane::Processes, Pane::Cells]),
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, key: Key) {
        if let Key::Char(char) = key {
            self.filter.push(char);
        } else if key == Key::Backspace {
            self.filter.pop();
        } else if key == Key::Escape {
            self.filter.clear();
            self.typing = false;
        } else if key == Key::Enter {
            self.typing = false;
        }
        self.update_selections();
    }

    /// Activates the next pane in this order.
    fn switch_pane(&mut self, order: [Pane; 3]) {
        if self.opened.is_none() && self.text.is_none() {
            let at = order.iter().position(|pane| *pane == self.pane).unwrap_or(0);
            self.pane = order[(at + 1) % order.len()];
        }
    }

    /// Goes one step back: closes the text or the opened item, clears the filter, or quits.
    fn back(&mut self) -> Option<Request> {
        if self.text.take().is_some() {
            return None;
        }
        if self.opened.take().is_some() {
            self.instances = None;
            self.rows = Selection::default();
            return Some(Request::Instances(None));
        }
        if self.filter.is_empty() {
            return Some(Request::Quit);
        }
        self.filter.clear();
        self.update_selections();
        None
    }

    fn move_by(&mut self, by: Move) {
        let page = self.page.saturating_sub(1).max(1);
        if let Some(text) = &mut self.text {
            text.scrolled = by.target_row(text.scrolled, page, text.last).min(text.last);
            return;
        }
        if self.opened.is_some() {
            let keys = self.instance_keys();
            let to = by.target_row(self.rows.at, page, keys.len());
            return self.rows.select(&keys, to);
        }
        match self.pane {
            Pane::Cells => {
                let keys = self.cell_keys();
                let to = by.target_row(self.cells.at, page, keys.len());
                self.cells.select(&keys, to);
            }
            Pane::Processes => {
                let keys = self.process_keys();
                let to = by.target_row(self.processes.at, page, keys.len());
                self.processes.select(&keys, to);
            }
            Pane::Events => {
                // The newest event is at the bottom.
                let last = self.shown_events().count().saturating_sub(1);
                let down =
                    by.target_row(last.saturating_sub(self.selected_event.at), page, last + 1).min(last);
                self.selected_event.at = last - down;
            }
        }
    }

    fn open_selected(&mut self) -> Option<Request> {
        if self.text.is_some() {
            return None;
        }
        if self.opened.is_some() {
            return self.why();
        }
        let opened = match self.pane {
            Pane::Cells => {
                self.shown_cells().nth(self.cells.at).map(|row| OpenedItem::Cell(row.cell_id.clone()))
            }
            Pane::Processes => {
                let row = self.shown_processes().nth(self.processes.at);
                row.map(|row| OpenedItem::Process(row.process_guid.clone()))
            }
            Pane::Events => {
                let text = self.selected_event_line()?;
                let title = format!("position {}", text.position);
                let position = text.position;
                let lines = self.events.iter().filter(|one| one.position == position);
                let lines = lines.map(|one| one.line.clone()).collect();
                self.text = Some(Text { title, lines, scrolled: 0, last: 0 });
                return None;
            }
        };
        self.opened.clone_from(&opened);
        self.instances = None;
        self.rows = Selection::default();
        opened.map(|opened| Request::Instances(Some(opened)))
    }

    /// Requests an explanation of the selected instance. For a selected process, explains its worst instance,
    /// or its first instance if no instance has a problem.
    fn why(&self) -> Option<Request> {
        if self.text.is_some() {
            return None;
        }
        if self.opened.is_some() {
            return self.instance_keys().get(self.rows.at).cloned().map(Request::Why);
        }
        if self.pane != Pane::Processes {
            return None;
        }
        let row = self.shown_processes().nth(self.processes.at)?;
        let seen = self.seen.as_ref()?;
        let worst = seen.status.worst.iter().find(|one| one.process_guid == row.process_guid);
        let index = worst.map(|one| one.index).or_else(|| row.indices.iter().next())?;
        Some(Request::Why(format!("{}/{index}", row.process_guid)))
    }

    /// Returns `true` if one of the texts of a row contains the filter.
    fn matches_filter(&self, words: &[&str]) -> bool {
        let filter = self.filter.to_lowercase();
        words.iter().any(|word| word.to_lowercase().contains(&filter))
    }

    pub(super) fn shown_cells(&self) -> impl Iterator<Item = &CellRow> {
        let all = self.seen.iter().flat_map(|seen| &seen.cells);
        all.filter(|row| {
            self.matches_filter(&[row.cell_id.as_str(), row.presence.zone.as_str(), row.state.as_str()])
        })
    }

    pub(super) fn shown_processes(&self) -> impl Iterator<Item = &LrpRow> {
        let all = self.seen.iter().flat_map(|seen| &seen.lrps);
        all.filter(|row| self.matches_filter(&[row.process_guid.as_str(), row.domain.as_str()]))
    }

    /// Returns the instances of the opened item that pass the filter, with their display names.
    pub(super) fn shown_instances(&self) -> Vec<(String, &InstanceRow)> {
        let Some(rows) = &self.instances else { return vec![] };
        let names = Names::from_rows(rows);
        let state = |row: &InstanceRow| row.state.as_str();
        let cell = |row: &InstanceRow| row.cell_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let all = rows.iter().map(|row| (names.row_name(row), row));
        all.filter(|(name, row)| self.matches_filter(&[name, state(row), &cell(row)])).collect()
    }

    /// Returns the events that pass the filter, the oldest first.
    pub(super) fn shown_events(&self) -> impl DoubleEndedIterator<Item = &EventLine> {
        self.events.iter().filter(|one| self.matches_filter(&[&one.line]))
    }

    fn selected_event_line(&self) -> Option<&EventLine> {
        self.shown_events().rev().nth(self.selected_event.at)
    }

    fn cell_keys(&self) -> Vec<String> {
        self.shown_cells().map(|row| row.cell_id.to_string()).collect()
    }

    fn process_keys(&self) -> Vec<String> {
        self.shown_processes().map(|row| row.process_guid.to_string()).collect()
    }

    fn instance_keys(&self) -> Vec<String> {
        self.shown_instances().into_iter().map(|(name, _)| name).collect()
    }

    /// Returns the number of the cluster's instances in the given state.
    pub(super) fn instance_count(&self, state: InstanceState) -> u64 {
        let counts = self.seen.as_ref().map(|seen| &seen.status.cluster.instances);
        counts.and_then(|counts| counts.get(&state)).copied().unwrap_or_default()
    }
}
