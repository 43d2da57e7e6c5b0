//! Frames of the Unix socket protocol, each preceded by its length.
//!
//! ```text
//!   length of the rest  kind  number  milliseconds  length  subject  length  other  payload
//!   4                   1     8       4             2       ..       2       ..     ..
//! ```
//! Numbers are big-endian. An invalid or oversized frame ends its connection.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::{StreamExt, stream};
use strum::VariantArray;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio_util::codec::{Decoder, Encoder, FramedWrite, LengthDelimitedCodec};

use crate::limits::FRAME_BYTES;

/// Greeting of a client, which identifies the protocol. The server rejects clients of other protocols.
pub(super) const GREETING: &str = "muster-bus-1";

/// Kind of a frame. Its number is the position of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
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

    fn encode(&self) -> io::Result<Bytes> {
        let lengths = (u16::try_from(self.subject.len()), u16::try_from(self.extra.len()));
        let (Ok(subject), Ok(other)) = lengths else { return Err(invalid_data("subject too long")) };
        let length = HEADER_BYTES + self.subject.len() + self.extra.len() + self.payload.len();
        let mut into = BytesMut::with_capacity(length);
        into.put_u8(self.kind as u8);
        into.put_u64(self.number);
        into.put_u32(self.millis);
        into.put_u16(subject);
        into.put_slice(self.subject.as_bytes());
        into.put_u16(other);
        into.put_slice(self.extra.as_bytes());
        into.put_slice(&self.payload);
        Ok(into.freeze())
    }

    fn decode(mut bytes: Bytes) -> Option<Self> {
        let kind = *Kind::VARIANTS.get(usize::from(bytes.try_get_u8().ok()?))?;
        let (number, millis) = (bytes.try_get_u64().ok()?, bytes.try_get_u32().ok()?);
        let subject = read_text(&mut bytes)?;
        let extra = read_text(&mut bytes)?;
        Some(Self { kind, number, millis, subject, extra, payload: bytes })
    }
}

/// Length of the fixed fields of a frame in bytes.
const HEADER_BYTES: usize = 1 + 8 + 4 + 2 + 2;

fn read_text(bytes: &mut Bytes) -> Option<String> {
    let length = usize::from(bytes.try_get_u16().ok()?);
    if bytes.len() < length {
        return None;
    }
    String::from_utf8(bytes.split_to(length).to_vec()).ok()
}

/// Codec of frames. A frame larger than [`FRAME_BYTES`] is an error in both directions.
#[derive(Debug)]
pub(super) struct FrameCodec(LengthDelimitedCodec);

impl FrameCodec {
    pub(super) fn new() -> Self {
        Self(LengthDelimitedCodec::builder().max_frame_length(FRAME_BYTES).new_codec())
    }
}

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = io::Error;

    fn decode(&mut self, from: &mut BytesMut) -> io::Result<Option<Frame>> {
        let bytes = self.0.decode(from).map_err(|_| invalid_data("invalid frame length"))?;
        let Some(bytes) = bytes else { return Ok(None) };
        Frame::decode(bytes.freeze()).map(Some).ok_or_else(|| invalid_data("invalid frame"))
    }
}

impl Encoder<Frame> for FrameCodec {
    type Error = io::Error;

    fn encode(&mut self, frame: Frame, into: &mut BytesMut) -> io::Result<()> {
        self.0.encode(frame.encode()?, into).map_err(|_| invalid_data("frame too large"))
    }
}

/// Writes queued frames until the queue is closed. Frames that wait at the same time are written together.
pub(super) async fn write_queued(to: impl AsyncWrite, mut queued: mpsc::Receiver<Frame>) -> io::Result<()> {
    let frames = stream::poll_fn(move |context| queued.poll_recv(context));
    frames.map(Ok).forward(FramedWrite::new(to, FrameCodec::new())).await
}

fn invalid_data(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio_util::codec::FramedRead;

    use super::*;

    /// Reads the first frame of a stream that ends after `bytes`.
    async fn read(bytes: &[u8]) -> Option<io::Result<Frame>> {
        FramedRead::new(bytes, FrameCodec::new()).next().await
    }

    #[tokio::test]
    async fn frame_round_trips_and_truncated_frame_is_rejected() {
        for kind in Kind::VARIANTS.iter().copied() {
            let frame = Frame {
                millis: 7,
                subject: "a.b".into(),
                extra: "ä".into(),
                payload: vec![0, 255].into(),
                ..Frame::new(kind, u64::MAX)
            };
            let mut bytes = BytesMut::new();
            FrameCodec::new().encode(frame.clone(), &mut bytes).unwrap();
            assert_eq!(read(&bytes).await.unwrap().unwrap(), frame);
            assert!(read(&[]).await.is_none());
            for cut in 1..bytes.len() {
                // A cut directly after the length field looks like the end of the stream.
                assert!(!matches!(read(&bytes[..cut]).await, Some(Ok(_))), "{cut}");
            }
        }
    }

    #[tokio::test]
    async fn queued_frames_are_written_in_order_and_read_in_parts() {
        const FRAMES: u64 = 100;
        let (to, from) = tokio::io::duplex(7);
        let (send, queued) = mpsc::channel(usize::try_from(FRAMES).unwrap());
        let writing = tokio::spawn(write_queued(to, queued));
        for number in 0..FRAMES {
            send.send(Frame::new(Kind::Message, number)).await.unwrap();
        }
        drop(send);
        let frames = FramedRead::new(from, FrameCodec::new()).map(|frame| frame.unwrap().number);
        assert!(frames.collect::<Vec<_>>().await.into_iter().eq(0..FRAMES));
        writing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn invalid_and_oversized_frames_are_rejected() {
        for (garbage, expected) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "invalid frame length"),
            (&[0xff; 64], "invalid frame length"),
            (&[0, 0, 0, 0], "invalid frame"),
            (&[0, 0, 0, 1, 99], "invalid frame"),
        ] {
            assert_eq!(read(garbage).await.unwrap().unwrap_err().to_string(), expected, "{garbage:?}");
        }
        let large = Frame { payload: vec![0; FRAME_BYTES].into(), ..Frame::new(Kind::Publish, 0) };
        let error = FrameCodec::new().encode(large, &mut BytesMut::new()).unwrap_err();
        assert_eq!(error.to_string(), "frame too large");
    }
}
