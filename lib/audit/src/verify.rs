//! What of a log isn't as its checkpoints say.
//!
//! Each stretch between two checkpoints is hashed by itself, from the hash that the first one vouches for. So what differs
//! in one stretch is told of that stretch alone.

use schemas::Position;
use schemas::names::ClusterId;

use crate::checkpoint::{Checkpoint, PublicKey, Statement};
use crate::{Chain, Finding, Hash, Kind, Message};

/// What is known of who may vouch for what.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trust {
    /// Whose checkpoints count; none: those of whoever signed the first.
    pub key: Option<PublicKey>,
    /// Of which cluster they have to be; none: of any.
    pub cluster: Option<ClusterId>,
}

/// What is wrong with the lines of one file of checkpoints that is told, at the most. All of it is counted.
pub const FINDINGS: usize = 1_000;

/// Checkpoints that count, and what is wrong with the others.
#[derive(Clone, Debug, Default)]
pub struct Checkpoints {
    /// Those that count, in order.
    pub trusted: Vec<Statement>,
    /// What is wrong: the first [`FINDINGS`] of it.
    pub findings: Vec<Finding>,
    /// How much more is wrong.
    pub more: u64,
    trust: Trust,
    /// How many lines there were, and the hash of the last one.
    lines: usize,
    previous: Option<Hash>,
}

impl Checkpoints {
    /// Reads the lines of a file of checkpoints.
    #[must_use]
    pub fn read(text: &[u8], trust: Trust) -> Self {
        let mut read = Self::begin(trust);
        text.split_inclusive(|byte| *byte == b'\n').for_each(|line| read.line(line));
        read.finish()
    }

    /// Begins to read a file.
    #[must_use]
    pub fn begin(trust: Trust) -> Self {
        Self { trust, ..Self::default() }
    }

    /// Takes the next line, with what ends it. Blank ones say nothing.
    pub fn line(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        self.lines += 1;
        let number = self.lines;
        match Checkpoint::read(line) {
            Ok(checkpoint) => {
                let key = *self.trust.key.get_or_insert(checkpoint.checkpoint.key);
                self.take(number, checkpoint, (key, self.trust.cluster), self.previous);
            }
            Err(error) => {
                let last = self.trusted.last().map(|last| last.position).unwrap_or_default();
                let what = format!("line {number} of the checkpoints: {error}");
                self.find(Finding::at(Kind::Checkpoint, last, what));
            }
        }
        self.previous = Some(Hash::of(line));
    }

    /// That was the last line.
    #[must_use]
    pub fn finish(mut self) -> Self {
        if self.lines == 0 {
            self.find(Finding::at(Kind::Checkpoint, Position(0), "it holds no checkpoint"));
        }
        self
    }

    fn find(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }

    fn take(
        &mut self,
        number: usize,
        checkpoint: Checkpoint,
        (key, cluster): (PublicKey, Option<ClusterId>),
        previous: Option<Hash>,
    ) {
        let genuine = checkpoint.is_genuine();
        let says = checkpoint.checkpoint;
        let last = self.trusted.last().map(|last| last.position).unwrap_or_default();
        let wrong = if !genuine {
            let what = format!("the signature of checkpoint {number} is not that of key {}", says.key);
            Some((Kind::Signature, what))
        } else if says.key != key {
            let what = format!("checkpoint {number} is signed by key {}, and {key} was to sign it", says.key);
            Some((Kind::Key, what))
        } else if cluster.is_some_and(|cluster| cluster != says.cluster) {
            let here = cluster.map(|cluster| cluster.to_string()).unwrap_or_default();
            let what =
                format!("checkpoint {number} is of cluster {}, and this is cluster {here}", says.cluster);
            Some((Kind::Cluster, what))
        } else if says.position < last {
            let what = format!("checkpoint {number} stands behind one of position {last}");
            Some((Kind::Checkpoint, what))
        } else {
            None
        };
        // The line before is another, or gone: what this one vouches for holds all the same.
        if genuine && says.previous != previous {
            let what = format!(
                "checkpoint {number} doesn't follow the line before it: lines are missing or were changed"
            );
            self.find(Finding::at(Kind::Checkpoint, says.position, what));
        }
        match wrong {
            Some((kind, what)) => self.find(Finding::at(kind, says.position, what)),
            None => self.trusted.push(says),
        }
    }
}

/// Compares a log with its checkpoints, message by message.
#[derive(Clone, Debug)]
pub struct Verify {
    trusted: Vec<Statement>,
    /// How many checkpoints were passed.
    passed: usize,
    /// From the last checkpoint on, or from the beginning; none: nobody vouches for what is before.
    stretch: Option<Chain>,
    /// Where the stretch begins, less one.
    begins: Position,
    last: Position,
    held: usize,
}

impl Verify {
    /// Begins with the message at `from`.
    #[must_use]
    pub fn new(trusted: Vec<Statement>, from: Position) -> Self {
        let before = Position(from.0.saturating_sub(1));
        let passed = trusted.iter().take_while(|one| one.position < from).count();
        let known = trusted[..passed].iter().rev().find(|one| one.position == before);
        let stretch = match known {
            Some(known) => Some(Chain::behind(before, known.hash)),
            None => (before == Position(0)).then(Chain::default),
        };
        Self { trusted, passed, stretch, begins: before, last: before, held: 0 }
    }

    /// How many checkpoints held so far.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Takes the next message. Answers what is wrong.
    pub fn add(&mut self, message: &Message) -> Vec<Finding> {
        let mut findings = vec![];
        let (last, here) = (self.last, message.position);
        if here.0 > last.0 + 1 {
            let gap = (Position(last.0 + 1), Position(here.0 - 1));
            findings.push(Finding::within(Kind::Missing, gap, "nothing stands there"));
            // What a checkpoint vouches for there can't be compared with anything.
            while let Some(next) = self.next_at(|position| position < here) {
                self.pass(&next);
            }
        }
        self.last = here;
        if let Some(stretch) = &mut self.stretch {
            stretch.add(message);
        }
        while let Some(next) = self.next_at(|position| position == here) {
            let differs = self.stretch.as_ref().is_some_and(|stretch| stretch.hash() != next.hash);
            if differs {
                let range = (Position((self.begins.0 + 1).min(here.0)), here);
                let what = format!(
                    "the hash of the log there is not that of the checkpoint of {}: something in it was altered, dropped, added or moved",
                    next.time
                );
                findings.push(Finding::within(Kind::Differs, range, what));
            } else {
                self.held += usize::from(self.stretch.is_some());
            }
            self.pass(&next);
        }
        findings
    }

    fn next_at(&self, is: impl Fn(Position) -> bool) -> Option<Statement> {
        self.trusted.get(self.passed).filter(|next| is(next.position)).cloned()
    }

    fn pass(&mut self, checkpoint: &Statement) {
        self.passed += 1;
        self.begins = checkpoint.position;
        self.stretch = Some(Chain::behind(checkpoint.position, checkpoint.hash));
    }

    /// The log ends here: what checkpoints vouch for behind that is missing.
    #[must_use]
    pub fn finish(self) -> Vec<Finding> {
        let beyond = self.trusted[self.passed..].last();
        let missing = beyond.map(|last| {
            let range = (Position(self.last.0 + 1), last.position);
            let what = format!(
                "the log ends at position {}, and the checkpoint of {} vouches for position {}",
                self.last, last.time, last.position
            );
            Finding::within(Kind::Missing, range, what)
        });
        missing.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::checkpoint::Key;

    const CLUSTER: ClusterId = ClusterId(Uuid::nil());

    fn log() -> Vec<Message> {
        let message = |position: u64| Message {
            position: Position(position),
            subject: "s".into(),
            id: None,
            bytes: vec![u8::try_from(position).unwrap()],
        };
        (1..=10).map(message).collect()
    }

    /// Checkpoints at these positions of the log.
    fn checkpoints(key: &Key, cluster: ClusterId, at: &[u64]) -> Vec<u8> {
        let (mut text, mut before): (Vec<u8>, Option<Vec<u8>>) = (vec![], None);
        for position in at {
            let mut chain = Chain::default();
            log().iter().take(usize::try_from(*position).unwrap()).for_each(|one| chain.add(one));
            let (_, line) = key.sign(cluster, &chain, Timestamp(0), before.as_deref());
            text.extend(&line);
            before = Some(line);
        }
        text
    }

    fn of(log: &[Message], text: &[u8]) -> Vec<(Kind, String)> {
        let Checkpoints { trusted, mut findings, .. } =
            Checkpoints::read(text, Trust { key: None, cluster: Some(CLUSTER) });
        let mut verify = Verify::new(trusted, log.first().map_or(Position(1), |one| one.position));
        findings.extend(log.iter().flat_map(|message| verify.add(message)));
        findings.extend(verify.finish());
        findings.into_iter().map(|finding| (finding.kind, finding.place())).collect()
    }

    #[test]
    fn each_stretch_is_told_by_itself() {
        let text = checkpoints(&Key::of(&[1; 32]), CLUSTER, &[3, 6, 6, 9]);
        let log = log();
        assert_eq!(of(&log, &text), []);
        assert_eq!(of(&log[4..], &text), [], "a part is compared from the first checkpoint in it on");
        let mut altered = log.clone();
        altered[4].bytes = b"x".into();
        assert_eq!(of(&altered, &text), [(Kind::Differs, "4-6".into())]);
        altered[0].subject = "t".into();
        assert_eq!(of(&altered, &text), [(Kind::Differs, "1-3".into()), (Kind::Differs, "4-6".into())]);
        let mut late = log.clone();
        late[9].bytes = b"x".into();
        assert_eq!(of(&late, &text), [], "nobody vouches for the end yet");
        let dropped = [&log[..4], &log[5..]].concat();
        assert_eq!(of(&dropped, &text), [(Kind::Missing, "5".into()), (Kind::Differs, "4-6".into())]);
        let more = [&log[..5], &log[6..]].concat();
        assert_eq!(of(&more, &text), [(Kind::Missing, "6".into())]);
        assert_eq!(of(&log[..7], &text), [(Kind::Missing, "8-9".into())]);
        assert_eq!(of(&[], &text), [(Kind::Missing, "1-9".into())]);
    }

    #[test]
    fn only_checkpoints_that_are_genuine_count() {
        let key = Key::of(&[1; 32]);
        let text = checkpoints(&key, CLUSTER, &[3, 6, 9]);
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let forged =
            String::from_utf8(lines[1].to_vec()).unwrap().replace("\"position\":6", "\"position\":7");
        let told = of(&log(), &[lines[0], forged.as_bytes(), lines[2]].concat());
        assert_eq!(told, [(Kind::Signature, "7".into()), (Kind::Checkpoint, "9".into())]);
        let told = of(&log(), &[lines[0], lines[2]].concat());
        assert_eq!(told, [(Kind::Checkpoint, "9".into())], "one was taken away");
        let told = of(&log(), &[lines[0], b"{}\n"].concat());
        assert_eq!(told, [(Kind::Checkpoint, "3".into())]);
        let other = checkpoints(&key, ClusterId(Uuid::from_u128(1)), &[3]);
        assert_eq!(of(&log(), &other), [(Kind::Cluster, "3".into())]);
        for nothing in [&b""[..], b"\n \n"] {
            assert_eq!(of(&log(), nothing), [(Kind::Checkpoint, "0".into())], "it vouches for nothing");
        }
        let garbage = [lines[0], "{}\n".repeat(FINDINGS + 7).as_bytes()].concat();
        let read = Checkpoints::read(&garbage, Trust::default());
        assert_eq!((read.trusted.len(), read.findings.len(), read.more), (1, FINDINGS, 7));
        let trust = Trust { key: Some(Key::of(&[2; 32]).public()), cluster: None };
        let read = Checkpoints::read(&text, trust);
        assert!(read.trusted.is_empty());
        assert_eq!(read.findings.iter().map(|one| one.kind).collect::<Vec<_>>(), [Kind::Key; 3]);
    }
}
