//! Resolution of an id in the log. Pure: takes decisions and returns the chains to trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemas::entry::Event;
use schemas::names::{DecisionId, RequestId};
use schemas::stamp::Actor;
use schemas::{Position, evaluation};
use text::describe::actor;
use text::words::InvalidValue;

use crate::decisions::{PositionedDecision, container_guid};
use crate::{Error, Missing, find};

/// Minimum length of an id fragment. A log holds many ids, and ids that were created in the same minute have
/// the same beginning.
const MIN_FRAGMENT_LEN: usize = 8;
/// Maximum number of ids in the error for an ambiguous fragment.
const MAX_NAMED: usize = 5;
/// Description of a valid id, for errors.
const VALID: &str = "the id of a decision, correlation, evaluation or instance, whole or 8 or more characters of \
                     its beginning or end, or a request id of 1 to 128 of A-Z a-z 0-9 _ -";

/// An id, or a fragment of one, to find in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdQuery(String);

impl IdQuery {
    /// Parses an id or a fragment.
    ///
    /// # Errors
    /// The text cannot be an id.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        // Every kind of id is also a valid request id.
        match RequestId::new(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(InvalidValue::new("id", text, VALID)),
        }
    }

    fn is_exactly(&self, id: &str) -> bool {
        self.0.eq_ignore_ascii_case(id)
    }

    fn is_match(&self, id: &str) -> bool {
        let is_part =
            self.0.len() >= MIN_FRAGMENT_LEN && find::check_fragment("decision", &self.0, VALID).is_ok();
        self.is_exactly(id) || is_part && find::matches(id, &self.0)
    }
}

/// Kind of an id. Different actors may use the same request id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IdKind {
    Decision,
    Correlation,
    Evaluation,
    Instance,
    Request(Actor),
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decision => f.write_str("decision"),
            Self::Correlation => f.write_str("correlation"),
            Self::Evaluation => f.write_str("evaluation"),
            Self::Instance => f.write_str("instance"),
            Self::Request(by) => write!(f, "request of {}", actor(by)),
        }
    }
}

/// Chains to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    /// Correlations of the chains. A request with several targets starts several chains.
    pub(super) correlations: BTreeSet<DecisionId>,
    /// Decisions that the id named.
    pub(super) named_decisions: BTreeSet<DecisionId>,
    /// The chains have no decision at this position or before.
    pub(super) after: Position,
}

impl Target {
    /// Adds a decision that the id names.
    fn add(&mut self, decided: &PositionedDecision) {
        let PositionedDecision { position, decision } = decided;
        let begins = decision.id == decision.correlation;
        if !self.correlations.contains(&decision.correlation) && !begins {
            self.after = Position(0);
        } else if self.correlations.is_empty() {
            self.after = Position(position.0.saturating_sub(1));
        }
        self.correlations.insert(decision.correlation);
        self.named_decisions.insert(decision.id);
    }
}

/// Matches of an id in a log.
#[derive(Clone, Debug)]
pub(super) struct Matches {
    query: IdQuery,
    found: BTreeMap<(String, IdKind), Target>,
}

impl Matches {
    /// Starts without matches.
    pub(super) const fn new(query: IdQuery) -> Self {
        Self { query, found: BTreeMap::new() }
    }

    /// Processes the next decision of the log. Returns `true` if the id is the complete id of this decision.
    pub(super) fn take(&mut self, decided: &PositionedDecision) -> bool {
        let mut is_it = false;
        for (what, id) in ids(decided) {
            if !self.query.is_match(&id) {
                continue;
            }
            is_it |= what == IdKind::Decision && self.query.is_exactly(&id);
            let is_request = matches!(what, IdKind::Request(_));
            let target = self.found.entry((id, what)).or_default();
            // Many decisions refer to the same instance or evaluation. Only the first of them counts, because
            // it created the instance or evaluation.
            if is_request || target.named_decisions.is_empty() {
                target.add(decided);
            }
        }
        is_it
    }

    /// Returns the matching chains. Complete ids take precedence over fragments. Fails if there is no match,
    /// or if the matches belong to different commands.
    pub(super) fn target(self) -> Result<Target, Error> {
        let Self { query: sought, mut found } = self;
        if found.keys().any(|(id, _)| sought.is_exactly(id)) {
            found.retain(|(id, _), _| sought.is_exactly(id));
        }
        let chains: BTreeSet<&BTreeSet<DecisionId>> =
            found.values().map(|target| &target.correlations).collect();
        match chains.len() {
            0 => Err(Error::not_found(
                format!("decision, evaluation, instance or request {}", sought.0),
                Missing::Recorded { min_fragment_len: MIN_FRAGMENT_LEN },
            )),
            1 => Ok(merge(found.into_values())),
            chains => Err(ambiguous(&sought, chains, &found)),
        }
    }
}

/// Merges several matches of the same chains.
fn merge(targets: impl Iterator<Item = Target>) -> Target {
    let together = targets.reduce(|mut one, other| {
        one.after = one.after.min(other.after);
        one.named_decisions.extend(other.named_decisions);
        one
    });
    together.unwrap_or_default()
}

fn ambiguous(sought: &IdQuery, chains: usize, found: &BTreeMap<(String, IdKind), Target>) -> Error {
    // A correlation is the id of a decision, which is listed already.
    let all = || found.iter().filter(|((_, what), _)| *what != IdKind::Correlation);
    let name =
        |((id, what), target): (&(String, IdKind), &Target)| match (what, target.named_decisions.first()) {
            (IdKind::Decision | IdKind::Correlation, _) | (_, None) => format!("{what} {id}"),
            (IdKind::Evaluation | IdKind::Instance | IdKind::Request(_), Some(decision)) => {
                format!("{what} {id} (decision {decision})")
            }
        };
    let named: Vec<String> = all().take(MAX_NAMED).map(name).collect();
    let more = all().count().saturating_sub(MAX_NAMED);
    Error::AmbiguousCommand { id: sought.0.clone(), commands: chains, matches: named, more }
}

/// Returns the ids that a decision contains.
fn ids(decided: &PositionedDecision) -> Vec<(IdKind, String)> {
    let decision = &decided.decision;
    let mut ids = vec![
        (IdKind::Decision, decision.id.to_string()),
        (IdKind::Correlation, decision.correlation.to_string()),
    ];
    for event in &decision.events {
        if let Event::Evaluation(made @ evaluation::Event::Created { .. }) = event {
            ids.push((IdKind::Evaluation, made.evaluation(decision.id).to_string()));
        }
        ids.extend(container_guid(event).map(|guid| (IdKind::Instance, guid)));
    }
    let request = decision.request_id.as_ref();
    ids.extend(request.map(|id| (IdKind::Request(decision.actor.clone()), id.to_string())));
    ids
}

#[cfg(test)]
mod tests {
    use schemas::evaluation::{InitialStatus, Trigger};
    use schemas::names::{ClientName, DefinitionId, Domain, EvaluationId};
    use schemas::{Place, actual};

    use super::*;
    use fixtures::web::{client, container as by, decision, id};

    fn at(
        position: u64,
        number: u64,
        correlation: u64,
        actor: Actor,
        events: Vec<Event>,
    ) -> PositionedDecision {
        let mut decision = decision(number, actor, events);
        decision.id = DecisionId(id(u128::from(number) << 64 | u128::from(number)));
        decision.correlation = DecisionId(id(u128::from(correlation) << 64 | u128::from(correlation)));
        PositionedDecision { position: Position(position), decision }
    }

    fn evaluation_created(number: u8) -> Event {
        let (trigger, begin) = (Trigger::Crash, InitialStatus::Pending);
        Event::Evaluation(evaluation::Event::Created {
            number,
            trigger,
            initial_status: begin,
            previous: None,
        })
    }

    fn instance_claimed() -> Event {
        let place = Place::new(0, DefinitionId::new("web").unwrap());
        Event::Actual(actual::Event::Claimed { place, by: by(0xfeed_face, "c1"), placement: None })
    }

    /// Returns a log with a request of two chains, a consequence of one of them, another client's request
    /// with the same id, and a chain without a readable first decision.
    fn log() -> Vec<PositionedDecision> {
        let eve =
            Actor::Client { domain: Domain::new("shop").unwrap(), name: ClientName::new("eve").unwrap() };
        let mut log = vec![
            at(3, 0x10, 0x10, client(), vec![evaluation_created(0), evaluation_created(1)]),
            at(4, 0x11, 0x11, client(), vec![]),
            at(5, 0x12, 0x10, client(), vec![instance_claimed()]),
            at(6, 0x13, 0x13, eve, vec![]),
            at(7, 0x14, 0x9, client(), vec![instance_claimed()]),
        ];
        for (at, request) in [(0, "grow"), (1, "grow"), (2, "report-1"), (3, "report-1"), (4, "report-1")] {
            log[at].decision.request_id = Some(RequestId::new(request).unwrap());
        }
        log
    }

    /// Returns the correlations, the named decisions and the start position that an id resolves to.
    fn resolve_in_example_log(text: &str) -> Result<(Vec<u128>, Vec<u128>, u64), Error> {
        let mut hits = Matches::new(IdQuery::parse(text)?);
        for one in log() {
            if hits.take(&one) {
                break;
            }
        }
        let numbers = |ids: BTreeSet<DecisionId>| ids.iter().map(|id| id.0.as_u128() >> 64).collect();
        hits.target()
            .map(|target| (numbers(target.correlations), numbers(target.named_decisions), target.after.0))
    }

    #[test]
    fn id_resolves_to_chain_of_its_decision() {
        let whole = |number: u128| id(number << 64 | number).to_string();
        assert_eq!(
            resolve_in_example_log(&whole(0x10)).unwrap(),
            (vec![0x10], vec![0x10], 2),
            "a decision and a correlation"
        );
        assert_eq!(
            resolve_in_example_log(&whole(0x12)).unwrap(),
            (vec![0x10], vec![0x12], 0),
            "a decision in the middle of a chain"
        );
        assert_eq!(
            resolve_in_example_log(&whole(0x9)).unwrap(),
            (vec![0x9], vec![0x14], 0),
            "a correlation without its first decision"
        );
        assert_eq!(
            resolve_in_example_log("grow").unwrap(),
            (vec![0x10, 0x11], vec![0x10, 0x11], 2),
            "a request"
        );
        assert_eq!(
            resolve_in_example_log("00000012").unwrap(),
            (vec![0x10], vec![0x12], 0),
            "the end of an id"
        );
        let second = EvaluationId::from_decision(DecisionId(id(0x10 << 64 | 0x10)), 1).to_string();
        assert_eq!(
            resolve_in_example_log(&second.to_uppercase()).unwrap(),
            (vec![0x10], vec![0x10], 2),
            "an evaluation"
        );
        assert_eq!(
            resolve_in_example_log("feedface").unwrap(),
            (vec![0x10], vec![0x12], 0),
            "an instance resolves to its first decision"
        );
    }

    #[test]
    fn unknown_or_ambiguous_id_is_refused() {
        let error = |text: &str| resolve_in_example_log(text).unwrap_err();
        assert!(error("shrink").is_not_found());
        assert!(error("0000012").is_not_found(), "fragment too short");
        assert!(error("GROW2").is_not_found());
        assert!(matches!(error("00000000-0000"), Error::AmbiguousCommand { .. }));
        let several = error("report-1").to_string();
        for part in ["request of client shop/ada", "request of client shop/eve report-1 (decision 0"] {
            assert!(several.contains(part), "{part}: {several}");
        }
        for text in ["web/0", "", "a b", "a.b"] {
            let refused = IdQuery::parse(text).unwrap_err().to_string();
            assert!(refused.contains("8 or more characters of its beginning or end"), "{refused}");
        }
    }
}
