//! Durations of commands by verb and outcome, and refusals by code. All verbs, outcomes and codes are known
//! in advance and have a fixed index, so counting allocates nothing and never waits.

use std::time::Duration;

use metrics::catalogue::{COMMAND, REFUSALS};
use metrics::counters::{Counter, Histogram};
use metrics::family::Sample;
use schemas::bus::BusSubject;
use schemas::refusal::Class;
use schemas::verb::{AuctioneerVerb, ClientVerb, OperatorVerb};
use schemas::{Code, Refusal};
use tokio::time::Instant;

/// Verb of a message that changes the state of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Client(ClientVerb),
    Operator(OperatorVerb),
    Auctioneer(AuctioneerVerb),
    Seal,
    Report,
    Attach,
    Leave,
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Refused,
    NotNow,
}

/// Verb of a received command, and its arrival time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedCommand {
    verb: Verb,
    at: Instant,
}

impl ReceivedCommand {
    /// Returns the command on this subject. `None` if the subject carries no command.
    pub(crate) fn from_subject(subject: &BusSubject) -> Option<Self> {
        let verb = match subject {
            BusSubject::Client(_, _, verb) => Verb::Client(*verb),
            BusSubject::Operator(_, verb) => Verb::Operator(*verb),
            BusSubject::Auctioneer(verb) => Verb::Auctioneer(*verb),
            BusSubject::Seal(..) => Verb::Seal,
            BusSubject::Report(_) => Verb::Report,
            BusSubject::Attach(_) => Verb::Attach,
            BusSubject::Leave(_) => Verb::Leave,
            BusSubject::ExecIo(..)
            | BusSubject::Heartbeat(_)
            | BusSubject::Rep(..)
            | BusSubject::LeaderHeartbeat(_)
            | BusSubject::Elected(_)
            | BusSubject::Alive(_)
            | BusSubject::FoundingQuery
            | BusSubject::FoundingReply
            | BusSubject::Query(..)
            | BusSubject::ForwardedQuery(..) => return None,
        };
        Some(Self { verb, at: Instant::now() })
    }
}

const CLIENT_VERBS: usize = ClientVerb::ALL.len();
const OPERATOR_VERBS: usize = OperatorVerb::ALL.len();
const AUCTIONEER_VERBS: usize = AuctioneerVerb::ALL.len();
/// Verbs of the commands that only reps send, and the verb that seals secrets.
const OTHER_VERBS: [(Verb, &str); 4] = [
    (Verb::Seal, "secret.seal"),
    (Verb::Report, "cell.report"),
    (Verb::Attach, "cell.attach"),
    (Verb::Leave, "cell.leave"),
];
const VERB_COUNT: usize = CLIENT_VERBS + OPERATOR_VERBS + AUCTIONEER_VERBS + OTHER_VERBS.len();

impl Verb {
    /// Returns all verbs in the order of their indices.
    fn all() -> impl Iterator<Item = Self> {
        let own = ClientVerb::ALL.iter().copied().map(Self::Client);
        own.chain(OperatorVerb::ALL.iter().copied().map(Self::Operator))
            .chain(AuctioneerVerb::ALL.iter().copied().map(Self::Auctioneer))
            .chain(OTHER_VERBS.map(|(verb, _)| verb))
    }

    /// Returns the index of the verb.
    const fn index(self) -> usize {
        match self {
            Self::Client(verb) => verb as usize,
            Self::Operator(verb) => CLIENT_VERBS + verb as usize,
            Self::Auctioneer(verb) => CLIENT_VERBS + OPERATOR_VERBS + verb as usize,
            Self::Seal => CLIENT_VERBS + OPERATOR_VERBS + AUCTIONEER_VERBS,
            Self::Report => CLIENT_VERBS + OPERATOR_VERBS + AUCTIONEER_VERBS + 1,
            Self::Attach => CLIENT_VERBS + OPERATOR_VERBS + AUCTIONEER_VERBS + 2,
            Self::Leave => CLIENT_VERBS + OPERATOR_VERBS + AUCTIONEER_VERBS + 3,
        }
    }

    fn label(self) -> String {
        let of = |(noun, verb): (&str, &str)| format!("{noun}.{verb}");
        match self {
            Self::Client(verb) => of(verb.noun_and_verb()),
            Self::Operator(verb) => of(verb.noun_and_verb()),
            Self::Auctioneer(verb) => of(("auctioneer", verb.as_str())),
            Self::Seal | Self::Report | Self::Attach | Self::Leave => {
                OTHER_VERBS.iter().find(|(verb, _)| *verb == self).map_or("", |(_, label)| label).to_owned()
            }
        }
    }
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Done, Self::Refused, Self::NotNow];

    const fn from_refusal(refused: Option<Code>) -> Self {
        match refused {
            None => Self::Done,
            Some(code) => match code.class() {
                Class::Retryable => Self::NotNow,
                Class::NotFound | Class::Conflict | Class::Invalid => Self::Refused,
            },
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::NotNow => "not_now",
        }
    }
}

/// Durations and refusals of commands.
#[derive(Debug)]
pub(crate) struct CommandMetrics {
    /// Durations by verb and outcome.
    durations: Vec<[Histogram; 3]>,
    /// Number of refusals by code.
    refusals: [Counter; Code::ALL.len()],
}

impl Default for CommandMetrics {
    fn default() -> Self {
        let row = |_| Outcome::ALL.map(|_| Histogram::durations());
        Self {
            durations: (0..VERB_COUNT).map(row).collect(),
            refusals: std::array::from_fn(|_| Counter::new()),
        }
    }
}

impl CommandMetrics {
    /// Records the reply to a command.
    pub(crate) fn answered<T>(&self, asked: Option<ReceivedCommand>, answer: &Result<T, Refusal>) {
        let code = answer.as_ref().err().map(|refusal| refusal.code);
        if let Some(code) = code {
            self.record_refusal(code);
        }
        if let Some(ReceivedCommand { verb, at }) = asked {
            self.record_duration(verb, code, at.elapsed());
        }
    }

    /// Counts a refusal of a request that was not decoded.
    pub(crate) fn record_refusal(&self, code: Code) {
        self.refusals[code as usize].add();
    }

    fn record_duration(&self, verb: Verb, code: Option<Code>, took: Duration) {
        self.durations[verb.index()][Outcome::from_refusal(code) as usize].observe_duration(took);
    }

    /// Returns the samples of all durations and refusals that have occurred.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let mut told = vec![];
        for (verb, row) in Verb::all().zip(&self.durations) {
            for (outcome, took) in Outcome::ALL.into_iter().zip(row) {
                let observed = took.snapshot();
                if observed.count > 0 {
                    let labels = vec![("verb", verb.label()), ("outcome", outcome.label().to_owned())];
                    told.push(COMMAND.sample(labels, observed));
                }
            }
        }
        for (code, count) in Code::ALL.iter().zip(&self.refusals) {
            if count.get() > 0 {
                told.push(REFUSALS.sample(vec![("code", code.to_string())], count.get()));
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metrics::family::Value;

    use super::*;

    #[test]
    fn verbs_and_codes_have_unique_indices() {
        assert!(Verb::all().map(Verb::index).eq(0..VERB_COUNT));
        assert_eq!(Verb::all().map(Verb::label).collect::<BTreeSet<_>>().len(), VERB_COUNT);
        assert!(Code::ALL.iter().map(|code| *code as usize).eq(0..Code::ALL.len()));
    }

    #[test]
    fn samples_have_verb_and_outcome() {
        let commands = CommandMetrics::default();
        let verb = Verb::Client(ClientVerb::LrpUpdate);
        commands.record_duration(verb, None, Duration::from_millis(2));
        commands.record_duration(verb, Some(Code::ResourceConflict), Duration::from_millis(2));
        commands.record_duration(Verb::Report, Some(Code::Unavailable), Duration::from_millis(2));
        commands.record_refusal(Code::Overloaded);
        let told: Vec<String> = commands
            .samples()
            .into_iter()
            .map(|sample| {
                let labels: Vec<String> = sample.labels.into_iter().map(|(_, value)| value).collect();
                assert!(matches!(sample.value, Value::Histogram(_) | Value::Count(1)));
                format!("{} {}", sample.family.full_name(), labels.join(" "))
            })
            .collect();
        assert_eq!(
            told,
            [
                "muster_command_seconds lrp.update done",
                "muster_command_seconds lrp.update refused",
                "muster_command_seconds cell.report not_now",
                "muster_refusals Overloaded"
            ]
        );
    }
}
