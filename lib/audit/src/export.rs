//! Export of the log as lines of JSON, and reading of an export, byte for byte.
//!
//! ```text
//! {"muster_export":1,"program":"muster 0.1.0","cluster":"…","from":1}
//! {"position":1,"time":"…","subject":"muster.event.cluster","id":"…","entry":"{\"crc32c\":…}"}
//! …
//! {"manifest":{"cluster":"…","program":"…","from":1,"to":41,"count":41,"sha256":"…","chain":"…"}}
//! ```
//! The line of an entry contains the entry as text, exactly as in the journal. An entry that is not valid
//! UTF-8, or whose text does not fit into a line, is stored in base64. The last line is the manifest. It has
//! the number of messages and the hash of everything before it. A file without a manifest is incomplete. The
//! same log always results in the same file, independent of the time and place of the export.

use data_encoding::BASE64;
use schemas::names::{ClusterId, EntryId};
use schemas::{Position, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Chain, Hash, Message};

/// Version of the export format that this program writes and reads.
pub const FORMAT: u32 = 1;
/// Maximum length of a line, in bytes. The line of a 1 MiB message has at most 6 MiB.
pub const LINE_BYTES: usize = 16 * 1024 * 1024;

/// First line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Version of the export format.
    pub muster_export: u32,
    /// Program that wrote the export.
    pub program: String,
    pub cluster: ClusterId,
    /// Position of the first message.
    pub from: Position,
}

/// Last line of an export, which summarises its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub cluster: ClusterId,
    /// Program that wrote the export.
    pub program: String,
    /// Position of the first message.
    pub from: Position,
    /// Position of the last message. In an empty export, `from` minus one.
    pub to: Position,
    /// Number of messages.
    pub count: u64,
    /// SHA-256 of all bytes before the last line.
    pub sha256: Hash,
    /// Hash of the chain at the last message, in the form of a checkpoint. `None` if the export does not
    /// start at position 1.
    pub chain: Option<Hash>,
}

#[derive(Deserialize)]
struct ManifestLine {
    manifest: Manifest,
}

#[derive(Serialize)]
struct ManifestLineRef<'a> {
    manifest: &'a Manifest,
}

/// Line of a message.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageLine {
    position: Position,
    /// Time of the last decision, for human readers. `None` if the message is not an entry or has no
    /// decisions.
    time: Option<String>,
    subject: String,
    id: Option<EntryId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entry: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// Error while writing or reading an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The first line is not the header of an export.
    #[error("not a Muster export: the first line is not an export header")]
    InvalidHeader,
    /// The export has another version of the format.
    #[error("unsupported export format {0}: expected format {FORMAT}")]
    Format(u32),
    /// The line cannot be parsed.
    #[error("invalid message in line {line}: {reason}")]
    Line {
        /// Number of the line, starting at 1.
        line: u64,
        reason: String,
    },
    /// A position is missing, or occurs more than once.
    #[error("found position {actual}, expected position {expected}: lines are missing or were added")]
    Gap {
        /// Position that must follow the previous line.
        expected: Position,
        /// Position in the line.
        actual: Position,
    },
    /// The manifest is missing. The field contains the position of the last message.
    #[error("truncated: no manifest after position {0}")]
    Truncated(Position),
    /// The manifest does not match the lines before it.
    #[error("altered: {0}")]
    Altered(String),
    /// A line follows the manifest.
    #[error("unexpected line after the manifest")]
    TrailingLine,
    /// The message does not fit into a line.
    #[error("position {position} has {bytes} bytes: at most {LINE_BYTES} bytes fit into a line of an export")]
    MessageTooLong {
        position: Position,
        /// Size of the message.
        bytes: usize,
    },
}

/// Writer of an export. The header comes first, followed by the messages and the manifest.
#[derive(Debug)]
pub struct Writer {
    head: Header,
    hasher: Sha256,
    chain: Option<Chain>,
    count: u64,
    to: Position,
}

impl Writer {
    /// Starts an export at a position. Returns the writer and the first line.
    ///
    /// # Panics
    /// Never, because a header is plain data.
    #[must_use]
    pub fn start(program: &str, cluster: ClusterId, from: Position) -> (Self, Vec<u8>) {
        let head = Header { muster_export: FORMAT, program: program.to_owned(), cluster, from };
        let line = to_line(&head);
        let mut hasher = Sha256::new();
        hasher.update(&line);
        let to = Position(from.0.saturating_sub(1));
        let chain = (from == Position(1)).then(Chain::default);
        (Self { head, hasher, chain, count: 0, to }, line)
    }

    /// Returns the line of the next message.
    ///
    /// # Errors
    /// Returns an error if the message does not fit into a line.
    pub fn add(&mut self, message: &Message) -> Result<Vec<u8>, ExportError> {
        let text = std::str::from_utf8(&message.bytes).ok();
        let as_text = text.map(|text| message_line(message, Some(text.to_owned()), None));
        let line = match as_text.filter(|line| line.len() <= LINE_BYTES) {
            Some(line) => line,
            None => message_line(message, None, Some(BASE64.encode(&message.bytes))),
        };
        if line.len() > LINE_BYTES {
            let (position, bytes) = (message.position, message.bytes.len());
            return Err(ExportError::MessageTooLong { position, bytes });
        }
        self.hasher.update(&line);
        self.chain.iter_mut().for_each(|chain| chain.add(message));
        self.count += 1;
        self.to = message.position;
        Ok(line)
    }

    /// Returns the manifest and its line.
    ///
    /// # Panics
    /// Never, because a manifest is plain data.
    #[must_use]
    pub fn finish(self) -> (Manifest, Vec<u8>) {
        let manifest = self.manifest();
        let line = to_line(&ManifestLineRef { manifest: &manifest });
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

/// Returns the line of a message. The content is in either `entry` or `base64`.
fn message_line(message: &Message, entry: Option<String>, base64: Option<String>) -> Vec<u8> {
    to_line(&MessageLine {
        position: message.position,
        time: last_decision_time(&message.bytes).map(|at| at.to_string()),
        subject: message.subject.clone(),
        id: message.id,
        entry,
        base64,
    })
}

fn to_line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("a line is always serializable");
    line.push(b'\n');
    line
}

/// Line-by-line reader of an export.
#[derive(Debug, Default)]
pub struct Reader {
    lines: u64,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Start,
    Messages(Box<Writer>),
    Complete(Box<Manifest>),
}

/// Content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedLine {
    Header(Header),
    Message(Message),
    Manifest(Manifest),
}

impl Reader {
    /// Parses the next line, including its terminator.
    ///
    /// # Errors
    /// Returns an error if the lines are not a valid and complete export.
    pub fn take(&mut self, line: &[u8]) -> Result<ParsedLine, ExportError> {
        self.lines += 1;
        match &mut self.state {
            State::Start => {
                let head = head(line)?;
                let (mut writer, _) = Writer::start(&head.program, head.cluster, head.from);
                // Hash the line as stored in the file, not in the form that this program would write.
                writer.hasher = Sha256::new();
                writer.hasher.update(line);
                self.state = State::Messages(Box::new(writer));
                Ok(ParsedLine::Header(head))
            }
            State::Messages(writer) => {
                if let Ok(ManifestLine { manifest }) = serde_json::from_slice(line) {
                    check_manifest(&manifest, &writer.manifest())?;
                    self.state = State::Complete(Box::new(manifest.clone()));
                    return Ok(ParsedLine::Manifest(manifest));
                }
                if line.last() != Some(&b'\n') {
                    return Err(ExportError::Truncated(writer.to));
                }
                let message =
                    parse_message(line).map_err(|why| ExportError::Line { line: self.lines, reason: why })?;
                let expected = Position(writer.to.0 + 1);
                if message.position != expected {
                    return Err(ExportError::Gap { expected, actual: message.position });
                }
                writer.hasher.update(line);
                writer.chain.iter_mut().for_each(|chain| chain.add(&message));
                writer.count += 1;
                writer.to = message.position;
                Ok(ParsedLine::Message(message))
            }
            State::Complete(_) => Err(ExportError::TrailingLine),
        }
    }

    /// Returns the manifest after all lines were parsed.
    ///
    /// # Errors
    /// Returns an error if the manifest is missing.
    pub fn finish(self) -> Result<Manifest, ExportError> {
        match self.state {
            State::Start => Err(ExportError::InvalidHeader),
            State::Messages(writer) => Err(ExportError::Truncated(writer.to)),
            State::Complete(manifest) => Ok(*manifest),
        }
    }
}

fn head(line: &[u8]) -> Result<Header, ExportError> {
    #[derive(Deserialize)]
    struct Version {
        muster_export: u32,
    }
    match serde_json::from_slice::<Version>(line) {
        Err(_) => Err(ExportError::InvalidHeader),
        Ok(Version { muster_export }) if muster_export != FORMAT => Err(ExportError::Format(muster_export)),
        Ok(_) => serde_json::from_slice(line)
            .map_err(|error| ExportError::Line { line: 1, reason: error.to_string() }),
    }
}

fn parse_message(line: &[u8]) -> Result<Message, String> {
    let line: MessageLine = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let bytes = match (line.entry, line.base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => BASE64.decode(text.as_bytes()).map_err(|error| format!("base64: {error}"))?,
        (Some(_), Some(_)) | (None, None) => return Err("expected either entry or base64".to_owned()),
    };
    Ok(Message { position: line.position, subject: line.subject, id: line.id, bytes })
}

/// Compares the manifest in the file with the manifest that this program computes from the lines.
fn check_manifest(says: &Manifest, read: &Manifest) -> Result<(), ExportError> {
    let differs = |what: &str, says: &str, is: &str| {
        Err(ExportError::Altered(format!("the manifest has {what} {says}, but the content has {is}")))
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

/// Returns the time of the last decision of an entry, without parsing the rest of the entry. `None` if the
/// bytes are not an entry or contain no decision.
#[must_use]
pub fn last_decision_time(bytes: &[u8]) -> Option<Timestamp> {
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
        let (mut writer, head) = Writer::start("muster 0", CLUSTER, Position(from as u64 + 1));
        let mut lines = vec![head];
        lines.extend(log()[from..].iter().map(|message| writer.add(message).unwrap()));
        lines.push(writer.finish().1);
        lines
    }

    fn read(lines: &[Vec<u8>]) -> Result<(Vec<Message>, Manifest), ExportError> {
        let (mut reader, mut messages) = (Reader::default(), vec![]);
        for line in lines {
            match reader.take(line)? {
                ParsedLine::Message(message) => messages.push(message),
                ParsedLine::Header(_) | ParsedLine::Manifest(_) => {}
            }
        }
        Ok((messages, reader.finish()?))
    }

    #[test]
    fn export_round_trips_byte_for_byte() {
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
    fn message_too_long_as_text_is_written_in_base64_or_refused() {
        let of = |byte: u8, bytes: usize| Message { bytes: vec![byte; bytes], ..log()[0].clone() };
        let write = |message: &Message| {
            let (mut writer, head) = Writer::start("muster 0", CLUSTER, Position(1));
            let line = writer.add(message)?;
            Ok::<_, ExportError>(vec![head, line, writer.finish().1])
        };
        // JSON escapes each control character as six bytes.
        let control = of(1, LINE_BYTES / 4);
        let lines = write(&control).unwrap();
        assert!(
            String::from_utf8_lossy(&lines[1]).contains("\"base64\":"),
            "the message is too long as text"
        );
        assert_eq!(read(&lines).unwrap().0, [control]);
        let long = of(200, LINE_BYTES * 3 / 4);
        let why = write(&long).unwrap_err();
        assert_eq!(why, ExportError::MessageTooLong { position: Position(1), bytes: LINE_BYTES * 3 / 4 });
    }

    #[test]
    fn incomplete_or_altered_export_is_refused() {
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
            (vec![], "not a Muster export"),
            (vec![b"{}\n".to_vec()], "not a Muster export"),
            (changed(0, "\"muster_export\":1", "\"muster_export\":2"), "export format 2: expected format 1"),
            (lines[..5].to_vec(), "truncated: no manifest after position 4"),
            (cut(3, 20), "truncated: no manifest after position 2"),
            (cut(5, 40), "truncated: no manifest after position 4"),
            (without(2), "found position 3, expected position 2"),
            (swapped, "found position 3, expected position 2"),
            (changed(2, "garbage", "garbagE"), "the manifest has sha256"),
            (changed(1, "08:00", "08:01"), "the manifest has sha256"),
            (changed(5, "\"count\":4", "\"count\":5"), "the manifest has count 5, but the content has 4"),
            (changed(2, "entry", "entity"), "invalid message in line 3"),
            ([&lines[..], &lines[1..2]].concat(), "after the manifest"),
        ];
        for (lines, told) in cases {
            let why = read(&lines).unwrap_err().to_string();
            assert!(why.contains(told), "{told}: {why}");
        }
    }
}
