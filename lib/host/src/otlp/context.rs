//! Context of spans: data of earlier decisions that the conversion of a decision to a span needs.

use std::collections::{BTreeMap, VecDeque};

use schemas::entry::Event;
use schemas::names::{DecisionId, EvaluationId};
use schemas::{Decision, Timestamp, evaluation};

/// Span of another program. The span is the parent of a chain of decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) trace: String,
    pub(crate) span: String,
}

impl Parent {
    /// Parses a `traceparent` (W3C Trace Context, "traceparent Header"). Returns `None` if the text names no
    /// span.
    fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-').skip(1);
        let mut hex = |length: usize| {
            let part = parts.next()?;
            let hex = part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            (hex && part.bytes().any(|byte| byte != b'0')).then(|| part.to_ascii_lowercase())
        };
        Some(Self { trace: hex(32)?, span: hex(16)? })
    }
}

/// Decision that created an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationOrigin {
    pub(crate) decision: DecisionId,
    pub(crate) correlation: DecisionId,
}

/// Context of the newest decisions. The number of decisions is limited.
#[derive(Debug)]
pub struct TraceContext {
    /// Parent spans, by the first decision of a chain.
    outer: Newest<DecisionId, Parent>,
    evaluations: Newest<EvaluationId, EvaluationOrigin>,
    decided_at: Newest<DecisionId, Timestamp>,
}

impl TraceContext {
    /// Creates an empty context that keeps a limited number of items of each kind.
    #[must_use]
    pub const fn with_capacity(most: usize) -> Self {
        Self { outer: Newest::new(most), evaluations: Newest::new(most), decided_at: Newest::new(most) }
    }

    /// Records a decision.
    pub fn record(&mut self, decision: &Decision) {
        self.decided_at.put(decision.id, decision.at);
        if decision.id == decision.correlation
            && let Some(parent) = decision.traceparent.as_deref().and_then(Parent::parse)
        {
            self.outer.put(decision.id, parent);
        }
        for event in decision.events.iter().filter_map(Event::as_evaluation) {
            if let evaluation::Event::Created { .. } = event {
                let begun = EvaluationOrigin { decision: decision.id, correlation: decision.correlation };
                self.evaluations.put(event.evaluation(decision.id), begun);
            }
        }
    }

    /// Returns the parent span of a chain. `None` if the chain belongs to no trace of another program.
    pub(crate) fn parent(&self, correlation: DecisionId) -> Option<&Parent> {
        self.outer.get(&correlation)
    }

    /// Returns the trace id of a chain.
    pub(crate) fn trace_id(&self, correlation: DecisionId) -> String {
        let outer = self.parent(correlation);
        outer.map_or_else(|| correlation.0.simple().to_string(), |outer| outer.trace.clone())
    }

    /// Returns the decision that created an evaluation.
    #[must_use]
    pub fn origin(&self, id: EvaluationId) -> Option<EvaluationOrigin> {
        self.evaluations.get(&id).copied()
    }

    /// Returns the time of a decision. If the decision has been evicted, derives the time in milliseconds
    /// from its id.
    pub(crate) fn decided_at(&self, id: DecisionId) -> Timestamp {
        let of_id = || Timestamp::from_millis(id.0.as_u64_pair().0 >> 16);
        self.decided_at.get(&id).copied().unwrap_or_else(of_id)
    }
}

/// Map that evicts the oldest entry when it is full.
#[derive(Debug)]
struct Newest<K, V> {
    capacity: usize,
    map: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Ord + Copy, V> Newest<K, V> {
    const fn new(capacity: usize) -> Self {
        Self { capacity, map: BTreeMap::new(), order: VecDeque::new() }
    }

    fn put(&mut self, key: K, value: V) {
        if self.map.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > self.capacity {
            if let Some(oldest) = self.order.pop_front() {
                self.map.remove(&oldest);
            }
        }
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_is_parsed_to_trace_and_span() {
        let parent = Parent::parse("00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert_eq!(
            (parent.trace.as_str(), parent.span.as_str()),
            ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
        );
        for none in ["", "00-x", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"] {
            assert_eq!(Parent::parse(none), None, "{none}");
        }
    }

    #[test]
    fn newest_entries_are_kept() {
        let mut newest = Newest::new(2);
        [1, 2, 1, 3].into_iter().for_each(|key| newest.put(key, key * 10));
        assert_eq!([1, 2, 3].map(|key| newest.get(&key).copied()), [None, Some(20), Some(30)]);
        assert_eq!(newest.order.len(), 2);
    }

    #[test]
    fn time_of_evicted_decision_comes_from_its_id() {
        let id =
            DecisionId(schemas::names::IdGenerator::new(1).next(Timestamp::from_millis(1_700_000_000_123)));
        assert_eq!(TraceContext::with_capacity(1).decided_at(id), Timestamp::from_millis(1_700_000_000_123));
    }
}
