//! The page over HTTP. Anybody who reaches the address may read it; it holds nothing secret.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

use crate::page::{Page, Probed};

/// Connections at once; who comes then waits.
const CONNECTIONS: usize = 64;
/// How long a connection may say nothing.
const IDLE: Duration = Duration::from_secs(90);
/// The pause after a connection that could not be taken.
const AGAIN: Duration = Duration::from_millis(100);

/// What is said in which form.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why nothing can be told there.
#[derive(Debug, thiserror::Error)]
#[error(
    "metrics can't be served at {address}: {why}; give an address of this host with a free port, as 127.0.0.1:9464"
)]
pub struct BindError {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub why: io::Error,
}

/// Serves a page at an address, until the program ends. Answers where: port 0 is one that is free.
///
/// # Errors
/// The address is taken, or none of this host.
pub async fn serve(page: Page, address: SocketAddr) -> Result<SocketAddr, BindError> {
    let failed = |why| BindError { address, why };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .with_state(page);
    let limited = Limited { listener, room: Arc::new(Semaphore::new(CONNECTIONS)) };
    tokio::spawn(async move {
        if let Err(error) = axum::serve(limited, routes).await {
            tracing::error!(%error, "metrics are served no more");
        }
    });
    Ok(bound)
}

async fn metrics(State(page): State<Page>) -> Response {
    ([(CONTENT_TYPE, OPEN_METRICS)], page.text().await).into_response()
}

async fn live(State(page): State<Page>) -> Response {
    probed("live", page.live())
}

async fn ready(State(page): State<Page>) -> Response {
    probed("ready", page.ready().await)
}

fn probed(what: &str, Probed { wrong }: Probed) -> Response {
    let fine = wrong.is_empty();
    let status = if fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = if fine { json!({ what: true }) } else { json!({ what: false, "wrong": wrong }) };
    (status, [(CONTENT_TYPE, "application/json")], format!("{text}\n")).into_response()
}

/// Takes no more connections than there is room for.
struct Limited {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let room = Arc::clone(&self.room).acquire_owned().await.expect("nobody closes it");
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    let idle = Box::pin(sleep(IDLE));
                    return (Connection { stream, idle, _room: room }, from);
                }
                // As when the program has too many files open: that passes.
                Err(error) => {
                    tracing::debug!(%error, "a connection is not taken");
                    sleep(AGAIN).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, which ends when it says nothing for too long.
struct Connection {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    _room: OwnedSemaphorePermit,
}

impl Connection {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.as_mut().stream().poll_read(cx, to);
        if read.is_ready() {
            let until = tokio::time::Instant::now() + IDLE;
            self.idle.as_mut().reset(until);
            return read;
        }
        let over = self.idle.as_mut().poll(cx);
        over.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
