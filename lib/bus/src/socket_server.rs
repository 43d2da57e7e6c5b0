//! The bus of this process for other terminals of the same user, over a Unix socket.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::BufReader;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::frame::{self, Frame, GREETING, Kind};
use super::{AskError, BusError, InProcess, Incoming, LogLimit, subject};
use crate::limits::{SOCKET_ASKS, SOCKET_CONNECTIONS, SOCKET_HELLO, SOCKET_QUEUE, SOCKET_SUBSCRIPTIONS};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Why a bus is not served over a Unix socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It is itself at the other end of something.
    #[error("only a bus in process is served over a socket")]
    NotInProcess,
    /// The socket can't be made.
    #[error("can't make the socket {}", path.display())]
    Unusable {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A Unix socket that serves a bus. Dropped, the socket and its connections are gone.
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

    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the socket's file is gone already");
        }
    }
}

/// Makes the socket, for this user alone: it takes no connection before it has its mode. It is bound under its own name, by which
/// `systemd-tmpfiles` knows that it is in use.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if is_left_socket(path)? {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process serves it"));
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

/// Whether there is a socket of this user's, which may be replaced; false: there is nothing. What is something else, or
/// somebody else's, is left alone.
fn is_left_socket(path: &Path) -> io::Result<bool> {
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

static NO_CONNECTION: LogLimit = LogLimit::new();
static TURNED_AWAY: LogLimit = LogLimit::new();
static CLOSED: LogLimit = LogLimit::new();

async fn accept(listener: UnixListener, bus: InProcess) {
    let places = Arc::new(Semaphore::new(SOCKET_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                NO_CONNECTION.log(|| tracing::warn!(%error, "the bus's socket takes no connection"));
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            TURNED_AWAY.log(|| {
                tracing::warn!(
                    "{SOCKET_CONNECTIONS} connections to the bus's socket: another is turned away"
                );
            });
            continue;
        };
        let bus = bus.clone();
        connections.spawn(async move {
            if let Err(error) = serve(stream, bus).await {
                CLOSED.log(|| tracing::warn!(%error, "a connection to the bus's socket is closed"));
            }
            drop(place);
        });
    }
}

/// Serves one connection until it ends. What it says wrong ends it, and nothing else.
async fn serve(stream: UnixStream, bus: InProcess) -> io::Result<()> {
    let (reader, writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let hello = timeout(SOCKET_HELLO, frame::read(&mut reader)).await??;
    let Some(hello) = hello else { return Ok(()) };
    if hello.kind != Kind::Hello || hello.subject != GREETING {
        return Err(garbage("it doesn't greet"));
    }
    let bus = bus.with_inbox(&hello.other).map_err(|error| garbage(&error.to_string()))?;
    let (frames, queued) = mpsc::channel(SOCKET_QUEUE);
    let writing = AbortOnDropHandle::new(tokio::spawn(write(writer, queued)));
    let served = Served { bus, frames, asks: JoinSet::new(), subscriptions: BTreeMap::new() };
    served.run(hello, reader, writing).await
}

async fn write(mut writer: OwnedWriteHalf, mut queued: mpsc::Receiver<Frame>) -> io::Result<()> {
    while let Some(frame) = queued.recv().await {
        frame::write(&mut writer, frame, &mut queued).await?;
    }
    Ok(())
}

/// One connection.
struct Served {
    bus: InProcess,
    frames: mpsc::Sender<Frame>,
    asks: JoinSet<()>,
    subscriptions: BTreeMap<u64, AbortOnDropHandle<()>>,
}

impl Served {
    async fn run(
        mut self,
        hello: Frame,
        mut reader: BufReader<OwnedReadHalf>,
        mut writing: AbortOnDropHandle<io::Result<()>>,
    ) -> io::Result<()> {
        self.say(Frame::new(Kind::Answer, hello.number)).await?;
        loop {
            // A frame that was half read is lost when writing ends first; but then all is.
            let frame = tokio::select! {
                frame = frame::read(&mut reader) => frame?,
                written = &mut writing => return written.unwrap_or_else(|error| Err(io::Error::other(error))),
            };
            let Some(frame) = frame else { return Ok(()) };
            while self.asks.try_join_next().is_some() {}
            self.take(frame).await?;
        }
    }

    async fn take(&mut self, frame: Frame) -> io::Result<()> {
        let wrong = |error: BusError| garbage(&error.to_string());
        match frame.kind {
            Kind::Publish => {
                subject::check_publish(&frame.subject, frame.payload.len()).map_err(wrong)?;
                self.bus.publish(&frame.subject, frame.payload).map_err(wrong)
            }
            Kind::Ask => {
                subject::check_publish(&frame.subject, frame.payload.len()).map_err(wrong)?;
                self.ask(frame).await
            }
            Kind::Subscribe => {
                subject::check_pattern(&frame.subject).map_err(wrong)?;
                if !frame.other.is_empty() {
                    subject::check_group(&frame.other).map_err(wrong)?;
                }
                self.subscribe(frame).await
            }
            Kind::Unsubscribe => {
                self.subscriptions.remove(&frame.number);
                Ok(())
            }
            Kind::Hello
            | Kind::Answer
            | Kind::NoResponder
            | Kind::TimedOut
            | Kind::Refused
            | Kind::Message => Err(garbage("a client doesn't say that")),
        }
    }

    async fn ask(&mut self, frame: Frame) -> io::Result<()> {
        if self.asks.len() >= SOCKET_ASKS {
            let why = format!("{SOCKET_ASKS} questions wait for an answer already");
            return self.say(Frame { other: why, ..Frame::new(Kind::Refused, frame.number) }).await;
        }
        let (bus, frames) = (self.bus.clone(), self.frames.clone());
        self.asks.spawn(async move {
            let patience = Duration::from_millis(u64::from(frame.millis));
            let answer = match bus.ask(&frame.subject, frame.payload, patience).await {
                Ok(payload) => Frame { payload, ..Frame::new(Kind::Answer, frame.number) },
                Err(AskError::NoResponder(_)) => Frame::new(Kind::NoResponder, frame.number),
                Err(AskError::TimedOut(_)) => Frame::new(Kind::TimedOut, frame.number),
                Err(AskError::Disconnected(other) | AskError::Refused(other)) => {
                    Frame { other, ..Frame::new(Kind::Refused, frame.number) }
                }
            };
            // The connection may be gone; then nobody wants the answer.
            drop(frames.send(answer).await);
        });
        Ok(())
    }

    async fn subscribe(&mut self, frame: Frame) -> io::Result<()> {
        if self.subscriptions.len() >= SOCKET_SUBSCRIPTIONS {
            let why = format!("{SOCKET_SUBSCRIPTIONS} subscriptions are the most of one connection");
            return self.say(Frame { other: why, ..Frame::new(Kind::Refused, frame.number) }).await;
        }
        let group = Some(frame.other.as_str()).filter(|group| !group.is_empty());
        let mut subscription = self.bus.subscribe(&frame.subject, group);
        let (frames, number) = (self.frames.clone(), frame.number);
        let forwarding = tokio::spawn(async move {
            while let Some(message) = subscription.next().await {
                if frames.send(forwarded(number, message)).await.is_err() {
                    break;
                }
            }
        });
        self.subscriptions.insert(number, AbortOnDropHandle::new(forwarding));
        self.say(Frame::new(Kind::Answer, number)).await
    }

    async fn say(&self, frame: Frame) -> io::Result<()> {
        self.frames.send(frame).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn forwarded(number: u64, message: Incoming) -> Frame {
    let other = message.reply.map(|reply| reply.subject).unwrap_or_default();
    Frame { subject: message.subject, other, payload: message.payload, ..Frame::new(Kind::Message, number) }
}

fn garbage(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
