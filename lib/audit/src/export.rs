//! The log written down as lines of JSON, and read again, byte for byte.
//!
//! ```text
//! {"muster_export":1,"program":"muster 0.1.0","cluster":"…","from":1}
//! {"position":1,"time":"…","subject":"muster.event.cluster","id":"…","entry":"{\"crc32c\":…}"}
//! …
//! {"manifest":{"cluster":"…","program":"…","from":1,"to":41,"count":41,"sha256":"…","chain":"…"}}
//! ```
//! An entry stands in its line as text, so that it is there exactly as the journal has it; what is no UTF-8, or takes more
//! than a line as text, stands there in base64. The last line says how many lines there are, and the hash of everything before it: a file without it is not
//! whole. Nothing in a file depends on when or where it was made, so that the same log gives the same file.

use data_encoding::BASE64;
use schemas::names::{ClusterId, EntryId};
use schemas::{Position, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Chain, Hash, Message};

/// The version of the format that this program writes and reads.
pub const FORMAT: u32 = 1;
/// The longest line that is written and read, in bytes. A message of a mebibyte takes six at the most.
pub const LINE_BYTES: usize = 16 * 1024 * 1024;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The version of the format.
    pub muster_export: u32,
    /// The program that wrote it.
    pub program: String,
    /// The cluster.
    pub cluster: ClusterId,
    /// Where the first message stands.
    pub from: Position,
}

/// The last line: what there is in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The cluster.
    pub cluster: ClusterId,
    /// The program that wrote it.
    pub program: String,
    /// Where the first message stands.
    pub from: Position,
    /// Where the last one does; one before `from`: there is none.
    pub to: Position,
    /// How many there are.
    pub count: u64,
    /// The SHA-256 of every byte before the last line.
    pub sha256: Hash,
    /// The hash of the chain at the last message, as checkpoints have it; none: it doesn't begin at position 1.
    pub chain: Option<Hash>,
}

#[derive(Deserialize)]
struct Last {
    manifest: Manifest,
}

#[derive(Serialize)]
struct LastRef<'a> {
    manifest: &'a Manifest,
}

/// A message as a line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    position: Position,
    /// When its last decision was made, for people; none: it is no entry.
    time: Option<String>,
    subject: String,
    id: Option<EntryId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entry: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// Why lines are no export that this program can take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The first line is another's.
    #[error("it is no export of muster: its first line is not the head of one")]
    NotAnExport,
    /// It was written by another version of the program.
    #[error("it is an export of format {0}, this program reads format {FORMAT}")]
    Format(u32),
    /// A line can't be read.
    #[error("line {line} is no message of an export: {why}")]
    Line {
        /// Which, from 1.
        line: u64,
        /// Why.
        why: String,
    },
    /// A message is missing, or one is too many.
    #[error("position {found} stands where position {expected} has to: lines are missing or were added")]
    Gap {
        /// What follows from the line before.
        expected: Position,
        /// What is there.
        found: Position,
    },
    /// The last line is not there.
    #[error("it is truncated: behind position {0} its manifest is missing")]
    Truncated(Position),
    /// The last line doesn't fit what is before it.
    #[error("it was altered: {0}")]
    Altered(String),
    /// Something stands behind the last line.
    #[error("something stands behind its manifest")]
    Behind,
    /// A message takes more than a line.
    #[error(
        "position {position} holds {bytes} bytes, more than a line of an export takes ({LINE_BYTES} bytes)"
    )]
    TooLong {
        /// Where it stands.
        position: Position,
        /// How many bytes it has.
        bytes: usize,
    },
}

/// Writes a log down: the head first, then messages, then the manifest.
#[derive(Debug)]
pub struct Writer {
    head: Head,
    hasher: Sha256,
    chain: Option<Chain>,
    count: u64,
    to: Position,
}

impl Writer {
    /// Begins at a position. Answers the first line.
    ///
    /// # Panics
    /// Never: a head is plain data.
    #[must_use]
    pub fn begin(program: &str, cluster: ClusterId, from: Position) -> (Self, Vec<u8>) {
        let head = Head { muster_export: FORMAT, program: program.to_owned(), cluster, from };
        let line = line_of(&head);
        let mut hasher = Sha256::new();
        hasher.update(&line);
        let to = Position(from.0.saturating_sub(1));
        let chain = (from == Position(1)).then(Chain::default);
        (Self { head, hasher, chain, count: 0, to }, line)
    }

    /// The line of the next message.
    ///
    /// # Errors
    /// The message takes more than a line.
    pub fn line(&mut self, message: &Message) -> Result<Vec<u8>, ExportError> {
        let text = std::str::from_utf8(&message.bytes).ok();
        let as_text = text.map(|text| of_message(message, Some(text.to_owned()), None));
        let line = match as_text.filter(|line| line.len() <= LINE_BYTES) {
            Some(line) => line,
            None => of_message(message, None, Some(BASE64.encode(&message.bytes))),
        };
        if line.len() > LINE_BYTES {
            let (position, bytes) = (message.position, message.bytes.len());
            return Err(ExportError::TooLong { position, bytes });
        }
        self.hasher.update(&line);
        self.chain.iter_mut().for_each(|chain| chain.add(message));
        self.count += 1;
        self.to = message.position;
        Ok(line)
    }

    /// The last line, and what it says.
    ///
    /// # Panics
    /// Never: a manifest is plain data.
    #[must_use]
    pub fn finish(self) -> (Manifest, Vec<u8>) {
        let manifest = self.manifest();
        let line = line_of(&LastRef { manifest: &manifest });
        (manifest, line)
    }

    fn manifest(&self) -> Manifest {
        Manifest {
            cluster: self.head.cluster,
            program: self.head.program.clone(),
            from: self.head.from,
            to: self.to,
            count: self.count,
            sha256: Hash(self.hasher.clone().finalize().into()),
            chain: self.chain.as_ref().map(Chain::hash),
        }
    }
}

/// A message as a line, by one of its two spellings.
fn of_message(message: &Message, entry: Option<String>, base64: Option<String>) -> Vec<u8> {
    line_of(&Line {
        position: message.position,
        time: time_of(&message.bytes).map(|at| at.to_string()),
        subject: message.subject.clone(),
        id: message.id,
        entry,
        base64,
    })
}

fn line_of(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("a line is plain data");
    line.push(b'\n');
    line
}

/// Reads an export, line by line.
#[derive(Debug, Default)]
pub struct Reader {
    lines: u64,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Begins,
    Goes(Box<Writer>),
    Ended(Box<Manifest>),
}

/// What a line holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is the first.
    Head(Head),
    /// A message.
    Message(Message),
    /// It is the last.
    Manifest(Manifest),
}

impl Reader {
    /// Takes the next line, with what ends it.
    ///
    /// # Errors
    /// Why this is no export, or not a whole one.
    pub fn take(&mut self, line: &[u8]) -> Result<Taken, ExportError> {
        self.lines += 1;
        match &mut self.state {
            State::Begins => {
                let head = head(line)?;
                let (mut writer, _) = Writer::begin(&head.program, head.cluster, head.from);
                // What counts is what stands there.
                writer.hasher = Sha256::new();
                writer.hasher.update(line);
                self.state = State::Goes(Box::new(writer));
                Ok(Taken::Head(head))
            }
            State::Goes(writer) => {
                if let Ok(Last { manifest }) = serde_json::from_slice(line) {
                    check(&manifest, &writer.manifest())?;
                    self.state = State::Ended(Box::new(manifest.clone()));
                    return Ok(Taken::Manifest(manifest));
                }
                if line.last() != Some(&b'\n') {
                    return Err(ExportError::Truncated(writer.to));
                }
                let message = message(line).map_err(|why| ExportError::Line { line: self.lines, why })?;
                let expected = Position(writer.to.0 + 1);
                if message.position != expected {
                    return Err(ExportError::Gap { expected, found: message.position });
                }
                writer.hasher.update(line);
                writer.chain.iter_mut().for_each(|chain| chain.add(&message));
                writer.count += 1;
                writer.to = message.position;
                Ok(Taken::Message(message))
            }
            State::Ended(_) => Err(ExportError::Behind),
        }
    }

    /// What there was in all, once every line was taken.
    ///
    /// # Errors
    /// The manifest never came.
    pub fn finish(self) -> Result<Manifest, ExportError> {
        match self.state {
            State::Begins => Err(ExportError::NotAnExport),
            State::Goes(writer) => Err(ExportError::Truncated(writer.to)),
            State::Ended(manifest) => Ok(*manifest),
        }
    }
}

fn head(line: &[u8]) -> Result<Head, ExportError> {
    #[derive(Deserialize)]
    struct Version {
        muster_export: u32,
    }
    match serde_json::from_slice::<Version>(line) {
        Err(_) => Err(ExportError::NotAnExport),
        Ok(Version { muster_export }) if muster_export != FORMAT => Err(ExportError::Format(muster_export)),
        Ok(_) => serde_json::from_slice(line)
            .map_err(|error| ExportError::Line { line: 1, why: error.to_string() }),
    }
}

fn message(line: &[u8]) -> Result<Message, String> {
    let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let bytes = match (line.entry, line.base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => BASE64.decode(text.as_bytes()).map_err(|error| format!("base64: {error}"))?,
        (Some(_), Some(_)) | (None, None) => return Err("it needs one of entry and base64".to_owned()),
    };
    Ok(Message { position: line.position, subject: line.subject, id: line.id, bytes })
}

/// Compares what a manifest says with what was read.
fn check(says: &Manifest, read: &Manifest) -> Result<(), ExportError> {
    let differs = |what: &str, says: &str, is: &str| {
        Err(ExportError::Altered(format!("its manifest says {what} {says}, and it is {is}")))
    };
    let number = |count: u64| count.to_string();
    if says.cluster != read.cluster {
        return differs("cluster", &says.cluster.to_string(), &read.cluster.to_string());
    }
    if says.program != read.program {
        return differs("program", &says.program, &read.program);
    }
    if (says.from, says.to) != (read.from, read.to) {
        let range = |of: &Manifest| format!("{}-{}", of.from, of.to);
        return differs("positions", &range(says), &range(read));
    }
    if says.count != read.count {
        return differs("count", &number(says.count), &number(read.count));
    }
    if says.sha256 != read.sha256 {
        return differs("sha256", &says.sha256.to_string(), &read.sha256.to_string());
    }
    if says.chain != read.chain {
        let of = |hash: Option<Hash>| hash.map_or_else(|| "none".to_owned(), |hash| hash.to_string());
        return differs("chain", &of(says.chain), &of(read.chain));
    }
    Ok(())
}

/// When the last decision of an entry was made, without reading the rest of it; none: it is no entry, or holds none.
#[must_use]
pub fn time_of(bytes: &[u8]) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Entry {
        decisions: Vec<Decision>,
    }
    #[derive(Deserialize)]
    struct Decision {
        at: Timestamp,
    }
    let entry: Entry = serde_json::from_slice(bytes).ok()?;
    entry.decisions.into_iter().map(|decision| decision.at).max()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const CLUSTER: ClusterId = ClusterId(Uuid::nil());

    fn log() -> Vec<Message> {
        let message = |position, id: Option<u128>, bytes: &[u8]| Message {
            position: Position(position),
            subject: format!("muster.event.{position}"),
            id: id.map(|id| EntryId(Uuid::from_u128(id))),
            bytes: bytes.into(),
        };
        vec![
            message(
                1,
                Some(7),
                br#"{"decisions":[{"at":"2027-01-15T08:00:00.123456789Z"}],"more":"\u00fc\n"}"#,
            ),
            message(2, None, b"garbage, \"quoted\" \xc3\xbc\n"),
            message(3, Some(8), &[0, 159, 146, 150]),
            message(4, Some(7), b""),
        ]
    }

    fn written(from: usize) -> Vec<Vec<u8>> {
        let (mut writer, head) = Writer::begin("muster 0", CLUSTER, Position(from as u64 + 1));
        let mut lines = vec![head];
        lines.extend(log()[from..].iter().map(|message| writer.line(message).unwrap()));
        lines.push(writer.finish().1);
        lines
    }

    fn read(lines: &[Vec<u8>]) -> Result<(Vec<Message>, Manifest), ExportError> {
        let (mut reader, mut messages) = (Reader::default(), vec![]);
        for line in lines {
            match reader.take(line)? {
                Taken::Message(message) => messages.push(message),
                Taken::Head(_) | Taken::Manifest(_) => {}
            }
        }
        Ok((messages, reader.finish()?))
    }

    #[test]
    fn what_is_written_down_is_read_byte_for_byte() {
        let lines = written(0);
        let (messages, manifest) = read(&lines).unwrap();
        assert_eq!(messages, log());
        let mut chain = Chain::default();
        log().iter().for_each(|message| chain.add(message));
        assert_eq!((manifest.count, manifest.to, manifest.chain), (4, Position(4), Some(chain.hash())));
        let text = String::from_utf8(lines[1].clone()).unwrap();
        assert!(text.contains(r#""time":"2027-01-15T08:00:00.123Z""#), "{text}");
        assert!(text.starts_with(r#"{"position":1,"#), "{text}");
        let (messages, manifest) = read(&written(2)).unwrap();
        assert_eq!((messages, manifest.chain), (log()[2..].to_vec(), None));
        let (messages, manifest) = read(&written(4)).unwrap();
        assert_eq!((messages.len(), manifest.from, manifest.to), (0, Position(5), Position(4)));
    }

    #[test]
    fn what_takes_more_than_a_line_as_text_is_written_in_base64_or_refused() {
        let of = |byte: u8, bytes: usize| Message { bytes: vec![byte; bytes], ..log()[0].clone() };
        let write = |message: &Message| {
            let (mut writer, head) = Writer::begin("muster 0", CLUSTER, Position(1));
            let line = writer.line(message)?;
            Ok::<_, ExportError>(vec![head, line, writer.finish().1])
        };
        // Six bytes of JSON each.
        let control = of(1, LINE_BYTES / 4);
        let lines = write(&control).unwrap();
        assert!(String::from_utf8_lossy(&lines[1]).contains("\"base64\":"), "as text it is too long");
        assert_eq!(read(&lines).unwrap().0, [control]);
        let long = of(200, LINE_BYTES * 3 / 4);
        let why = write(&long).unwrap_err();
        assert_eq!(why, ExportError::TooLong { position: Position(1), bytes: LINE_BYTES * 3 / 4 });
    }

    #[test]
    fn what_is_not_whole_or_not_as_it_was_is_refused() {
        let lines = written(0);
        let without = |at: usize| [&lines[..at], &lines[at + 1..]].concat();
        let cut = |line: usize, bytes: usize| {
            let mut cut = lines[..=line].to_vec();
            cut[line].truncate(bytes);
            cut
        };
        let changed = |line: usize, from: &str, to: &str| {
            let mut changed = lines.clone();
            changed[line] = String::from_utf8(changed[line].clone()).unwrap().replace(from, to).into_bytes();
            changed
        };
        let swapped = [&lines[..2], &lines[3..4], &lines[2..3], &lines[4..]].concat();
        let cases = [
            (vec![], "no export of muster"),
            (vec![b"{}\n".to_vec()], "no export of muster"),
            (
                changed(0, "\"muster_export\":1", "\"muster_export\":2"),
                "format 2, this program reads format 1",
            ),
            (lines[..5].to_vec(), "truncated: behind position 4"),
            (cut(3, 20), "truncated: behind position 2"),
            (cut(5, 40), "truncated: behind position 4"),
            (without(2), "position 3 stands where position 2"),
            (swapped, "position 3 stands where position 2"),
            (changed(2, "garbage", "garbagE"), "its manifest says sha256"),
            (changed(1, "08:00", "08:01"), "its manifest says sha256"),
            (changed(5, "\"count\":4", "\"count\":5"), "its manifest says count 5, and it is 4"),
            (changed(2, "entry", "entity"), "line 3 is no message"),
            ([&lines[..], &lines[1..2]].concat(), "behind its manifest"),
        ];
        for (lines, told) in cases {
            let why = read(&lines).unwrap_err().to_string();
            assert!(why.contains(told), "{told}: {why}");
        }
    }
}
