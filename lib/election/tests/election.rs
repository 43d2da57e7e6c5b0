//! Tests of the election: the time of a standby's campaign, and the heartbeats that prevent a campaign.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::time::Duration;

use election::{Duty, ELECTION_TIMEOUT, Election, HEARTBEAT_INTERVAL, MAX_MISSED_HEARTBEATS};
use schemas::cluster::Leader;
use schemas::message::LeaderHeartbeat;
use schemas::names::ServiceId;
use schemas::{Position, Timestamp};

/// Maximum time between the leader's last heartbeat and a standby's campaign.
const MAX_TAKEOVER: Duration = Duration::from_millis(2_400);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

fn name(id: &str) -> ServiceId {
    ServiceId::new(id).unwrap()
}

fn heartbeat(id: &str, term: u64) -> LeaderHeartbeat {
    LeaderHeartbeat { id: name(id), term, position: Position(1), steps_down: false }
}

/// Returns a standby of a leader that was elected in term 4.
fn standby() -> Election {
    let mut election = Election::new(name("me"));
    election.follow(Some(&Leader { id: name("other"), term: 4, since: at(0) }), at(0));
    election
}

/// Returns the time until the standby campaigns. The standby is polled every 100 ms and receives `heard` each
/// time.
fn time_to_campaign(election: &mut Election, heard: &LeaderHeartbeat) -> Option<Duration> {
    time_to_campaign_from(0, election, heard)
}

fn time_to_campaign_from(millis: u64, election: &mut Election, heard: &LeaderHeartbeat) -> Option<Duration> {
    (1..600).map(|tick| at(millis + tick * 100)).find_map(|now| {
        election.record_heartbeat(heard, now);
        (election.duty(now) == Duty::Campaign(5)).then(|| now.since(at(0)))
    })
}

#[test]
fn processes_without_leader_campaign_immediately() {
    for id in ["a", "b", "c", "d"] {
        let mut first = Election::new(name(id));
        assert_eq!(first.duty(at(0)), Duty::Campaign(1));
        assert_eq!(first.duty(at(10)), Duty::None, "an answer may still arrive");
        first.campaign_unanswered(at(10));
        assert_eq!(first.duty(at(30)), Duty::Campaign(1), "a campaign without an answer is repeated soon");
        first.campaign_refused(at(40));
        assert_eq!(first.duty(at(400)), Duty::None, "a refused campaign is repeated later");
        assert_eq!(first.duty(at(440)), Duty::Campaign(1));
    }
}

#[test]
fn standby_polled_when_due_campaigns() {
    let mut election = standby();
    let mut now = at(0);
    for _ in 0..10 {
        if election.duty(now) == Duty::Campaign(5) {
            return;
        }
        now = election.next_due().max(now.next());
    }
    panic!("the standby never campaigned");
}

#[test]
fn standby_campaigns_after_missed_heartbeats_but_not_after_own_pause() {
    let waited = time_to_campaign(&mut standby(), &heartbeat("gone", 3)).unwrap();
    assert!(waited >= HEARTBEAT_INTERVAL * MAX_MISSED_HEARTBEATS && waited <= MAX_TAKEOVER, "{waited:?}");

    let mut paused = standby();
    assert_eq!(paused.duty(at(100)), Duty::None);
    assert_eq!(paused.duty(at(60_000)), Duty::None);
}

#[test]
fn only_leader_sends_heartbeats() {
    let mut leader = Election::new(name("me"));
    leader.follow(Some(&Leader { id: name("me"), term: 4, since: at(0) }), at(0));
    let beats = (0..600).filter(|tick| leader.duty(at(tick * 10)) == Duty::Heartbeat).count();
    assert_eq!(beats, 10, "one per 600 ms, the first one early");
    assert_eq!(
        time_to_campaign(&mut standby(), &heartbeat("other", 4)),
        None,
        "the heartbeats keep the standby from campaigning"
    );
}

#[test]
fn forged_heartbeats_delay_takeover_by_at_most_one_election() {
    for (term, longer) in [(u64::MAX, 0), (6, 0), (4, 0), (0, 0), (5, 1)] {
        let waited = time_to_campaign(&mut standby(), &heartbeat("nobody", term)).unwrap();
        assert!(waited <= MAX_TAKEOVER + ELECTION_TIMEOUT * longer, "heartbeats of term {term}: {waited:?}");
    }
    let waited = time_to_campaign(&mut standby(), &heartbeat("nobody", 5)).unwrap();
    assert!(
        waited > ELECTION_TIMEOUT + HEARTBEAT_INTERVAL * 2,
        "a won election is not disturbed before the log names the winner"
    );
}

#[test]
fn losing_candidate_waits_for_winner_heartbeat() {
    let mut election = standby();
    let lost = time_to_campaign(&mut election, &heartbeat("gone", 3)).unwrap();
    election.campaign_lost(at(0) + lost);
    let millis = u64::try_from(lost.as_millis()).unwrap();
    let again = time_to_campaign_from(millis, &mut election, &heartbeat("gone", 3)).unwrap();
    assert!(again >= lost + HEARTBEAT_INTERVAL * MAX_MISSED_HEARTBEATS, "{again:?} after {lost:?}");
}

/// Returns a standby that is still reading the log. From the start, the standby knew that `other` leads in
/// term 4. For `millis`, it was polled every 100 ms and received `heard` each time.
fn standby_during_replay(millis: u64, heard: Option<&LeaderHeartbeat>) -> Election {
    let mut election = standby();
    for now in (0..=millis).step_by(100).map(at) {
        election.poll(now);
        heard.into_iter().for_each(|beat| election.record_heartbeat(beat, now));
    }
    election
}

#[test]
fn standby_that_listened_during_replay_campaigns_immediately() {
    let long = u64::try_from(MAX_TAKEOVER.as_millis()).unwrap();
    let mut election = standby_during_replay(long, None);
    // The log also names the earlier leaders, one after the other.
    for term in 1..=4 {
        let id = name(if term == 4 { "other" } else { "gone" });
        election.follow(Some(&Leader { id, term, since: at(0) }), at(long));
    }
    assert_eq!(election.duty(at(long)), Duty::Campaign(5));
}

#[test]
fn standby_that_listened_during_replay_waits_for_live_leader() {
    let long = u64::try_from(MAX_TAKEOVER.as_millis()).unwrap();
    let mut election = standby_during_replay(long, Some(&heartbeat("other", 4)));
    assert_eq!(election.duty(at(long)), Duty::None);
    let waited = time_to_campaign_from(long, &mut election, &heartbeat("gone", 3)).unwrap();
    assert!(waited >= MAX_TAKEOVER + HEARTBEAT_INTERVAL * MAX_MISSED_HEARTBEATS, "{waited:?}");

    let mut election = standby_during_replay(long, None);
    election.follow(Some(&Leader { id: name("new"), term: 5, since: at(long) }), at(long));
    let heard = (0..=17).any(|tick| election.duty(at(long + tick * 100)) != Duty::None);
    assert!(!heard, "the new leader gets its full timeout");
}

#[test]
fn pause_during_replay_is_not_leader_silence() {
    let mut election = standby_during_replay(100, None);
    election.poll(at(60_000));
    assert_eq!(election.duty(at(60_000)), Duty::None);
}

#[test]
fn standby_campaigns_at_once_when_the_leader_steps_down() {
    let last = |id: &str, term| LeaderHeartbeat { steps_down: true, ..heartbeat(id, term) };
    let mut election = standby();
    election.record_heartbeat(&last("other", 4), at(1_000));
    let campaign = (10..13).map(|tick| at(tick * 100)).find(|now| election.duty(*now) == Duty::Campaign(5));
    assert!(campaign.is_some(), "long before three heartbeats are missing");
    // The new leader gets the same timeout as any other leader.
    election.follow(Some(&Leader { id: name("next"), term: 5, since: at(1_300) }), at(1_300));
    assert_eq!(election.duty(at(2_000)), Duty::None);
    // Only the leader of the current term can step down. A heartbeat with this process's own id does not
    // depose the leader.
    for (id, term) in [("other", 4), ("other", 5), ("next", 4), ("next", 6), ("me", 5)] {
        election.record_heartbeat(&last(id, term), at(2_100));
        assert_eq!(election.duty(at(2_200)), Duty::None, "{id} in term {term}");
    }
    let mut leader = Election::new(name("me"));
    leader.follow(Some(&Leader { id: name("me"), term: 6, since: at(0) }), at(0));
    leader.record_heartbeat(&last("me", 6), at(50));
    assert_eq!(leader.duty(at(200)), Duty::Heartbeat);
}
