//! `muster-lab decide`: computes the decision of a BBS on one command, with a given log, and prints it as JSON.
//! The command sends nothing to a cluster and writes nothing.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use cli::recorded;
use cli::secrets::LocalKeys;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use cli_base::{file, moment};
use runtime::exit::Exit;
use scenario::change::Unread;
use scenario::decide::{DecideRequest, DecideResult};
use scenario::{Change, MASS_LOSS_WAIT, Message};
use schemas::message::Ack;
use schemas::query::AsOf;
use schemas::spec::client_command;
use schemas::subject::Subject;
use schemas::{Position, Refusal};
use serde::Serialize;
use serde_json::Value;
use text::words::InvalidValue;

/// Arguments of `muster-lab decide`.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("asked").required(true))]
pub(crate) struct DecideArgs {
    /// Command in words, such as "scale web=5": one of the changes of muster what-if
    #[arg(group = "asked", value_name = "CHANGE")]
    change: Option<String>,
    /// Noun and verb of a client command, such as lrp.update; its message is read from --file
    #[arg(long = "command", group = "asked", value_name = "NOUN.VERB", value_parser = parse_verb, requires = "file")]
    verb: Option<Verb>,
    /// JSON message as a client sends it, {"envelope": ..., "body": ...}; - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Decide as of this moment: a log position, a time, or a time ago such as -10m [default: the end of the
    /// log]
    #[arg(id = "log_as_of", long = "as-of", value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
    as_of: Option<AsOf>,
    /// Decide in an empty cluster, without a recorded log
    #[arg(long, conflicts_with = "log_as_of")]
    empty: bool,
    #[command(flatten)]
    keys: LocalKeys,
}

/// Noun and verb of a command's subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verb {
    noun: String,
    verb: String,
}

fn parse_verb(text: &str) -> Result<Verb, InvalidValue> {
    let (noun, verb) = text.split_once('.').ok_or_else(|| {
        InvalidValue::new("command", text, "NOUN.VERB, such as lrp.desire, lrp.update or task.cancel")
    })?;
    Ok(Verb { noun: noun.to_owned(), verb: verb.to_owned() })
}

/// Printed outcome of a decision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
enum Outcome {
    /// These entries would be appended.
    Decided { position: Position, entries: Vec<StoredEntry> },
    /// The command would change nothing, so nothing would be appended.
    Unchanged { position: Position, version: Option<u64> },
    /// The command would be refused. If the command has several parts, `entries` are the entries of the parts
    /// before the refused part.
    Refused {
        position: Position,
        refusal: Refusal,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        entries: Vec<StoredEntry>,
    },
}

/// Entry in its stored form.
#[derive(Debug, Serialize)]
struct StoredEntry {
    subject: String,
    entry: Value,
}

pub(crate) async fn run(args: &DecideArgs, global: &Global) -> Result<(), Failure> {
    let asked = command_of(args, global)?;
    let messages: Vec<Message> = if args.empty { vec![] } else { recorded::read(global).await? };
    let recording = recorded::recording(messages, args.as_of, MASS_LOSS_WAIT)?;
    let DecideResult { answer, entries } = recording.decide(&asked).map_err(recorded::unusable_failure)?;
    let shown = outcome(recording.position(), answer, entries)?;
    let exit = match &shown {
        Outcome::Refused { refusal, .. } => Some(cli_base::failure::exit_for(refusal.code)),
        Outcome::Decided { .. } | Outcome::Unchanged { .. } => None,
    };
    Output::new(global).write_json(&shown)?;
    exit.map_or(Ok(()), |exit| Err(Failure::silent(exit)))
}

fn command_of(args: &DecideArgs, global: &Global) -> Result<DecideRequest, Failure> {
    let keys = args.keys.open(global)?;
    if let Some(Verb { noun, verb }) = &args.verb {
        let path = args.file.as_deref().unwrap_or_else(|| Path::new("-"));
        let text = file::read_text(path)?;
        let domain = global
            .domain
            .clone()
            .ok_or_else(|| Failure::usage("a client command needs a domain: pass --domain DOMAIN"))?;
        let read = client_command(noun, verb, &domain, text.as_bytes());
        let sealed =
            read.and_then(|(envelope, command)| Ok((envelope, command.sealed(&domain, &keys.sealer())?)));
        let (envelope, command) = sealed.map_err(|refusal| {
            Failure::from(refusal).while_doing(format!("read {noun}.{verb} from {}", path.display()))
        })?;
        return Ok(DecideRequest::Command(domain, Box::new(envelope), Box::new(command)));
    }
    let text = args.change.as_deref().unwrap_or_default();
    let mut items = |path: &str| file::sealed_items(Path::new(path), global.domain.as_ref(), &keys);
    match Change::read(text, &mut items) {
        Ok(Some(change)) => DecideRequest::change(change).map_err(Failure::usage),
        Ok(None) => Err(Failure::usage("the change is empty: pass a change such as \"scale web=5\"")),
        Err(Unread::Words(why)) => Err(Failure::usage(why)),
        Err(Unread::File(failure)) => Err(failure),
    }
}

fn outcome(
    position: Position,
    answer: Result<Option<Ack>, Refusal>,
    entries: Vec<(Subject, Bytes)>,
) -> Result<Outcome, Failure> {
    let stored = |(subject, bytes): (Subject, Bytes)| {
        let entry = serde_json::from_slice(&bytes).map_err(|error| {
            Failure::new(Exit::Failed, "Output", format!("the entry is not valid JSON: {error}"))
        })?;
        Ok::<_, Failure>(StoredEntry { subject: subject.to_string(), entry })
    };
    Ok(match answer {
        Err(refusal) => {
            let entries = entries.into_iter().map(stored).collect::<Result<_, _>>()?;
            Outcome::Refused { position, refusal, entries }
        }
        Ok(done) if entries.is_empty() => {
            Outcome::Unchanged { position, version: done.map(|done| done.version) }
        }
        Ok(_) => {
            let entries = entries.into_iter().map(stored).collect::<Result<_, _>>()?;
            Outcome::Decided { position, entries }
        }
    })
}
