//! Live view of a local cluster: instances, tasks and recent events. The functions are pure: they take rows,
//! events and the time, and return lines.

use std::collections::VecDeque;

use cli_base::output::RenderOptions;
use cli_base::table::{cut, wrap};
use client::instance_key;
use explain::monitors::MonitorFailure;
use schemas::query::{InstanceRow, InstanceState, ReadEntry, RecordedEntry, TaskRow, TaskState};
use text::describe::sentences;
use text::words::{one_line, time_of_day};

use super::keys::Move;
use super::rows;

/// Maximum number of retained events.
pub(crate) const MAX_EVENTS: usize = 64;
/// Number of event lines that tables leave free, if the terminal is high enough.
const MIN_EVENT_LINES: usize = 4;
/// Minimum number of table lines on a small terminal.
const MIN_TABLE_LINES: usize = 3;
/// Minimum height of a terminal that shows the heading.
const MIN_HEADING_HEIGHT: usize = 16;

/// State of the live view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Problems that keep the whole cluster from working. They are shown first and never shortened.
    pub(crate) problems: Vec<String>,
    /// Lines above the title. They do not scroll, and are left out on a low terminal.
    pub(crate) heading: Vec<String>,
    /// Line above the tables.
    pub(crate) title: String,
    pub(crate) instances: Vec<InstanceRow>,
    /// Failures reported by the monitors of starting instances.
    pub(crate) complaints: Vec<MonitorFailure>,
    pub(crate) tasks: Vec<TaskRow>,
    /// Recent events, the newest last.
    pub(crate) events: VecDeque<String>,
    /// `true` if the terminal accepts key input.
    pub(crate) has_keys: bool,
    /// Number of table lines scrolled past.
    scrolled: usize,
    /// Number of visible table lines. `last` is the greatest valid value of `scrolled`.
    page: usize,
    last: usize,
}

/// Sorts by severity: failures, followed by work without a cell, followed by the rest. Each group is sorted
/// by name.
pub(crate) fn sort_by_severity(instances: &mut [InstanceRow], tasks: &mut [TaskRow]) {
    let bad = |row: &InstanceRow| match row.state {
        InstanceState::Crashed => 0,
        InstanceState::Unclaimed => 1,
        InstanceState::Claimed | InstanceState::Running => 2,
    };
    instances.sort_by(|a, b| {
        let name = |row: &InstanceRow| (instance_key(row), row.presence);
        bad(a).cmp(&bad(b)).then_with(|| name(a).cmp(&name(b)))
    });
    let bad = |row: &TaskRow| match (row.failed, row.state) {
        (Some(true), _) => 0,
        (Some(false) | None, TaskState::Pending) => 1,
        (Some(false) | None, TaskState::Running | TaskState::Completed | TaskState::Resolving) => 2,
    };
    tasks.sort_by(|a, b| bad(a).cmp(&bad(b)).then_with(|| a.task_guid.cmp(&b.task_guid)));
}

/// Returns one line for each event of an entry. Internal events of the cluster are left out.
pub(crate) fn event_lines(entry: &RecordedEntry, look: RenderOptions) -> Vec<String> {
    match &entry.entry {
        ReadEntry::Known(known) => known
            .decisions
            .iter()
            .flat_map(|decision| {
                let time = time_of_day(decision.at);
                sentences(decision, look.full_ids).into_iter().map(move |line| format!("{time}  {line}"))
            })
            .collect(),
        ReadEntry::Unknown { reason: why, .. } => {
            vec![format!("position {}: {}", entry.position, one_line(why))]
        }
    }
}

impl View {
    /// Creates a view that shows only its heading.
    pub(crate) fn new(heading: Vec<String>, has_keys: bool) -> Self {
        Self { heading, has_keys, ..Self::default() }
    }

    /// Adds the events of a log entry.
    pub(crate) fn add_entry(&mut self, entry: &RecordedEntry, look: RenderOptions) {
        event_lines(entry, look).into_iter().for_each(|line| self.add_line(line));
    }

    /// Adds a line to the events.
    pub(crate) fn add_line(&mut self, line: String) {
        self.events.push_back(line);
        let extra = self.events.len().saturating_sub(MAX_EVENTS);
        self.events.drain(..extra);
    }

    /// Scrolls the tables.
    pub(crate) fn scroll(&mut self, moves: Move) {
        let page = self.page.saturating_sub(1).max(1);
        self.scrolled = moves.target_row(self.scrolled, page, self.last).min(self.last);
    }

    /// Returns the lines of the view for a terminal of this size. The heading is fixed, the tables scroll
    /// below their first line, events follow, and the last line shows the keys.
    pub(crate) fn lines(&mut self, look: RenderOptions, width: usize, height: usize) -> Vec<String> {
        let mut lines: Vec<String> = self.problems.iter().flat_map(|text| wrap(text, width)).collect();
        if height >= MIN_HEADING_HEIGHT {
            lines.extend(self.heading.iter().cloned());
        }
        lines.extend([self.title.clone(), String::new()]);
        let tables = self.tables(look, width);
        let events = self.events.len().min(MIN_EVENT_LINES).min(height / 4);
        // Two more lines are reserved: an empty line below the tables, and the keys.
        let room = height.saturating_sub(lines.len() + events + 2).max(MIN_TABLE_LINES);
        let (head, rest) = tables.split_first().map_or(("", &[][..]), |(head, rest)| (head.as_str(), rest));
        self.page = room - 1;
        self.last = rest.len().saturating_sub(self.page);
        self.scrolled = self.scrolled.min(self.last);
        lines.push(head.to_owned());
        let shown = rest.iter().skip(self.scrolled).take(self.page);
        lines.extend(shown.cloned());
        lines.push(String::new());
        let keys = self.key_help(rest.len());
        let height = height.saturating_sub(keys.iter().len());
        let skipped = self.events.len().saturating_sub(height.saturating_sub(lines.len()));
        lines.extend(self.events.iter().skip(skipped).cloned());
        lines.truncate(height);
        if let Some(keys) = keys {
            lines.resize(height, String::new());
            lines.push(keys);
        }
        lines.into_iter().map(|line| cut(&line, width)).collect()
    }

    fn tables(&self, look: RenderOptions, width: usize) -> Vec<String> {
        let instances = rows::instances_with_complaints(&self.instances, &self.complaints, look);
        let mut text = instances.cut(width).render(look.colour);
        if !self.tasks.is_empty() {
            text.push_str("\n\n");
            text.push_str(&rows::tasks(&self.tasks, look).cut(width).render(look.colour));
        }
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the line with the available keys and the scroll position. `None` if there is nothing to show.
    fn key_help(&self, lines: usize) -> Option<String> {
        let scrolls = self.last > 0;
        let from = self.scrolled + 1;
        let to = (self.scrolled + self.page).min(lines);
        match (self.has_keys, scrolls) {
            (true, true) => {
                Some(format!("q quits, arrows and Page keys scroll; lines {from} to {to} of {lines}"))
            }
            (true, false) => Some("q quits".to_owned()),
            (false, true) => Some(format!("lines {from} to {to} of {lines}")),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;

    use super::*;
    use crate::rows::tests::{running, with_definition};

    const LOOK: RenderOptions =
        RenderOptions { now: Timestamp::from_millis(10_000_000), full_ids: false, colour: false };

    fn view(instances: u32, events: usize) -> View {
        View {
            title: "muster dev".into(),
            instances: (0..instances).map(running).collect(),
            events: (0..events).map(|at| format!("12:00:00  event {at}")).collect(),
            ..View::default()
        }
    }

    #[test]
    fn view_shows_table_and_recent_events() {
        assert_eq!(
            view(2, 2).lines(LOOK, 120, 24),
            [
                "muster dev",
                "",
                "INSTANCE   ID         STATE     CELL   ADDRESS          CRASHES   AGE   NOTE",
                "web/0      0000abc0   RUNNING   c1     10.0.0.1:60001         0   90s   -",
                "web/1      0000abc1   RUNNING   c1     10.0.0.1:60001         0   90s   -",
                "",
                "12:00:00  event 0",
                "12:00:00  event 1",
            ]
        );
    }

    #[test]
    fn keys_are_on_the_last_line_and_cut_text_ends_with_an_ellipsis() {
        let crashed = InstanceRow {
            state: InstanceState::Crashed,
            cell_id: None,
            crash_count: 4,
            crash_reason: Some("Exited with status 3".into()),
            restart_at: Some(LOOK.now + std::time::Duration::from_secs(48)),
            ..with_definition("v2", running(0))
        };
        let mut view = View { has_keys: true, ..view(2, 3) };
        view.heading = vec![
            "logs: muster logs ID, or /run/user/1000/muster/development/cells/CELL/containers/ID/log".into(),
        ];
        view.instances[0] = crashed;
        view.events.push_back(
            "12:00:00  web/0: crashed on c1: Exited with status 3 (crash 4, container f261f6fc)".into(),
        );
        let mut page = view.lines(LOOK, 80, 16);
        page.extend(view.lines(LOOK, 60, 12));
        assert_eq!(page.join("\n"), include_str!("live_pages.txt").trim_end());
    }

    #[test]
    fn cluster_problem_is_shown_first_and_uncut() {
        let problem = "UNHEALTHY: the log accepts no entries: (code: 13) database or disk is full";
        let mut view = View { problems: vec![problem.into()], ..view(2, 2) };
        let lines = view.lines(LOOK, 30, 24);
        let title = lines.iter().position(|line| line == "muster dev").unwrap();
        assert_eq!(lines[..title].join(" "), problem);
        assert!(lines.iter().all(|line| line.chars().count() <= 30), "{lines:?}");
    }

    #[test]
    fn view_fits_terminal_size() {
        for (instances, events, width, height) in
            [(500, 500, 40, 24), (0, 0, 1, 1), (3, 40, 200, 10), (40, 3, 80, 12)]
        {
            let lines = view(instances, events).lines(LOOK, width, height);
            assert!(lines.len() <= height, "{} lines on {height}", lines.len());
            assert!(lines.iter().all(|line| line.chars().count() <= width));
        }
        let lines = view(500, 9).lines(LOOK, 80, 20);
        assert_eq!(lines[18..], ["12:00:00  event 8", "lines 1 to 11 of 500"]);
    }

    /// Returns the names of the visible instances.
    fn visible_instances(view: &mut View) -> Vec<String> {
        let lines = view.lines(LOOK, 120, 12).into_iter();
        let names = lines.filter_map(|line| line.split(' ').next().map(str::to_owned));
        names.filter(|name| name.starts_with("web/")).collect()
    }

    #[test]
    fn view_scrolling_stops_at_last_line() {
        let mut view = View { has_keys: true, ..view(20, 4) };
        assert_eq!(visible_instances(&mut view), ["web/0", "web/1", "web/2", "web/3"]);
        assert!(view.lines(LOOK, 120, 12).iter().any(|line| line.contains("lines 1 to 4 of 20")));
        view.scroll(Move::Down);
        assert_eq!(visible_instances(&mut view)[0], "web/1");
        view.scroll(Move::PageDown);
        assert_eq!(visible_instances(&mut view)[0], "web/4", "one line of the previous page stays visible");
        view.scroll(Move::Last);
        assert_eq!(visible_instances(&mut view), ["web/16", "web/17", "web/18", "web/19"]);
        view.scroll(Move::Down);
        assert_eq!(visible_instances(&mut view)[0], "web/16");
        // The list is shorter now, so its first line is visible again.
        view.instances.truncate(2);
        assert_eq!(visible_instances(&mut view), ["web/0", "web/1"]);
        view.scroll(Move::PageUp);
        assert_eq!(visible_instances(&mut view), ["web/0", "web/1"]);
    }

    #[test]
    fn sort_by_severity_puts_crashed_instances_first() {
        let row = |index, state| InstanceRow { state, ..running(index) };
        let mut instances = [
            row(10, InstanceState::Running),
            row(2, InstanceState::Claimed),
            row(4, InstanceState::Unclaimed),
            row(3, InstanceState::Crashed),
            row(1, InstanceState::Crashed),
        ];
        sort_by_severity(&mut instances, &mut []);
        assert_eq!(instances.map(|row| row.index), [1, 3, 4, 2, 10]);
    }
}
