//! Durations of commands by verb and outcome, and refusals by code. All of these are known in advance and
//! have a fixed index, so counting allocates nothing and never waits.

use std::time::Duration;

use metrics::catalogue::{COMMAND, REFUSALS};
use metrics::counted::{Counter, Histogram};
use metrics::family::Sample;
use schemas::bus::{AuctioneerVerb, BusSubject, ClientVerb, OperatorVerb};
use schemas::refusal::Class;
use schemas::{Code, Refusal};
use tokio::time::Instant;

/// Verb of a message that changes something.
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
pub(crate) struct Asked {
    verb: Verb,
    at: Instant,
}

impl Asked {
    /// Returns the command on this subject. `None` if the subject carries no command.
    pub(crate) fn on(subject: &BusSubject) -> Option<Self> {
        let verb = match subject {
            BusSubject::Client(_, _, verb) => Verb::Client(*verb),
            BusSubject::Operator(_, verb) => Verb::Operator(*verb),
            BusSubject::Auctioneer(verb) => Verb::Auctioneer(*verb),
            BusSubject::Seal(..) => Verb::Seal,
            BusSubject::Report(_) => Verb::Report,
            BusSubject::Attach(_) => Verb::Attach,
            BusSubject::Leave(_) => Verb::Leave,
            BusSubject::Talk(..)
            | BusSubject::Heartbeat(_)
            | BusSubject::Rep(..)
            | BusSubject::Beat(_)
            | BusSubject::Elected(_)
            | BusSubject::Alive(_)
            | BusSubject::FoundingAsked
            | BusSubject::FoundingKnown
            | BusSubject::Query(..)
            | BusSubject::QueryOf(..) => return None,
        };
        Some(Self { verb, at: Instant::now() })
    }
}

const CLIENT: usize = ClientVerb::ALL.len();
const OPERATOR: usize = OperatorVerb::ALL.len();
const AUCTIONEER: usize = AuctioneerVerb::ALL.len();
/// Commands that only reps send, and the sealing of secrets.
const OTHERS: [(Verb, &str); 4] = [
    (Verb::Seal, "secret.seal"),
    (Verb::Report, "cell.report"),
    (Verb::Attach, "cell.attach"),
    (Verb::Leave, "cell.leave"),
];
const VERBS: usize = CLIENT + OPERATOR + AUCTIONEER + OTHERS.len();

impl Verb {
    /// Returns all verbs in the order of their indices.
    fn all() -> impl Iterator<Item = Self> {
        let own = ClientVerb::ALL.map(Self::Client).into_iter();
        own.chain(OperatorVerb::ALL.map(Self::Operator))
            .chain(AuctioneerVerb::ALL.map(Self::Auctioneer))
            .chain(OTHERS.map(|(verb, _)| verb))
    }

    /// Returns the index of the verb.
    const fn place(self) -> usize {
        match self {
            Self::Client(verb) => verb as usize,
            Self::Operator(verb) => CLIENT + verb as usize,
            Self::Auctioneer(verb) => CLIENT + OPERATOR + verb as usize,
            Self::Seal => CLIENT + OPERATOR + AUCTIONEER,
            Self::Report => CLIENT + OPERATOR + AUCTIONEER + 1,
            Self::Attach => CLIENT + OPERATOR + AUCTIONEER + 2,
            Self::Leave => CLIENT + OPERATOR + AUCTIONEER + 3,
        }
    }

    fn label(self) -> String {
        let of = |(noun, verb): (&str, &str)| format!("{noun}.{verb}");
        match self {
            Self::Client(verb) => of(verb.noun_and_verb()),
            Self::Operator(verb) => of(verb.noun_and_verb()),
            Self::Auctioneer(verb) => of(("auctioneer", verb.as_str())),
            Self::Seal | Self::Report | Self::Attach | Self::Leave => {
                OTHERS.iter().find(|(verb, _)| *verb == self).map_or("", |(_, label)| label).to_owned()
            }
        }
    }
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Done, Self::Refused, Self::NotNow];

    const fn of(refused: Option<Code>) -> Self {
        match refused {
            None => Self::Done,
            Some(code) => match code.class() {
                Class::NotNow => Self::NotNow,
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
pub(crate) struct Commands {
    /// Durations by verb and outcome.
    took: Vec<[Histogram; 3]>,
    /// Number of refusals by code.
    refused: [Counter; Code::ALL.len()],
}

impl Default for Commands {
    fn default() -> Self {
        let row = |_| Outcome::ALL.map(|_| Histogram::of_seconds());
        Self { took: (0..VERBS).map(row).collect(), refused: Code::ALL.map(|_| Counter::new()) }
    }
}

impl Commands {
    /// Records the reply to a command.
    pub(crate) fn answered<T>(&self, asked: Option<Asked>, answer: &Result<T, Refusal>) {
        let code = answer.as_ref().err().map(|refusal| refusal.code);
        if let Some(code) = code {
            self.refused(code);
        }
        if let Some(Asked { verb, at }) = asked {
            self.took(verb, code, at.elapsed());
        }
    }

    /// Counts a refusal of a request that was not decoded.
    pub(crate) fn refused(&self, code: Code) {
        self.refused[code as usize].add();
    }

    fn took(&self, verb: Verb, code: Option<Code>, took: Duration) {
        self.took[verb.place()][Outcome::of(code) as usize].took(took);
    }

    /// Returns samples for everything that has occurred.
    pub(crate) fn tell(&self) -> Vec<Sample> {
        let mut told = vec![];
        for (verb, row) in Verb::all().zip(&self.took) {
            for (outcome, took) in Outcome::ALL.into_iter().zip(row) {
                let observed = took.observed();
                if observed.count > 0 {
                    let labels = vec![("verb", verb.label()), ("outcome", outcome.label().to_owned())];
                    told.push(COMMAND.is(labels, observed));
                }
            }
        }
        for (code, count) in Code::ALL.into_iter().zip(&self.refused) {
            if count.get() > 0 {
                told.push(REFUSALS.is(vec![("code", code.to_string())], count.get()));
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
    fn every_verb_and_code_has_a_place_of_its_own() {
        assert!(Verb::all().map(Verb::place).eq(0..VERBS));
        assert_eq!(Verb::all().map(Verb::label).collect::<BTreeSet<_>>().len(), VERBS);
        assert!(Code::ALL.iter().map(|code| *code as usize).eq(0..Code::ALL.len()));
    }

    #[test]
    fn commands_are_told_by_verb_and_outcome() {
        let commands = Commands::default();
        let verb = Verb::Client(ClientVerb::LrpUpdate);
        commands.took(verb, None, Duration::from_millis(2));
        commands.took(verb, Some(Code::ResourceConflict), Duration::from_millis(2));
        commands.took(Verb::Report, Some(Code::Unavailable), Duration::from_millis(2));
        commands.refused(Code::Overloaded);
        let told: Vec<String> = commands
            .tell()
            .into_iter()
            .map(|sample| {
                let labels: Vec<String> = sample.labels.into_iter().map(|(_, value)| value).collect();
                assert!(matches!(sample.value, Value::Observed(_) | Value::Count(1)));
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
