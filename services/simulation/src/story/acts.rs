//! Acts as text.

use std::fmt;

use scenario::words::{Bad, Time, Words};

use crate::act::Act;
use crate::layout::cell_id;
use crate::shape::{Node, Shape};
use crate::story::{asks, evaluations, words};

/// First words of all acts.
const KNOWN: &str = "something that happens: desire, scale, describe, deploy, activate, restart, policy, rollout, remove, retire, exec, run task, cancel, resolve, domain, evacuate, \
                     retry evaluation of, cordon, uncordon, forget, preemption on, preemption off, shards, kill, lose cell, cut off, part, pause, lag, journal dark, no heartbeats, c1 unheard, clock of, slow, \
                     sick, full, malformed entry, power cut or expect";

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ask { domain, ask, patience, answer } => {
                asks::write(f, (ask, domain, *patience), answer.as_ref())
            }
            Self::Evacuate(cell) => write!(f, "evacuate {}", cell_id(*cell)),
            Self::Cordon(cell) => write!(f, "cordon {}", cell_id(*cell)),
            Self::Uncordon(cell) => write!(f, "uncordon {}", cell_id(*cell)),
            Self::Forget(cell) => write!(f, "forget {}", cell_id(*cell)),
            Self::Reshard(shards) => write!(f, "shards {shards}"),
            Self::Preemption(on) => write!(f, "preemption {}", if *on { "on" } else { "off" }),
            Self::Retry(of, trigger) => {
                write!(f, "retry evaluation of {of} for {}", evaluations::word(trigger))
            }
            Self::Kill { node, away } => write!(f, "kill {node} for {}", Time(*away)),
            Self::Lose { cell, away: None } => write!(f, "lose cell {}", cell_id(*cell)),
            Self::Lose { cell, away: Some(away) } => {
                write!(f, "lose cell {} for {}", cell_id(*cell), Time(*away))
            }
            Self::CutOff { node, time, journal_too, notices } => {
                let entirely = if *journal_too { " entirely" } else { "" };
                let unnoticed = if *notices { "" } else { " unnoticed" };
                write!(f, "cut off {node} for {}{entirely}{unnoticed}", Time(*time))
            }
            Self::Part { from, to, both_ways, time } => {
                let one_way = if *both_ways { "" } else { " one way" };
                write!(f, "part {} from {} for {}{one_way}", Nodes(from), Nodes(to), Time(*time))
            }
            Self::Pause { node, time } => write!(f, "pause {node} for {}", Time(*time)),
            Self::Lag { node, time } => write!(f, "lag {node} for {}", Time(*time)),
            Self::Dark(time) => write!(f, "journal dark for {}", Time(*time)),
            Self::NoHeartbeats(time) => write!(f, "no heartbeats for {}", Time(*time)),
            Self::Unheard { cell, time } => write!(f, "{} unheard for {}", cell_id(*cell), Time(*time)),
            Self::Clock { node, millis } => {
                let sign = if *millis < 0 { '-' } else { '+' };
                let time = std::time::Duration::from_millis(millis.unsigned_abs());
                write!(f, "clock of {node} {sign}{}", Time(time))
            }
            Self::Slow { cell, time } => write!(f, "slow {} for {}", cell_id(*cell), Time(*time)),
            Self::Sick { cell, time } => write!(f, "sick {} for {}", cell_id(*cell), Time(*time)),
            Self::Full { cell, time } => write!(f, "full {} for {}", cell_id(*cell), Time(*time)),
            Self::Malformed => f.write_str("malformed entry"),
            Self::PowerCut { unsynced: 0 } => f.write_str("power cut"),
            Self::PowerCut { unsynced } => write!(f, "power cut losing {unsynced}"),
        }
    }
}

/// Some nodes, or none.
struct Nodes<'a>(&'a [Node]);

impl fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(if names.is_empty() { "nobody".to_owned() } else { names.join(" ") }.as_str())
    }
}

/// Parses an act without its time.
pub(super) fn read(words: &mut Words, shape: Shape) -> Result<Act, Bad> {
    if let Some(ask) = asks::read(words)? {
        return Ok(ask);
    }
    let act = if words.take("evacuate") {
        Act::Evacuate(words::cell(words, shape)?)
    } else if words.take("cordon") {
        Act::Cordon(words::cell(words, shape)?)
    } else if words.take("uncordon") {
        Act::Uncordon(words::cell(words, shape)?)
    } else if words.take("forget") {
        Act::Forget(words::cell(words, shape)?)
    } else if words.take("preemption on") {
        Act::Preemption(true)
    } else if words.take("preemption off") {
        Act::Preemption(false)
    } else if words.take("shards") {
        Act::Reshard(words.number()?)
    } else if words.take("retry evaluation of") {
        let of = words.name("the name of a process or a task")?;
        words.must("for")?;
        Act::Retry(of, evaluations::trigger(words)?)
    } else if words.take("kill") {
        Act::Kill { node: words::node(words, shape)?, away: words.for_time()? }
    } else if words.take("lose cell") {
        let cell = words::cell(words, shape)?;
        let away = if words.peek() == Some("for") { Some(words.for_time()?) } else { None };
        Act::Lose { cell, away }
    } else if words.take("cut off") {
        let (node, time) = (words::node(words, shape)?, words.for_time()?);
        let (journal_too, unnoticed) = (words.take("entirely"), words.take("unnoticed"));
        Act::CutOff { node, time, journal_too, notices: !unnoticed }
    } else if words.take("part") {
        let from = nodes(words, shape)?;
        words.must("from")?;
        let to = nodes(words, shape)?;
        Act::Part { from, to, time: words.for_time()?, both_ways: !words.take("one way") }
    } else if words.take("pause") {
        Act::Pause { node: words::node(words, shape)?, time: words.for_time()? }
    } else if words.take("lag") {
        Act::Lag { node: words::node(words, shape)?, time: words.for_time()? }
    } else if words.take("journal dark") {
        Act::Dark(words.for_time()?)
    } else if words.take("no heartbeats") {
        Act::NoHeartbeats(words.for_time()?)
    } else if words.take("clock of") {
        Act::Clock { node: words::node(words, shape)?, millis: step(words)? }
    } else if words.take("slow") {
        Act::Slow { cell: words::cell(words, shape)?, time: words.for_time()? }
    } else if words.take("sick") {
        Act::Sick { cell: words::cell(words, shape)?, time: words.for_time()? }
    } else if words.take("full") {
        Act::Full { cell: words::cell(words, shape)?, time: words.for_time()? }
    } else if words.take("malformed entry") {
        Act::Malformed
    } else if words.take("power cut") {
        Act::PowerCut { unsynced: if words.take("losing") { words.number()? } else { 0 } }
    } else {
        let mut ahead = words.clone();
        let cell = words::cell(&mut ahead, shape).map_err(|_| words.wrong(KNOWN))?;
        ahead.must("unheard")?;
        *words = ahead;
        Act::Unheard { cell, time: words.for_time()? }
    };
    Ok(act)
}

/// Parses one or more nodes, or the word for none.
fn nodes(words: &mut Words, shape: Shape) -> Result<Vec<Node>, Bad> {
    if words.take("nobody") {
        return Ok(vec![]);
    }
    let mut nodes = vec![words::node(words, shape)?];
    while !matches!(words.peek(), Some("from" | "for")) {
        nodes.push(words::node(words, shape)?);
    }
    Ok(nodes)
}

/// Parses a clock step such as `+30s` or `-200ms`, in milliseconds.
fn step(words: &mut Words) -> Result<i64, Bad> {
    words.read("how far, as +30s or -200ms", |word| {
        let (sign, time) = word.split_at_checked(1)?;
        let millis = i64::try_from(scenario::words::duration(time)?.as_millis()).ok()?;
        match sign {
            "+" => Some(millis),
            "-" => Some(-millis),
            _ => None,
        }
    })
}
