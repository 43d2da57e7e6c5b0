//! What has to be known of other decisions for a decision to become a span.

use std::collections::{BTreeMap, VecDeque};

use schemas::entry::Event;
use schemas::names::{DecisionId, EvaluationId};
use schemas::{Decision, Timestamp, evaluation};

/// The span of somebody else that a chain belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) trace: String,
    pub(crate) span: String,
}

impl Parent {
    /// Reads a `traceparent` (W3C Trace Context, "traceparent Header"); none: it names no span.
    fn of(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-').skip(1);
        let mut hex = |length: usize| {
            let part = parts.next()?;
            let hex = part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            (hex && part.bytes().any(|byte| byte != b'0')).then(|| part.to_ascii_lowercase())
        };
        Some(Self { trace: hex(32)?, span: hex(16)? })
    }
}

/// Where an evaluation began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) decision: DecisionId,
    pub(crate) correlation: DecisionId,
}

/// What is known of the decisions that were seen: of the newest, if there are many.
#[derive(Debug)]
pub(crate) struct Known {
    /// By the first decision of a chain: the trace that it belongs to.
    outer: Newest<DecisionId, Parent>,
    evaluations: Newest<EvaluationId, Begun>,
    decided_at: Newest<DecisionId, Timestamp>,
}

impl Known {
    /// Knows nothing yet, and never more than so many of each.
    pub(crate) const fn at_most(most: usize) -> Self {
        Self { outer: Newest::new(most), evaluations: Newest::new(most), decided_at: Newest::new(most) }
    }

    /// Takes notice of a decision.
    pub(crate) fn learn(&mut self, decision: &Decision) {
        self.decided_at.put(decision.id, decision.at);
        if decision.id == decision.correlation
            && let Some(parent) = decision.traceparent.as_deref().and_then(Parent::of)
        {
            self.outer.put(decision.id, parent);
        }
        for event in decision.events.iter().filter_map(Event::as_evaluation) {
            if let evaluation::Event::Created { .. } = event {
                let begun = Begun { decision: decision.id, correlation: decision.correlation };
                self.evaluations.put(event.evaluation(decision.id), begun);
            }
        }
    }

    /// The trace of somebody else that a chain belongs to.
    pub(crate) fn outer(&self, correlation: DecisionId) -> Option<&Parent> {
        self.outer.get(&correlation)
    }

    /// The trace that a chain is.
    pub(crate) fn trace(&self, correlation: DecisionId) -> String {
        let outer = self.outer(correlation);
        outer.map_or_else(|| correlation.0.simple().to_string(), |outer| outer.trace.clone())
    }

    /// Where an evaluation began.
    pub(crate) fn begun(&self, id: EvaluationId) -> Option<Begun> {
        self.evaluations.get(&id).copied()
    }

    /// When a decision was made. What is too old to be known says it by its id, to the millisecond.
    pub(crate) fn decided_at(&self, id: DecisionId) -> Timestamp {
        let of_id = || Timestamp::from_millis(id.0.as_u64_pair().0 >> 16);
        self.decided_at.get(&id).copied().unwrap_or_else(of_id)
    }
}

/// A map of the newest that were put in.
#[derive(Debug)]
struct Newest<K, V> {
    most: usize,
    of: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Ord + Copy, V> Newest<K, V> {
    const fn new(most: usize) -> Self {
        Self { most, of: BTreeMap::new(), order: VecDeque::new() }
    }

    fn put(&mut self, key: K, value: V) {
        if self.of.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > self.most {
            if let Some(oldest) = self.order.pop_front() {
                self.of.remove(&oldest);
            }
        }
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.of.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_names_a_trace_and_a_span() {
        let parent = Parent::of("00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert_eq!(
            (parent.trace.as_str(), parent.span.as_str()),
            ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
        );
        for none in ["", "00-x", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"] {
            assert_eq!(Parent::of(none), None, "{none}");
        }
    }

    #[test]
    fn the_newest_are_known() {
        let mut newest = Newest::new(2);
        [1, 2, 1, 3].into_iter().for_each(|key| newest.put(key, key * 10));
        assert_eq!([1, 2, 3].map(|key| newest.get(&key).copied()), [None, Some(20), Some(30)]);
        assert_eq!(newest.order.len(), 2);
    }

    #[test]
    fn who_is_not_known_says_by_its_id_when_it_was() {
        let id = DecisionId(schemas::names::Ids::new(1).next(Timestamp::from_millis(1_700_000_000_123)));
        assert_eq!(Known::at_most(1).decided_at(id), Timestamp::from_millis(1_700_000_000_123));
    }
}
