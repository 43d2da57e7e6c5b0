//! Who leads among the auctioneers. The log says it: this file only knows when to ask, and when to beat.

use std::time::Duration;

use projections::World;
use schemas::Timestamp;
use schemas::cluster::{Leader, Role};
use schemas::message::{Beat, Lead};
use schemas::names::ServiceId;

use super::{Effect, Settings};

/// The clock of leading and of wanting to lead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Election {
    /// When to ask for the lead, if nothing is heard of who has it. None: the log isn't known yet.
    ask_at: Option<Timestamp>,
    /// When to beat, while leading.
    beat_at: Option<Timestamp>,
}

/// Who leads, as the log says.
pub(crate) fn leader(world: &World) -> Option<&Leader> {
    world.cluster()?.leader(Role::Auctioneer)
}

/// Part of the time between two beats, another one for each id: so that two candidates don't ask at once.
fn stagger(id: &ServiceId, settings: &Settings) -> Duration {
    settings.beat * u32::from(schemas::subject::shard(id.as_str(), 64)) / 64
}

fn patience(id: &ServiceId, settings: &Settings) -> Duration {
    settings.beat * settings.missed_beats + stagger(id, settings)
}

impl Election {
    /// The log is known. Who leads has its time to beat; if nobody does, one asks at once.
    pub(crate) fn caught_up(&mut self, now: Timestamp, world: &World, id: &ServiceId, settings: &Settings) {
        let wait = if leader(world).is_some() { patience(id, settings) } else { stagger(id, settings) };
        self.ask_at = Some(now + wait);
    }

    /// The leader lives, or another one was elected, or an answer came that gives no lead.
    pub(crate) fn wait(&mut self, now: Timestamp, id: &ServiceId, settings: &Settings) {
        if self.ask_at.is_some() {
            self.ask_at = Some(now + patience(id, settings));
        }
    }

    /// Nobody could be asked: that says nothing of whether somebody leads, so it is tried again soon.
    pub(crate) fn again(&mut self, now: Timestamp, id: &ServiceId, settings: &Settings) {
        if self.ask_at.is_some() {
            self.ask_at = Some(now + settings.beat / 4 + stagger(id, settings) / 4);
        }
    }

    /// Another auctioneer beats. One of an earlier term leads nobody.
    pub(crate) fn heard(&mut self, now: Timestamp, beat: &Beat, world: &World, own: (&ServiceId, &Settings)) {
        let term = leader(world).map_or(0, |leader| leader.term);
        if beat.term >= term && beat.id != *own.0 {
            self.wait(now, own.0, own.1);
        }
    }

    /// This auctioneer leads from now on, or no longer.
    pub(crate) fn turn(&mut self, now: Timestamp, leads: bool) {
        self.beat_at = leads.then_some(now);
    }

    /// What is due: a beat, or the question for the lead.
    pub(crate) fn due(
        &mut self,
        now: Timestamp,
        world: &World,
        id: &ServiceId,
        settings: &Settings,
    ) -> Option<Effect> {
        let term = leader(world).map_or(0, |leader| leader.term);
        if let Some(at) = self.beat_at {
            if at > now {
                return None;
            }
            self.beat_at = Some(now + settings.beat);
            return Some(Effect::Beat(Beat { id: id.clone(), term, position: world.position() }));
        }
        if self.ask_at.is_none_or(|at| at > now) {
            return None;
        }
        if world.cluster().is_none() {
            self.again(now, id, settings);
            return None;
        }
        self.wait(now, id, settings);
        Some(Effect::Lead(Lead { id: id.clone(), term: term + 1 }))
    }

    /// When something is due.
    pub(crate) fn alarm(&self) -> Option<Timestamp> {
        self.beat_at.or(self.ask_at)
    }
}
