//! Verification of a log against its checkpoints.
//!
//! Each range between two checkpoints is hashed separately, starting with the hash of the first checkpoint.
//! So a difference is reported only for the range that contains it.

use schemas::Position;
use schemas::names::ClusterId;

use crate::checkpoint::{Checkpoint, PublicKey, Statement};
use crate::{Chain, Finding, Hash, Kind, Message};

/// Criteria for trusted checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trust {
    /// Key of trusted checkpoints. `None` selects the key of the first checkpoint.
    pub key: Option<PublicKey>,
    /// Cluster of trusted checkpoints. `None` accepts every cluster.
    pub cluster: Option<ClusterId>,
}

/// Maximum number of findings that are kept for one file of checkpoints. Further findings are only counted.
pub const MAX_FINDINGS: usize = 1_000;

/// Trusted checkpoints, and findings about all other checkpoints.
#[derive(Clone, Debug, Default)]
pub struct Checkpoints {
    /// Trusted checkpoints, in order.
    pub trusted: Vec<Statement>,
    /// The first [`MAX_FINDINGS`] findings.
    pub findings: Vec<Finding>,
    /// Number of further findings.
    pub omitted_findings: u64,
    trust: Trust,
    /// Number of lines so far. `previous` is the hash of the last line.
    lines: usize,
    previous: Option<Hash>,
}

impl Checkpoints {
    /// Reads a file of checkpoints.
    #[must_use]
    pub fn read(text: &[u8], trust: Trust) -> Self {
        let mut read = Self::start(trust);
        text.split_inclusive(|byte| *byte == b'\n').for_each(|line| read.read_line(line));
        read.finish()
    }

    /// Starts reading a file of checkpoints.
    #[must_use]
    pub fn start(trust: Trust) -> Self {
        Self { trust, ..Self::default() }
    }

    /// Processes the next line, including its terminator. Blank lines are skipped.
    pub fn read_line(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        self.lines += 1;
        let number = self.lines;
        match Checkpoint::read(line) {
            Ok(checkpoint) => {
                let key = *self.trust.key.get_or_insert(checkpoint.checkpoint.key);
                self.check(number, checkpoint, (key, self.trust.cluster), self.previous);
            }
            Err(error) => {
                let last = self.trusted.last().map(|last| last.position).unwrap_or_default();
                let what = format!("line {number} of the checkpoints: {error}");
                self.add_finding(Finding::at_position(Kind::Checkpoint, last, what));
            }
        }
        self.previous = Some(Hash::compute(line));
    }

    /// Ends the file. A file without checkpoints is a finding.
    #[must_use]
    pub fn finish(mut self) -> Self {
        if self.lines == 0 {
            self.add_finding(Finding::at_position(
                Kind::Checkpoint,
                Position(0),
                "the file has no checkpoints",
            ));
        }
        self
    }

    fn add_finding(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.omitted_findings += 1;
        }
    }

    fn check(
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
            let what = format!("the signature of checkpoint {number} does not match key {}", says.key);
            Some((Kind::Signature, what))
        } else if says.key != key {
            let what = format!("checkpoint {number} is signed by key {}: expected key {key}", says.key);
            Some((Kind::Key, what))
        } else if cluster.is_some_and(|cluster| cluster != says.cluster) {
            let here = cluster.map(|cluster| cluster.to_string()).unwrap_or_default();
            let what = format!("checkpoint {number} is of cluster {}: expected cluster {here}", says.cluster);
            Some((Kind::Cluster, what))
        } else if says.position < last {
            let what = format!("checkpoint {number} follows a checkpoint of the later position {last}");
            Some((Kind::Checkpoint, what))
        } else {
            None
        };
        // The previous line was changed or removed. This checkpoint is still trusted.
        if genuine && says.previous != previous {
            let what = format!(
                "checkpoint {number} does not follow the line before it: lines are missing or were changed"
            );
            self.add_finding(Finding::at_position(Kind::Checkpoint, says.position, what));
        }
        match wrong {
            Some((kind, what)) => self.add_finding(Finding::at_position(kind, says.position, what)),
            None => self.trusted.push(says),
        }
    }
}

/// Comparison of a log with its checkpoints, message by message.
#[derive(Clone, Debug)]
pub struct Verifier {
    trusted: Vec<Statement>,
    /// Number of checkpoints that have been passed.
    passed_checkpoints: usize,
    /// Chain since the last checkpoint or the start of the log. `None` if no checkpoint vouches for the
    /// messages before the chain.
    range_chain: Option<Chain>,
    /// Position before the first message of the chain.
    range_start: Position,
    last: Position,
    matched: usize,
}

impl Verifier {
    /// Creates a comparison that starts with the message at `from`.
    #[must_use]
    pub fn new(trusted: Vec<Statement>, from: Position) -> Self {
        let before = Position(from.0.saturating_sub(1));
        let passed_checkpoints = trusted.iter().take_while(|one| one.position < from).count();
        let known = trusted[..passed_checkpoints].iter().rev().find(|one| one.position == before);
        let range_chain = match known {
            Some(known) => Some(Chain::resume(before, known.hash)),
            None => (before == Position(0)).then(Chain::default),
        };
        Self { trusted, passed_checkpoints, range_chain, range_start: before, last: before, matched: 0 }
    }

    /// Returns the number of checkpoints that have matched so far.
    #[must_use]
    pub const fn matched_checkpoints(&self) -> usize {
        self.matched
    }

    /// Processes the next message. Returns new findings.
    pub fn add(&mut self, message: &Message) -> Vec<Finding> {
        let mut findings = vec![];
        let (last, here) = (self.last, message.position);
        if here.0 > last.0 + 1 {
            let gap = (Position(last.0 + 1), Position(here.0 - 1));
            findings.push(Finding::within(Kind::Missing, gap, "no message"));
            // The checkpoints in the gap cannot be compared, because the messages are missing.
            while let Some(next) = self.next_at(|position| position < here) {
                self.pass(&next);
            }
        }
        self.last = here;
        if let Some(stretch) = &mut self.range_chain {
            stretch.add(message);
        }
        while let Some(next) = self.next_at(|position| position == here) {
            let differs = self.range_chain.as_ref().is_some_and(|stretch| stretch.hash() != next.hash);
            if differs {
                let range = (Position((self.range_start.0 + 1).min(here.0)), here);
                let what = format!(
                    "the hash of the log differs from the checkpoint of {}: a message was altered, dropped, \
                     added or moved",
                    next.time
                );
                findings.push(Finding::within(Kind::RangeDiffers, range, what));
            } else {
                self.matched += usize::from(self.range_chain.is_some());
            }
            self.pass(&next);
        }
        findings
    }

    fn next_at(&self, is: impl Fn(Position) -> bool) -> Option<Statement> {
        self.trusted.get(self.passed_checkpoints).filter(|next| is(next.position)).cloned()
    }

    fn pass(&mut self, checkpoint: &Statement) {
        self.passed_checkpoints += 1;
        self.range_start = checkpoint.position;
        self.range_chain = Some(Chain::resume(checkpoint.position, checkpoint.hash));
    }

    /// Ends the log. If a checkpoint vouches for positions after the end, reports these positions as missing.
    #[must_use]
    pub fn finish(self) -> Vec<Finding> {
        let beyond = self.trusted[self.passed_checkpoints..].last();
        let missing = beyond.map(|last| {
            let range = (Position(self.last.0 + 1), last.position);
            let what = format!(
                "the log ends at position {}, but the checkpoint of {} covers position {}",
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

    /// Returns a file with checkpoints at these positions of the log.
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

    fn verify_log(log: &[Message], text: &[u8]) -> Vec<(Kind, String)> {
        let Checkpoints { trusted, mut findings, .. } =
            Checkpoints::read(text, Trust { key: None, cluster: Some(CLUSTER) });
        let mut verify = Verifier::new(trusted, log.first().map_or(Position(1), |one| one.position));
        findings.extend(log.iter().flat_map(|message| verify.add(message)));
        findings.extend(verify.finish());
        findings.into_iter().map(|finding| (finding.kind, finding.position_text())).collect()
    }

    #[test]
    fn each_range_between_checkpoints_is_reported_separately() {
        let text = checkpoints(&Key::from_bytes(&[1; 32]), CLUSTER, &[3, 6, 6, 9]);
        let log = log();
        assert_eq!(verify_log(&log, &text), []);
        assert_eq!(verify_log(&log[4..], &text), [], "a part is compared from its first checkpoint on");
        let mut altered = log.clone();
        altered[4].bytes = b"x".into();
        assert_eq!(verify_log(&altered, &text), [(Kind::RangeDiffers, "4-6".into())]);
        altered[0].subject = "t".into();
        assert_eq!(
            verify_log(&altered, &text),
            [(Kind::RangeDiffers, "1-3".into()), (Kind::RangeDiffers, "4-6".into())]
        );
        let mut late = log.clone();
        late[9].bytes = b"x".into();
        assert_eq!(verify_log(&late, &text), [], "no checkpoint covers the end yet");
        let dropped = [&log[..4], &log[5..]].concat();
        assert_eq!(
            verify_log(&dropped, &text),
            [(Kind::Missing, "5".into()), (Kind::RangeDiffers, "4-6".into())]
        );
        let more = [&log[..5], &log[6..]].concat();
        assert_eq!(verify_log(&more, &text), [(Kind::Missing, "6".into())]);
        assert_eq!(verify_log(&log[..7], &text), [(Kind::Missing, "8-9".into())]);
        assert_eq!(verify_log(&[], &text), [(Kind::Missing, "1-9".into())]);
    }

    #[test]
    fn only_genuine_checkpoints_count() {
        let key = Key::from_bytes(&[1; 32]);
        let text = checkpoints(&key, CLUSTER, &[3, 6, 9]);
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let forged =
            String::from_utf8(lines[1].to_vec()).unwrap().replace("\"position\":6", "\"position\":7");
        let told = verify_log(&log(), &[lines[0], forged.as_bytes(), lines[2]].concat());
        assert_eq!(told, [(Kind::Signature, "7".into()), (Kind::Checkpoint, "9".into())]);
        let told = verify_log(&log(), &[lines[0], lines[2]].concat());
        assert_eq!(told, [(Kind::Checkpoint, "9".into())], "a checkpoint was removed");
        let told = verify_log(&log(), &[lines[0], b"{}\n"].concat());
        assert_eq!(told, [(Kind::Checkpoint, "3".into())]);
        let other = checkpoints(&key, ClusterId(Uuid::from_u128(1)), &[3]);
        assert_eq!(verify_log(&log(), &other), [(Kind::Cluster, "3".into())]);
        for nothing in [&b""[..], b"\n \n"] {
            assert_eq!(
                verify_log(&log(), nothing),
                [(Kind::Checkpoint, "0".into())],
                "the file has no checkpoints"
            );
        }
        let garbage = [lines[0], "{}\n".repeat(MAX_FINDINGS + 7).as_bytes()].concat();
        let read = Checkpoints::read(&garbage, Trust::default());
        assert_eq!((read.trusted.len(), read.findings.len(), read.omitted_findings), (1, MAX_FINDINGS, 7));
        let trust = Trust { key: Some(Key::from_bytes(&[2; 32]).public()), cluster: None };
        let read = Checkpoints::read(&text, trust);
        assert!(read.trusted.is_empty());
        assert_eq!(read.findings.iter().map(|one| one.kind).collect::<Vec<_>>(), [Kind::Key; 3]);
    }
}
