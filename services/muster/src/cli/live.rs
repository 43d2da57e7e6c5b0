//! The live view of a local cluster: what runs, and what happens. Pure: rows, events and the time in, lines out.

use std::collections::VecDeque;

use schemas::query::{InstanceRow, ReadEntry, RecordedEntry, TaskRow};

use super::output::Look;
use super::rows;
use super::tell::sentences;
use super::words::time_of_day;

/// The last events that are kept to be shown.
const KEPT: usize = 64;
/// The fewest lines of events that stay on a small terminal.
const FEWEST_EVENTS: usize = 4;

/// What is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// A line above everything.
    pub(crate) title: String,
    /// The instances.
    pub(crate) instances: Vec<InstanceRow>,
    /// The tasks.
    pub(crate) tasks: Vec<TaskRow>,
    /// What happened last, the newest last.
    pub(crate) events: VecDeque<String>,
}

/// What happened, a line for each event. What only the cluster itself cares about is left out.
pub(crate) fn event_lines(entry: &RecordedEntry, look: Look) -> Vec<String> {
    match &entry.entry {
        ReadEntry::Known(known) => known
            .decisions
            .iter()
            .flat_map(|decision| {
                let time = time_of_day(decision.at);
                sentences(decision, look.full_ids).into_iter().map(move |told| format!("{time}  {told}"))
            })
            .collect(),
        ReadEntry::Unknown { why, .. } => vec![format!("position {}: {why}", entry.position)],
    }
}

impl View {
    /// Takes note of what happened.
    pub(crate) fn happened(&mut self, entry: &RecordedEntry, look: Look) {
        self.events.extend(event_lines(entry, look));
        let extra = self.events.len().saturating_sub(KEPT);
        self.events.drain(..extra);
    }

    /// The lines of the view on a terminal of this size. Instances and tasks that have no room are counted, and the
    /// last lines are events.
    pub(crate) fn lines(&self, look: Look, width: usize, height: usize) -> Vec<String> {
        let mut lines = vec![self.title.clone(), String::new()];
        let events = self.events.len().min(FEWEST_EVENTS);
        let room = height.saturating_sub(lines.len() + events + 2);
        let tasks = self.tasks.len();
        let for_tasks = if tasks == 0 { 0 } else { (tasks + 2).min(room / 3 + 2) };
        let table = rows::instances(&self.instances, look).render(look.colour);
        push_table(&mut lines, &table, self.instances.len(), room.saturating_sub(for_tasks), "instances");
        if tasks > 0 {
            lines.push(String::new());
            let table = rows::tasks(&self.tasks, look).render(look.colour);
            push_table(&mut lines, &table, tasks, for_tasks.saturating_sub(1), "tasks");
        }
        lines.push(String::new());
        let room = height.saturating_sub(lines.len() + 1).max(events);
        let skipped = self.events.len().saturating_sub(room);
        lines.extend(self.events.iter().skip(skipped).cloned());
        lines.truncate(height.max(1));
        lines.into_iter().map(|line| clip(&line, width)).collect()
    }
}

/// As much of a table as there is room for, and how much more there is.
fn push_table(lines: &mut Vec<String>, table: &str, rows: usize, room: usize, what: &str) {
    let room = room.max(2);
    if rows < room {
        lines.extend(table.lines().map(str::to_owned));
        return;
    }
    let shown = room - 1;
    lines.extend(table.lines().take(shown).map(str::to_owned));
    lines.push(format!("... {} {what} more", rows - (shown - 1)));
}

/// A line that is no longer than the terminal is wide, colours not counted.
fn clip(line: &str, width: usize) -> String {
    let (mut clipped, mut shown, mut in_colour, mut coloured) = (String::new(), 0, false, false);
    for c in line.chars() {
        if in_colour {
            in_colour = c != 'm';
        } else if c == '\u{1b}' {
            (in_colour, coloured) = (true, true);
        } else if shown >= width {
            if coloured {
                clipped.push_str("\u{1b}[0m");
            }
            return clipped;
        } else {
            shown += 1;
        }
        clipped.push(c);
    }
    clipped
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;

    use super::*;
    use crate::cli::rows::tests::running;

    const LOOK: Look = Look { now: Timestamp::from_millis(10_000_000), full_ids: false, colour: false };

    fn view(instances: u32, events: usize) -> View {
        View {
            title: "muster dev".into(),
            instances: (0..instances).map(running).collect(),
            tasks: vec![],
            events: (0..events).map(|at| format!("12:00:00  event {at}")).collect(),
        }
    }

    #[test]
    fn a_view_is_a_table_and_the_last_events() {
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
    fn a_view_fits_on_its_terminal() {
        for (instances, events, width, height) in
            [(500, 500, 40, 24), (0, 0, 1, 1), (3, 40, 200, 10), (40, 3, 80, 12)]
        {
            let lines = view(instances, events).lines(LOOK, width, height);
            assert!(lines.len() <= height, "{} lines on {height}", lines.len());
            assert!(lines.iter().all(|line| line.chars().count() <= width));
        }
        let lines = view(500, 9).lines(LOOK, 80, 20);
        assert!(lines.iter().any(|line| line.contains("instances more")), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "12:00:00  event 8");
    }

    #[test]
    fn colours_take_no_room() {
        assert_eq!(clip("\u{1b}[32mRUNNING on c1\u{1b}[0m", 7), "\u{1b}[32mRUNNING\u{1b}[0m");
        assert_eq!(clip("abc", 2), "ab");
    }
}
