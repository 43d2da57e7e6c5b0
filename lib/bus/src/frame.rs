//! Frames of the Unix socket protocol, each preceded by its length.
//!
//! ```text
//!   length of the rest  kind  number  milliseconds  length  subject  length  other  payload
//!   4                   1     8       4             2       ..       2       ..     ..
//! ```
//! Numbers are big-endian. An invalid or oversized frame ends its connection.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::limits::FRAME_BYTES;

/// Greeting of a client, which identifies the protocol. The server rejects clients of other protocols.
pub(super) const GREETING: &str = "muster-bus-1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Client: the greeting is in the subject, the inbox in `extra`. The server responds to the greeting.
    Hello,
    /// Client: a message to publish.
    Publish,
    /// Client: a request with a number and a timeout. The server may not respond.
    Request,
    /// Client: subscribe to the subject under this number. If `extra` is not empty, it names the queue group
    /// of the subscription. The server responds.
    Subscribe,
    /// Client: end the subscription with this number.
    Unsubscribe,
    /// Server: the response to the request with this number.
    Response,
    /// Server: the request with this number has no subscriber.
    NoResponder,
    /// Server: the request with this number timed out.
    TimedOut,
    /// Server: the request with this number is refused. The reason is in `extra`.
    Refused,
    /// Server: a message for the subscription with this number. The reply subject is in `extra`.
    Message,
}

const KINDS: [Kind; 10] = [
    Kind::Hello,
    Kind::Publish,
    Kind::Request,
    Kind::Subscribe,
    Kind::Unsubscribe,
    Kind::Response,
    Kind::NoResponder,
    Kind::TimedOut,
    Kind::Refused,
    Kind::Message,
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) number: u64,
    pub(super) millis: u32,
    pub(super) subject: String,
    pub(super) extra: String,
    pub(super) payload: Bytes,
}

impl Frame {
    pub(super) fn new(kind: Kind, number: u64) -> Self {
        Self { kind, number, millis: 0, subject: String::new(), extra: String::new(), payload: Bytes::new() }
    }

    fn encode(&self, into: &mut BytesMut) -> io::Result<()> {
        let lengths = (u16::try_from(self.subject.len()), u16::try_from(self.extra.len()));
        let (Ok(subject), Ok(other)) = lengths else { return Err(invalid_data("subject too long")) };
        let length = HEADER_BYTES + self.subject.len() + self.extra.len() + self.payload.len();
        let length = u32::try_from(length).ok().filter(|_| length <= FRAME_BYTES);
        into.put_u32(length.ok_or_else(|| invalid_data("frame too large"))?);
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        into.put_u8(u8::try_from(kind).unwrap_or(0));
        into.put_u64(self.number);
        into.put_u32(self.millis);
        into.put_u16(subject);
        into.put_slice(self.subject.as_bytes());
        into.put_u16(other);
        into.put_slice(self.extra.as_bytes());
        into.put_slice(&self.payload);
        Ok(())
    }

    fn decode(mut bytes: Bytes) -> Option<Self> {
        let kind = *KINDS.get(usize::from(bytes.try_get_u8().ok()?))?;
        let (number, millis) = (bytes.try_get_u64().ok()?, bytes.try_get_u32().ok()?);
        let subject = read_text(&mut bytes)?;
        let extra = read_text(&mut bytes)?;
        Some(Self { kind, number, millis, subject, extra, payload: bytes })
    }
}

/// Length of the fixed fields of a frame in bytes, without the length field before the frame.
const HEADER_BYTES: usize = 1 + 8 + 4 + 2 + 2;

fn read_text(bytes: &mut Bytes) -> Option<String> {
    let length = usize::from(bytes.try_get_u16().ok()?);
    if bytes.len() < length {
        return None;
    }
    String::from_utf8(bytes.split_to(length).to_vec()).ok()
}

/// Reads the next frame. Returns `None` if the other side has closed the connection.
pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let length = match from.read_u32().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if !(HEADER_BYTES..=FRAME_BYTES).contains(&length) {
        return Err(invalid_data("invalid frame length"));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await?;
    Frame::decode(bytes.into()).map(Some).ok_or_else(|| invalid_data("invalid frame"))
}

/// Writes a frame together with the queued frames.
pub(super) async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    first: Frame,
    waiting: &mut tokio::sync::mpsc::Receiver<Frame>,
) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    first.encode(&mut bytes)?;
    while bytes.len() < FRAME_BYTES {
        let Ok(next) = waiting.try_recv() else { break };
        next.encode(&mut bytes)?;
    }
    to.write_all(&bytes).await
}

fn invalid_data(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frame_round_trips_and_truncated_frame_is_rejected() {
        for kind in KINDS {
            let frame = Frame {
                millis: 7,
                subject: "a.b".into(),
                extra: "ä".into(),
                payload: vec![0, 255].into(),
                ..Frame::new(kind, u64::MAX)
            };
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes).unwrap();
            assert_eq!(read(&mut bytes.as_ref()).await.unwrap(), Some(frame));
            for cut in 1..bytes.len() {
                // If the stream is cut within the length field, the result is the end of the stream. A later
                // cut is an error.
                assert!(!matches!(read(&mut &bytes[..cut]).await, Ok(Some(_))));
            }
        }
    }

    #[tokio::test]
    async fn invalid_and_oversized_frames_are_rejected() {
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 0], &[0xff; 64], &[0, 0, 0, 17, 99]] {
            assert!(read(&mut &garbage[..]).await.is_err(), "{garbage:?}");
        }
        let large = Frame { payload: vec![0; FRAME_BYTES].into(), ..Frame::new(Kind::Publish, 0) };
        assert!(large.encode(&mut BytesMut::new()).is_err());
    }
}
