//! Unix socket on which this process serves its bus to other processes of the same user.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::codec::FramedRead;
use tokio_util::task::AbortOnDropHandle;

use super::frame::{self, Frame, FrameCodec, GREETING, Kind};
use super::{BusError, InProcess, Incoming, LogLimit, RequestError, subject};
use crate::limits::{
    SOCKET_CONNECTIONS, SOCKET_HELLO_TIMEOUT, SOCKET_QUEUE, SOCKET_REQUESTS, SOCKET_SUBSCRIPTIONS,
};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Error while serving a bus over a Unix socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The bus is not in this process, but in another process or on a server.
    #[error("only an in-process bus can be served over a socket")]
    NotInProcess,
    #[error("cannot create the socket {}", path.display())]
    Unusable { path: PathBuf, source: io::Error },
}

/// Unix socket that serves a bus. On drop, the socket is removed and its connections are closed.
#[derive(Debug)]
pub struct SocketServer {
    path: PathBuf,
    _accepting: AbortOnDropHandle<()>,
}

impl SocketServer {
    pub(super) fn start(bus: InProcess, path: &Path) -> Result<Self, SocketError> {
        let listener =
            listen(path).map_err(|source| SocketError::Unusable { path: path.to_owned(), source })?;
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, bus)));
        Ok(Self { path: path.to_owned(), _accepting: accepting })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "cannot remove the file of the socket");
        }
    }
}

/// Creates the socket for this user only: the socket accepts no connection before its mode is set. The socket
/// is bound under its final name. By this name, `systemd-tmpfiles` detects that the socket is in use.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if is_stale_socket(path)? {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "in use by another process"));
        }
        fs::remove_file(path)?;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Returns `true` if a socket of this user exists and may be replaced. Returns `false` if nothing exists at
/// the path. Other files, and files of other users, cause an error and stay unchanged.
fn is_stale_socket(path: &Path) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if found.file_type().is_socket() && found.uid() == rustix::process::geteuid().as_raw() {
        return Ok(true);
    }
    let why = format!("{} exists and is not a socket of this user", path.display());
    Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
}

static ACCEPT_ERRORS: LogLimit = LogLimit::new();
static REJECTED_CONNECTIONS: LogLimit = LogLimit::new();
static FAILED_CONNECTIONS: LogLimit = LogLimit::new();

async fn accept(listener: UnixListener, bus: InProcess) {
    let places = Arc::new(Semaphore::new(SOCKET_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                ACCEPT_ERRORS.log(|| tracing::warn!(%error, "cannot accept a connection on the bus socket"));
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            REJECTED_CONNECTIONS.log(|| {
                tracing::warn!("rejected a connection to the bus socket: {SOCKET_CONNECTIONS} are open");
            });
            continue;
        };
        let bus = bus.clone();
        connections.spawn(async move {
            if let Err(error) = serve(stream, bus).await {
                FAILED_CONNECTIONS.log(|| tracing::warn!(%error, "closed a connection to the bus socket"));
            }
            drop(place);
        });
    }
}

/// Serves one connection until it ends. An invalid frame ends this connection only.
async fn serve(stream: UnixStream, bus: InProcess) -> io::Result<()> {
    let (reader, writer) = stream.into_split();
    let mut reader = FramedRead::new(reader, FrameCodec::new());
    let hello = timeout(SOCKET_HELLO_TIMEOUT, reader.try_next()).await??;
    let Some(hello) = hello else { return Ok(()) };
    if hello.kind != Kind::Hello || hello.subject != GREETING {
        return Err(invalid_data("missing greeting"));
    }
    let bus = bus.with_inbox(&hello.extra).map_err(|error| invalid_data(&error.to_string()))?;
    let (frames, queued) = mpsc::channel(SOCKET_QUEUE);
    let writing = AbortOnDropHandle::new(tokio::spawn(frame::write_queued(writer, queued)));
    let served = SocketConnection { bus, frames, requests: JoinSet::new(), subscriptions: BTreeMap::new() };
    served.run(hello, reader, writing).await
}

/// State of one connection.
struct SocketConnection {
    bus: InProcess,
    frames: mpsc::Sender<Frame>,
    requests: JoinSet<()>,
    subscriptions: BTreeMap<u64, AbortOnDropHandle<()>>,
}

impl SocketConnection {
    async fn run(
        mut self,
        hello: Frame,
        mut reader: FramedRead<OwnedReadHalf, FrameCodec>,
        mut writing: AbortOnDropHandle<io::Result<()>>,
    ) -> io::Result<()> {
        self.send(Frame::new(Kind::Response, hello.number)).await?;
        loop {
            let frame = tokio::select! {
                frame = reader.try_next() => frame?,
                written = &mut writing => return written.unwrap_or_else(|error| Err(io::Error::other(error))),
            };
            let Some(frame) = frame else { return Ok(()) };
            while self.requests.try_join_next().is_some() {}
            self.handle_frame(frame).await?;
        }
    }

    async fn handle_frame(&mut self, frame: Frame) -> io::Result<()> {
        let wrong = |error: BusError| invalid_data(&error.to_string());
        match frame.kind {
            Kind::Publish => {
                subject::check_publish(&frame.subject, frame.payload.len()).map_err(wrong)?;
                self.bus.publish(&frame.subject, frame.payload).map_err(wrong)
            }
            Kind::Request => {
                subject::check_publish(&frame.subject, frame.payload.len()).map_err(wrong)?;
                self.handle_request(frame).await
            }
            Kind::Subscribe => {
                subject::check_pattern(&frame.subject).map_err(wrong)?;
                if !frame.extra.is_empty() {
                    subject::check_group(&frame.extra).map_err(wrong)?;
                }
                self.handle_subscribe(frame).await
            }
            Kind::Unsubscribe => {
                self.subscriptions.remove(&frame.number);
                Ok(())
            }
            Kind::Hello
            | Kind::Response
            | Kind::NoResponder
            | Kind::TimedOut
            | Kind::Refused
            | Kind::Message => Err(invalid_data("unexpected frame from a client")),
        }
    }

    async fn handle_request(&mut self, frame: Frame) -> io::Result<()> {
        if self.requests.len() >= SOCKET_REQUESTS {
            let why = format!("too many pending requests: at most {SOCKET_REQUESTS} per connection");
            return self.send(Frame { extra: why, ..Frame::new(Kind::Refused, frame.number) }).await;
        }
        let (bus, frames) = (self.bus.clone(), self.frames.clone());
        self.requests.spawn(async move {
            let patience = Duration::from_millis(u64::from(frame.millis));
            let answer = match bus.request(&frame.subject, frame.payload, patience).await {
                Ok(payload) => Frame { payload, ..Frame::new(Kind::Response, frame.number) },
                Err(RequestError::NoResponder(_)) => Frame::new(Kind::NoResponder, frame.number),
                Err(RequestError::TimedOut(_)) => Frame::new(Kind::TimedOut, frame.number),
                Err(RequestError::Disconnected(extra) | RequestError::Refused(extra)) => {
                    Frame { extra, ..Frame::new(Kind::Refused, frame.number) }
                }
            };
            // The connection may be closed. In that case, the response is dropped.
            drop(frames.send(answer).await);
        });
        Ok(())
    }

    async fn handle_subscribe(&mut self, frame: Frame) -> io::Result<()> {
        if self.subscriptions.len() >= SOCKET_SUBSCRIPTIONS {
            let why = format!("too many subscriptions: at most {SOCKET_SUBSCRIPTIONS} per connection");
            return self.send(Frame { extra: why, ..Frame::new(Kind::Refused, frame.number) }).await;
        }
        let group = Some(frame.extra.as_str()).filter(|group| !group.is_empty());
        let mut subscription = self.bus.subscribe(&frame.subject, group);
        let (frames, number) = (self.frames.clone(), frame.number);
        let forwarding = tokio::spawn(async move {
            while let Some(message) = subscription.next().await {
                if frames.send(message_frame(number, message)).await.is_err() {
                    break;
                }
            }
        });
        self.subscriptions.insert(number, AbortOnDropHandle::new(forwarding));
        self.send(Frame::new(Kind::Response, number)).await
    }

    async fn send(&self, frame: Frame) -> io::Result<()> {
        self.frames.send(frame).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn message_frame(number: u64, message: Incoming) -> Frame {
    let extra = message.reply.map(|reply| reply.subject).unwrap_or_default();
    Frame { subject: message.subject, extra, payload: message.payload, ..Frame::new(Kind::Message, number) }
}

fn invalid_data(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
