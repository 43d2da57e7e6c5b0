//! Evacuations as the log decides them: from when on a cell takes nothing more, and when its time is over.
//!
//! An evacuation is an operator's decision. A rep has to obey it from when on it answered the order, or was let speak for
//! its cell by a BBS that knew of it, until the log takes it back, whether it restarts or not. Its time begins after the
//! decision, and no later than the log tells that it began; a rep that restarts does not begin it anew.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::message::Heartbeat;
use schemas::names::{CellId, Incarnation};
use schemas::subject::Position;
use schemas::{Timestamp, cell};

use super::Scene;

/// What the log says of evacuations, and which rep knows of it.
#[derive(Default)]
pub(super) struct Evacuations {
    cells: BTreeMap<CellId, Emptied>,
    /// Where the log stood for whoever gave an order to evacuate, until the rep answers.
    orders: BTreeMap<u64, Position>,
}

/// One cell.
#[derive(Default)]
struct Emptied {
    present: bool,
    evacuating: bool,
    incarnation: Option<Incarnation>,
    /// Whether its rep may evacuate: since an operator decided it, until the log tells that it takes work again.
    goes_on: bool,
    /// Where an operator decided it, unless it is over or taken back.
    wanted: Option<Position>,
    /// Every time that it was decided, and when and where the log told first that it began.
    asked: Vec<Asked>,
    /// Where the log stood when its rep was let speak for it, if it was told then that the evacuation goes on.
    attached: Position,
    /// The decision of which its rep knows.
    known: Option<Position>,
    /// What its rep said last.
    said: Option<Said>,
}

/// What a run of a rep said of its cell.
struct Said {
    run: Incarnation,
    evacuates: bool,
    /// Whether it ever took work again.
    resumed: bool,
}

struct Asked {
    at: Timestamp,
    began: Option<(Timestamp, Position)>,
}

impl Evacuations {
    /// The log tells something of a cell.
    pub(super) fn recorded(&mut self, id: &CellId, event: &cell::Event, position: Position, at: Timestamp) {
        let cell = self.cells.entry(id.clone()).or_default();
        match event {
            cell::Event::Appeared(presence) => {
                let another = cell.incarnation != Some(presence.incarnation);
                if !cell.present && cell.evacuating && another {
                    // It was lost with everything on it, and begins anew.
                    (cell.wanted, cell.known) = (None, None);
                }
                cell.goes_on &= cell.wanted.is_some() || !another;
                (cell.present, cell.evacuating) = (true, false);
                cell.incarnation = Some(presence.incarnation);
            }
            cell::Event::EvacuationRequested {} => {
                (cell.wanted, cell.goes_on) = (Some(position), true);
                cell.asked.push(Asked { at, began: None });
            }
            cell::Event::Evacuating {} => {
                (cell.evacuating, cell.goes_on) = (true, true);
                for asked in cell.asked.iter_mut().filter(|asked| asked.began.is_none()) {
                    asked.began = Some((at, position));
                }
            }
            cell::Event::EvacuationWithdrawn {} => cell.wanted = None,
            // It may have been told to evacuate again before it said that it no longer does.
            cell::Event::Resumed {} => (cell.evacuating, cell.goes_on) = (false, cell.wanted.is_some()),
            cell::Event::Left {} => {
                (cell.present, cell.evacuating, cell.goes_on) = (false, false, false);
                (cell.wanted, cell.known) = (None, None);
            }
            cell::Event::Disappeared { .. } => (cell.present, cell.known) = (false, None),
            cell::Event::Forgotten {} => (cell.evacuating, cell.wanted) = (false, None),
            cell::Event::Cordoned {}
            | cell::Event::Uncordoned {}
            | cell::Event::Healthy {}
            | cell::Event::Unhealthy { .. } => {}
        }
    }

    /// A rep says how its cell is, whether anybody hears it or not.
    pub(super) fn said(&mut self, beat: &Heartbeat) {
        let cell = self.cells.entry(beat.cell_id.clone()).or_default();
        let run = beat.presence.incarnation;
        let before = cell.said.take().filter(|said| said.run == run);
        let resumes = |said: &Said| said.resumed || said.evacuates && !beat.evacuating;
        let resumed = before.as_ref().is_some_and(resumes);
        cell.said = Some(Said { run, evacuates: beat.evacuating, resumed });
    }

    /// Whether the rep that the log knows of a cell ever said that it takes work again.
    pub(super) fn has_resumed(&self, id: &CellId) -> bool {
        self.cells.get(id).is_some_and(|cell| {
            let said = cell.said.as_ref().filter(|said| Some(said.run) == cell.incarnation);
            // What an earlier run of it said is not known any more.
            said.is_none_or(|said| said.resumed)
        })
    }

    /// Whether the time of an evacuation is up, by a clock that may differ: that of a rep which restarted in it began by
    /// whoever wrote the log, and is read by another.
    pub(super) fn is_up(&self, id: &CellId, end: Timestamp, scene: &Scene<'_>) -> bool {
        let restarted = self.cells.get(id).is_some_and(|cell| {
            let began = cell.asked.iter().filter_map(|asked| asked.began);
            began.into_iter().any(|(_, position)| position <= cell.attached)
        });
        let slack = if restarted { 2 * scene.clock_slack } else { scene.clock_slack };
        end <= scene.decision.at + slack
    }

    /// A rep is let speak for its cell.
    pub(super) fn attached(&mut self, id: &CellId, position: Position) {
        let cell = self.cells.entry(id.clone()).or_default();
        let goes_on = cell.present || !cell.evacuating;
        cell.attached = if goes_on { position } else { Position(0) };
        cell.known = cell.wanted.filter(|wanted| *wanted <= position && goes_on);
    }

    /// A rep gets the order to evacuate, of a BBS whose log ended there.
    pub(super) fn ordered(&mut self, requester: u64, position: Position) {
        self.orders.insert(requester, position);
    }

    /// A rep answers somebody who asks of it to evacuate, or how it is.
    pub(super) fn answered(&mut self, id: &CellId, requester: u64, evacuates: bool) {
        let Some(position) = self.orders.remove(&requester).filter(|_| evacuates) else { return };
        let cell = self.cells.entry(id.clone()).or_default();
        if let Some(wanted) = cell.wanted.filter(|wanted| *wanted <= position && cell.present) {
            cell.known = Some(wanted);
        }
    }

    /// Whether a cell may take nothing now: it evacuates by the log, and its rep knows.
    pub(super) fn takes_nothing(&self, id: &CellId) -> bool {
        let knows = |cell: &Emptied| cell.present && cell.known.is_some() && cell.known == cell.wanted;
        self.cells.get(id).is_some_and(knows)
    }

    /// Whether the rep of a cell may evacuate it, as far as the log tells.
    pub(super) fn may_go_on(&self, id: &CellId) -> bool {
        self.cells.get(id).is_some_and(|cell| cell.goes_on)
    }

    /// Whether an evacuation of the cell may end then, as somebody says now.
    pub(super) fn ends(&self, id: &CellId, end: Timestamp, scene: &Scene<'_>) -> bool {
        let (time, slack) = (scene.shape.evacuation, scene.clock_slack);
        self.cells.get(id).is_some_and(|cell| {
            cell.asked.iter().any(|asked| {
                let known = asked.began.filter(|(_, position)| *position <= cell.attached);
                let latest = known.map_or(scene.decision.at, |(began, _)| began);
                asked.at + time <= end + slack && end <= latest + time + slack
            })
        })
    }

    /// Whether the time of an evacuation of the cell may be over.
    pub(super) fn may_be_over(
        &self,
        id: &CellId,
        time: Duration,
        (now, slack): (Timestamp, Duration),
    ) -> bool {
        let asked = self.cells.get(id).into_iter().flat_map(|cell| &cell.asked);
        asked.into_iter().any(|asked| asked.at + time <= now + slack)
    }
}
