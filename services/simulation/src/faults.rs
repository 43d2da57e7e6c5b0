//! Faults of nodes, cells, the journal and the network.

use schemas::{Timestamp, cell};
use std::time::Duration;

use crate::act::Act;
use crate::cluster::Cluster;
use crate::event::NodeEvent;
use crate::rates::Faults;
use crate::shape::Node;

/// Time for which the effects of a fault may last.
const CALMING: Duration = Duration::from_secs(6);

impl Cluster {
    /// Carries out an act of the plan.
    pub(crate) fn act(&mut self, act: Act) {
        self.acted(&act);
        match act {
            Act::Ask { domain, ask, patience, answer: _ } => self.client_wants(domain, &ask, patience),
            Act::Evacuate(cell) => self.operator_asks(cell, cell::Command::Evacuate),
            Act::Cordon(cell) => self.operator_asks(cell, cell::Command::Cordon),
            Act::Uncordon(cell) => self.operator_asks(cell, cell::Command::Uncordon),
            Act::Forget(cell) => self.operator_asks(cell, cell::Command::Forget),
            Act::Preemption(on) => self.order_cluster(schemas::cluster::Command::SwitchPreemption(on)),
            Act::Reshard(shards) => self.order_cluster(schemas::cluster::Command::Reshard(shards)),
            Act::Retry(of, trigger) => self.client_retries(&of, trigger),
            Act::Kill { node, away } => self.kill(node, away),
            Act::Lose { cell, away } => self.let_die(cell, away),
            Act::CutOff { node, time, journal_too, notices } => {
                self.cut_off(node, time, journal_too, notices);
            }
            Act::Part { from, to, both_ways, time } => {
                let until = self.now + time;
                if both_ways {
                    self.parted.push((to.clone(), from.clone(), until));
                }
                self.parted.push((from, to, until));
            }
            Act::Pause { node, time } => {
                let until = self.now + time;
                let place = self.place_mut(node);
                place.held_until = place.held_until.max(until);
            }
            Act::Lag { node, time } => {
                let until = self.now + time;
                let place = self.place_mut(node);
                place.lags_until = place.lags_until.max(until);
                self.heal_at(until);
            }
            Act::Dark(time) => {
                self.go_dark(time);
            }
            Act::NoHeartbeats(time) => self.no_heartbeats_until = self.now + time,
            Act::Unheard { cell, time } => {
                self.unheard = (cell, self.now + time);
            }
            Act::Clock { node, millis } => {
                self.place_mut(node).skew_ms += millis;
                if let Some(life) = self.life(node) {
                    self.place_mut(node).turn_due = true;
                    self.schedule_for(self.now, life, NodeEvent::Turn);
                }
            }
            Act::Slow { cell, time } => {
                self.slow.insert(cell, (self.now + time, time / 2));
            }
            Act::Sick { cell, time } => {
                self.sick_until.insert(cell, self.now + time);
            }
            Act::Full { cell, time } => {
                self.full_until.insert(cell, self.now + time);
            }
            Act::Malformed => self.write_malformed(),
            Act::PowerCut { unsynced } => self.cut_power(unsynced),
        }
    }

    fn cut_off(&mut self, node: Node, time: Duration, journal_too: bool, notices: bool) {
        let until = self.now + time;
        if let Some(life) = self.life(node).filter(|_| notices) {
            self.schedule_for(self.now, life, NodeEvent::Disconnected);
        }
        let place = self.place_mut(node);
        place.cut_until = place.cut_until.max(until);
        place.knows_cut |= notices;
        if journal_too {
            place.dark_until = place.dark_until.max(until);
        }
        self.heal_at(until);
    }

    pub(crate) fn go_dark(&mut self, time: Duration) {
        let until = self.now + time;
        self.dark_until = self.dark_until.max(until);
        self.heal_at(until);
    }

    /// Returns the maximum clock offset of a node.
    pub(crate) fn clocks_apart(&self) -> Duration {
        let apart = self.all_nodes().into_iter().map(|node| self.place(node).skew_ms.unsigned_abs());
        Duration::from_millis(apart.max().unwrap_or(0))
    }

    /// Returns `true` if messages between two nodes are lost.
    pub(crate) fn is_parted(&self, from: Node, to: Node) -> bool {
        let parts = |(these, those, until): &(Vec<Node>, Vec<Node>, _)| {
            *until > self.now && these.contains(&from) && those.contains(&to)
        };
        self.parted.iter().any(parts)
    }

    pub(crate) fn is_sick(&self, cell: usize) -> bool {
        self.sick_until.get(&cell).is_some_and(|until| *until > self.now)
    }

    /// Returns `true` if the executor of a cell cannot prepare containers.
    pub(crate) fn is_full(&self, cell: usize) -> bool {
        self.full_until.get(&cell).is_some_and(|until| *until > self.now)
    }

    /// Returns the time at which a rep receives a container event of now. Events stay in order.
    pub(crate) fn news_at(&mut self, cell: usize) -> Timestamp {
        let slow = self.slow.get(&cell).filter(|(until, _)| *until > self.now).map(|(_, longest)| *longest);
        let millis = |longest: Duration| u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let time = slow.map_or(Duration::ZERO, |longest| self.chaos.millis(500, millis(longest).max(1_000)));
        let at = self.news.get(&cell).copied().unwrap_or_default().max(self.now + time);
        self.news.insert(cell, at);
        at
    }

    /// Records that faults hinder the BBSs, the journal or their messages for this time.
    pub(crate) fn trouble(&mut self, time: Duration) {
        self.troubled_until = self.troubled_until.max(self.now + time + CALMING);
    }

    fn troubles(&mut self, act: &Act) {
        let bbs = |node: &Node| matches!(node, Node::Bbs(_));
        let time = match act {
            Act::Kill { node, away: time }
            | Act::CutOff { node, time, .. }
            | Act::Pause { node, time }
            | Act::Lag { node, time }
                if bbs(node) =>
            {
                *time
            }
            Act::Clock { node, .. } if bbs(node) => Duration::ZERO,
            Act::Part { time, .. } | Act::Dark(time) => *time,
            Act::Malformed | Act::PowerCut { .. } => Duration::from_secs(3),
            Act::Ask { .. }
            | Act::Evacuate(_)
            | Act::Cordon(_)
            | Act::Uncordon(_)
            | Act::Forget(_)
            | Act::Preemption(_)
            | Act::Reshard(_)
            | Act::Retry(..)
            | Act::Kill { .. }
            | Act::Lose { .. }
            | Act::CutOff { .. }
            | Act::Pause { .. }
            | Act::Lag { .. }
            | Act::NoHeartbeats(_)
            | Act::Unheard { .. }
            | Act::Clock { .. }
            | Act::Slow { .. }
            | Act::Sick { .. }
            | Act::Full { .. } => return,
        };
        self.trouble(time);
    }

    /// Logs and counts an act.
    fn acted(&mut self, act: &Act) {
        self.acted += 1;
        self.troubles(act);
        self.inject(act.kind());
        self.log(|| format!("-- {act}"));
    }

    /// Ends all faults.
    pub(crate) fn make_peace(&mut self) {
        let Faults { skew_ms, read, .. } = self.faults;
        self.faults = Faults { skew_ms, read: read / 4, ..Faults::NONE };
        self.checkers.faults_ended(self.now);
        // Messages that were sent before take as long as planned.
        self.trouble(Duration::ZERO);
        self.no_heartbeats_until = self.now;
        self.unheard.1 = self.now;
        self.dark_until = self.now;
        self.parted.clear();
        self.slow.clear();
        self.sick_until.clear();
        self.full_until.clear();
        for node in self.all_nodes() {
            let now = self.now;
            let place = self.place_mut(node);
            (place.cut_until, place.dark_until, place.lags_until) = (now, now, now);
        }
        self.heal_at(self.now);
        self.log(|| "peace".into());
    }
}
