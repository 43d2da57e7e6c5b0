//! The live BBSs and auctioneers, both leaders and standbys, according to their signs of life. The result is
//! for display only; no decision depends on it.
//!
//! On a bus without permissions, any client can send signs of life under any id. Therefore the number of
//! services per role is limited. New services never displace existing services, except that the leader in the
//! log always has a slot.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::cluster::Role;
use schemas::limits::{APPEND_REASON_BYTES, PROGRAM_BYTES, SERVICES_SHOWN, truncate};
use schemas::message::{ALIVE_INTERVAL, LeadershipStatus, Program, ServiceStatus};
use schemas::names::ServiceId;
use schemas::query::{AppendProblem, ClocksRow, ServiceRow, Services};
use schemas::{Position, Timestamp};

/// Time without a sign of life after which a service counts as gone. In this time, a live service sends three
/// signs of life.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(6);
/// Time for which this BBS must have received its own signs of life. After this time, it has received the
/// signs of life of all other live services, too.
const LISTENING_PERIOD: Duration = ALIVE_INTERVAL.saturating_add(Duration::from_secs(1));

/// Signs of life of all services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveServices {
    others: BTreeMap<(Role, ServiceId), Service>,
    /// Start of the period in which this BBS has received its own signs of life without a gap, and the time
    /// of the last one. The period proves that this BBS could receive the signs of life of other services.
    listens: Option<(Timestamp, Timestamp)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    program: Program,
    standing: LeadershipStatus,
    append_problem: Option<AppendProblem>,
    lag: u64,
    first: Timestamp,
    last: Timestamp,
}

/// This BBS itself, as displayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnService<'a> {
    pub(crate) id: &'a ServiceId,
    pub(crate) program: &'a Program,
    /// Position, term and leadership.
    pub(crate) standing: LeadershipStatus,
    /// Problem with appends. `None` if appends work.
    pub(crate) append_problem: Option<&'a AppendProblem>,
}

impl LiveServices {
    /// Records a sign of life. `here` is the position of this BBS. `leader` is the leader of the sender's
    /// role, according to the log.
    ///
    /// Returns `true` if the sender is another service and has a slot.
    pub(crate) fn record(
        &mut self,
        alive: ServiceStatus,
        me: &ServiceId,
        here: Position,
        leader: Option<&ServiceId>,
        now: Timestamp,
    ) -> bool {
        let ServiceStatus { id, role, program, leadership, clock: _, may_lead: _, append_problem } = alive;
        if id == *me {
            let since =
                self.listens.filter(|(_, last)| now.since(*last) < ALIVE_TIMEOUT).map(|(since, _)| since);
            self.listens = Some((since.unwrap_or(now), now));
            return false;
        }
        self.others.retain(|_, heard| now.since(heard.last) < ALIVE_TIMEOUT);
        let lag = self.newest(here).0.saturating_sub(leadership.position.0);
        let program = Program {
            host: truncate(&program.host, PROGRAM_BYTES),
            version: truncate(&program.version, PROGRAM_BYTES),
            ..program
        };
        let append_problem = append_problem.map(|trouble| {
            let reason = truncate(&trouble.reason, APPEND_REASON_BYTES);
            AppendProblem { reason, ..trouble }
        });
        let key = (role, id);
        let known = self.others.get(&key).map(|known| known.first);
        if known.is_none() && !self.make_room(role, leader == Some(&key.1)) {
            return false;
        }
        let first = known.unwrap_or(now);
        self.others
            .insert(key, Service { program, standing: leadership, append_problem, lag, first, last: now });
        true
    }

    /// Returns `true` if there is a slot for another service of a role. If there is no free slot, a leader
    /// displaces the newest service.
    fn make_room(&mut self, role: Role, leads: bool) -> bool {
        let same = || self.others.iter().filter(|((of, _), _)| *of == role);
        if same().count() < SERVICES_SHOWN {
            return true;
        }
        let newest = same().max_by_key(|(_, heard)| heard.first).map(|(key, _)| key.clone());
        if let Some(newest) = newest.filter(|_| leads) {
            self.others.remove(&newest);
        }
        leads
    }

    /// Returns the newest position that any service has reported.
    fn newest(&self, here: Position) -> Position {
        self.others.values().map(|heard| heard.standing.position).fold(here, Position::max)
    }

    /// Returns the services that are alive, including this BBS.
    ///
    /// A leader that was replaced while disconnected may still claim to lead. `leader` returns the leader of
    /// a role according to the log, which overrides such claims.
    pub(crate) fn services<'a>(
        &self,
        me: OwnService<'_>,
        leader: impl Fn(Role) -> Option<&'a ServiceId>,
        now: Timestamp,
    ) -> Services {
        let millis = |at: Timestamp| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        let alive = self.others.iter().filter(|(_, heard)| now.since(heard.last) < ALIVE_TIMEOUT);
        let mut rows: Vec<ServiceRow> = alive
            .map(|((role, id), heard)| {
                let row = row(*role, id, &heard.program, heard.standing, (heard.lag, millis(heard.last)));
                ServiceRow { append_problem: heard.append_problem.clone(), ..row }
            })
            .collect();
        let lag = self.newest(me.standing.position).0.saturating_sub(me.standing.position.0);
        let own = row(Role::Bbs, me.id, me.program, me.standing, (lag, 0));
        rows.push(ServiceRow { append_problem: me.append_problem.cloned(), ..own });
        for row in &mut rows {
            row.leads &= leader(row.role).is_none_or(|leader| *leader == row.id);
        }
        rows.sort_by(|a, b| (a.role, !a.leads, &a.id).cmp(&(b.role, !b.leads, &b.id)));
        let listens = |(since, last)| now.since(last) < ALIVE_TIMEOUT && now.since(since) >= LISTENING_PERIOD;
        Services { rows, complete: self.listens.is_some_and(listens), clocks: ClocksRow::default() }
    }
}

fn row(
    role: Role,
    id: &ServiceId,
    program: &Program,
    standing: LeadershipStatus,
    (lag, heartbeat_ms_ago): (u64, u64),
) -> ServiceRow {
    let LeadershipStatus { position, term, leads } = standing;
    let (id, program) = (id.clone(), program.clone());
    ServiceRow { id, role, leads, term, program, position, lag, heartbeat_ms_ago, append_problem: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn id(name: &str) -> ServiceId {
        ServiceId::new(name).unwrap()
    }

    fn beat(role: Role, name: &str, position: u64, leads: bool) -> ServiceStatus {
        let program = Program { host: "h".into(), pid: 1, version: "0.1.0".into() };
        ServiceStatus {
            id: id(name),
            role,
            program,
            leadership: LeadershipStatus { position: Position(position), term: 3, leads },
            clock: at(0),
            may_lead: true,
            append_problem: None,
        }
    }

    /// A BBS that has folded 100 entries and leads.
    struct Scene {
        living: LiveServices,
        id: ServiceId,
        program: Program,
    }

    impl Scene {
        fn new() -> Self {
            Self { living: LiveServices::default(), id: id("me"), program: Program::default() }
        }

        fn me(&self) -> OwnService<'_> {
            let standing = LeadershipStatus { position: Position(100), term: 3, leads: true };
            OwnService { id: &self.id, program: &self.program, standing, append_problem: None }
        }

        fn hears(&mut self, alive: ServiceStatus, leader: Option<&ServiceId>, now: u64) {
            self.living.record(alive, &self.id, Position(100), leader, at(now));
        }

        fn shown(&self, now: u64) -> Services {
            self.living.services(self.me(), |_| None, at(now))
        }

        fn names(&self, now: u64) -> Vec<String> {
            self.shown(now).rows.into_iter().map(|row| row.id.to_string()).collect()
        }
    }

    #[test]
    fn service_is_listed_until_three_signs_of_life_are_missing() {
        let mut scene = Scene::new();
        scene.hears(beat(Role::Auctioneer, "a1", 90, true), None, 0);
        scene.hears(beat(Role::Bbs, "b2", 60, false), None, 1_000);
        assert_eq!(scene.names(1_000), ["me", "b2", "a1"]);
        let rows = scene.shown(1_500).rows;
        assert_eq!(rows.iter().map(|row| row.lag).collect::<Vec<_>>(), [0, 40, 10]);
        assert_eq!(rows.iter().map(|row| row.heartbeat_ms_ago).collect::<Vec<_>>(), [0, 500, 1_500]);
        assert_eq!(scene.names(5_999), ["me", "b2", "a1"]);
        assert_eq!(scene.names(6_000), ["me", "b2"]);
        assert_eq!(scene.names(7_000), ["me"]);
        scene.hears(beat(Role::Bbs, "b2", 160, false), None, 7_000);
        assert_eq!(scene.shown(7_000).rows.iter().map(|row| row.lag).collect::<Vec<_>>(), [60, 0]);
        assert_eq!(scene.living.others.len(), 1, "services that are gone use no slot");
    }

    #[test]
    fn leader_in_log_overrides_claims_of_leadership() {
        let mut scene = Scene::new();
        scene.hears(beat(Role::Auctioneer, "a1", 90, true), None, 0);
        scene.hears(beat(Role::Bbs, "b1", 90, true), None, 0);
        let me = id("me");
        let leader = |role| (role == Role::Bbs).then_some(&me);
        let rows = scene.living.services(scene.me(), leader, at(1)).rows;
        let leads: Vec<(&str, bool)> = rows.iter().map(|row| (row.id.as_str(), row.leads)).collect();
        assert_eq!(leads, [("me", true), ("b1", false), ("a1", true)]);
    }

    #[test]
    fn list_is_complete_only_after_listening_period() {
        let mut scene = Scene::new();
        assert!(!scene.shown(0).complete);
        for now in [0, 2_000] {
            scene.hears(beat(Role::Bbs, "me", 100, true), None, now);
            assert!(!scene.shown(now).complete);
        }
        assert!(scene.shown(3_000).complete);
        // There was a gap, so the listening period starts again.
        assert!(!scene.shown(8_000).complete);
        scene.hears(beat(Role::Bbs, "me", 100, true), None, 8_000);
        assert!(!scene.shown(8_100).complete);
        scene.hears(beat(Role::Bbs, "me", 100, true), None, 10_000);
        assert!(scene.shown(11_000).complete);
    }

    #[test]
    fn forged_ids_displace_no_service_and_expire() {
        let mut scene = Scene::new();
        scene.hears(beat(Role::Bbs, "b2", 90, false), None, 0);
        for number in 0..10 * SERVICES_SHOWN {
            scene.hears(beat(Role::Bbs, &format!("x{number}"), 90, true), None, 1);
            scene.hears(beat(Role::Auctioneer, &format!("x{number}"), 90, true), None, 1);
        }
        assert_eq!(scene.living.others.len(), 2 * SERVICES_SHOWN);
        assert!(scene.names(2).contains(&"b2".to_owned()), "an existing service is not displaced");
        scene.hears(beat(Role::Auctioneer, "a1", 90, true), Some(&id("a1")), 2);
        assert!(scene.names(2).contains(&"a1".to_owned()), "the leader in the log has a slot");
        assert_eq!(scene.living.others.len(), 2 * SERVICES_SHOWN);
        scene.hears(beat(Role::Bbs, "b2", 90, false), None, 6_100);
        assert_eq!(scene.living.others.len(), 1);
    }

    #[test]
    fn program_texts_are_truncated() {
        let mut scene = Scene::new();
        let mut alive = beat(Role::Bbs, "b2", u64::MAX, false);
        (alive.program.host, alive.program.version) = ("h".repeat(100_000), "v".repeat(100_000));
        scene.hears(alive, None, 0);
        let row = &scene.shown(0).rows[1];
        assert!(row.program.host.len() <= PROGRAM_BYTES && row.program.version.len() <= PROGRAM_BYTES);
        assert_eq!(row.lag, 0);
    }
}
