//! Client of the Unix socket on which another process serves its bus.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::codec::FramedRead;
use tokio_util::task::AbortOnDropHandle;

use super::frame::{self, Frame, FrameCodec, GREETING, Kind};
use super::{BusError, Guard, Incoming, Inlet, ReplyTo, RequestError, Source, Subscription, subject};
use crate::limits::{API_TIMEOUT, SOCKET_QUEUE};

/// Connection to the bus of another process. Clones share the same connection. The connection ends with the
/// other process and does not reconnect.
#[derive(Clone, Debug)]
pub struct Socket {
    wire: Arc<Wire>,
    /// Tasks that read and write. The tasks end with the last clone and the last subscription.
    _tasks: Arc<[AbortOnDropHandle<()>; 2]>,
}

/// Connection with its pending requests and subscriptions.
#[derive(Debug)]
struct Wire {
    frames: mpsc::Sender<Frame>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Last number assigned to a request or a subscription.
    last_number: u64,
    pending: BTreeMap<u64, oneshot::Sender<Frame>>,
    subscriptions: BTreeMap<u64, Inlet>,
    closed: bool,
}

impl Socket {
    pub(super) async fn connect(path: &Path, inbox: &str) -> Result<Self, BusError> {
        subject::check_inbox(inbox)?;
        let stream = UnixStream::connect(path).await.map_err(|error| {
            BusError::Disconnected(format!("no process serves the socket {}: {error}", path.display()))
        })?;
        let (reader, writer) = stream.into_split();
        let (frames, queued) = mpsc::channel(SOCKET_QUEUE);
        let wire = Arc::new(Wire { frames, state: Mutex::default() });
        let tasks = [
            AbortOnDropHandle::new(tokio::spawn(receive(reader, Arc::clone(&wire)))),
            AbortOnDropHandle::new(tokio::spawn(send(writer, queued))),
        ];
        let socket = Self { wire, _tasks: Arc::new(tasks) };
        let hello =
            Frame { subject: GREETING.to_owned(), extra: inbox.to_owned(), ..Frame::new(Kind::Hello, 0) };
        socket.call(hello, API_TIMEOUT).await.map_err(|error| BusError::Disconnected(error.to_string()))?;
        Ok(socket)
    }

    pub(super) fn is_connected(&self) -> bool {
        !self.wire.state().closed
    }

    pub(super) async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        let frame = Frame { subject: subject.to_owned(), payload, ..Frame::new(Kind::Publish, 0) };
        if self.wire.state().closed {
            return Err(disconnected());
        }
        self.wire.frames.send(frame).await.map_err(|_| disconnected())
    }

    pub(super) async fn request(
        &self,
        subject: &str,
        payload: Bytes,
        patience: Duration,
    ) -> Result<Bytes, RequestError> {
        let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let frame = Frame { millis, subject: subject.to_owned(), payload, ..Frame::new(Kind::Request, 0) };
        self.call(frame, patience).await
    }

    pub(super) async fn subscribe(
        &self,
        pattern: &str,
        group: Option<&str>,
    ) -> Result<Subscription, BusError> {
        let (inlet, messages) = Inlet::new();
        let number = self.wire.next_number();
        self.wire.state().subscriptions.insert(number, inlet);
        let registration = Registration { socket: self.clone(), number };
        let group = group.unwrap_or_default().to_owned();
        let frame =
            Frame { subject: pattern.to_owned(), extra: group, ..Frame::new(Kind::Subscribe, number) };
        self.call(frame, API_TIMEOUT).await.map_err(|error| match error {
            RequestError::Refused(why) => BusError::Refused(why),
            RequestError::NoResponder(_) | RequestError::TimedOut(_) | RequestError::Disconnected(_) => {
                disconnected()
            }
        })?;
        Ok(Subscription(Source::Queue(messages, Guard::Socket(registration))))
    }

    /// Sends a frame and waits for the response with the same number. A frame without a number gets one.
    async fn call(&self, mut frame: Frame, patience: Duration) -> Result<Bytes, RequestError> {
        if frame.number == 0 {
            frame.number = self.wire.next_number();
        }
        let (number, subject) = (frame.number, frame.subject.clone());
        let (sender, answer) = oneshot::channel();
        {
            let mut state = self.wire.state();
            if state.closed {
                return Err(disconnected().into());
            }
            state.pending.insert(number, sender);
        }
        let _asked = PendingRequest { wire: &self.wire, number };
        let exchange = async {
            self.wire.frames.send(frame).await.map_err(|_| disconnected())?;
            answer.await.map_err(|_| disconnected())
        };
        let answer = timeout(patience, exchange).await.map_err(|_| RequestError::TimedOut(patience))??;
        match answer.kind {
            Kind::Response => Ok(answer.payload),
            Kind::NoResponder => Err(RequestError::NoResponder(subject)),
            Kind::TimedOut => Err(RequestError::TimedOut(patience)),
            Kind::Refused => Err(RequestError::Refused(answer.extra)),
            Kind::Hello
            | Kind::Publish
            | Kind::Request
            | Kind::Subscribe
            | Kind::Unsubscribe
            | Kind::Message => Err(RequestError::Disconnected(
                "the process that serves the socket uses another \
                    protocol"
                    .to_owned(),
            )),
        }
    }
}

impl Wire {
    /// Locks the state. No change can panic half-way, so the state is consistent even if the lock is
    /// poisoned.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn next_number(&self) -> u64 {
        let mut state = self.state();
        state.last_number += 1;
        state.last_number
    }

    /// Ends a subscription at the server. If the frame cannot be queued, the next message for the
    /// subscription causes a new attempt.
    fn unsubscribe(&self, number: u64) {
        if let Err(error) = self.frames.try_send(Frame::new(Kind::Unsubscribe, number)) {
            tracing::debug!(%error, number, "cannot send the end of a subscription yet");
        }
    }

    fn handle_frame(&self, frame: Frame) {
        if frame.kind != Kind::Message {
            let asked = self.state().pending.remove(&frame.number);
            // The request may have timed out. In that case, the response is dropped.
            drop(asked.map(|asked| asked.send(frame)));
            return;
        }
        let reply = (!frame.extra.is_empty()).then_some(ReplyTo { subject: frame.extra });
        let message = Incoming { subject: frame.subject, payload: frame.payload, reply };
        let state = self.state();
        match state.subscriptions.get(&frame.number) {
            Some(inlet) => inlet.push(message),
            None => self.unsubscribe(frame.number),
        }
    }
}

/// Pending request. Dropping it cancels the request.
struct PendingRequest<'a> {
    wire: &'a Wire,
    number: u64,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.wire.state().pending.remove(&self.number);
    }
}

/// Registration of a subscription. Dropping it ends the subscription.
#[derive(Debug)]
pub(super) struct Registration {
    socket: Socket,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.socket.wire.state().subscriptions.remove(&self.number);
        self.socket.wire.unsubscribe(self.number);
    }
}

async fn receive(reader: OwnedReadHalf, wire: Arc<Wire>) {
    let mut reader = FramedRead::new(reader, FrameCodec::new());
    while let Some(frame) = reader.next().await {
        match frame {
            Ok(frame) => wire.handle_frame(frame),
            Err(error) => {
                tracing::warn!(%error, "bus socket error");
                break;
            }
        }
    }
    // Dropping the senders notifies requests and subscriptions that the connection is closed.
    let mut state = wire.state();
    state.closed = true;
    state.pending.clear();
    state.subscriptions.clear();
}

async fn send(writer: OwnedWriteHalf, queued: mpsc::Receiver<Frame>) {
    if let Err(error) = frame::write_queued(writer, queued).await {
        tracing::warn!(%error, "bus socket error");
    }
}

fn disconnected() -> BusError {
    BusError::Disconnected("the process that served the socket has exited".to_owned())
}
