//! HTTP server of the metrics page. Every client that reaches the address may read the page, which contains
//! no secrets.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::page::{Page, ProbeResult};

/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 64;
/// Timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay after a failure to accept a connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Content type of the metrics page.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Error while listening on an address.
#[derive(Debug, thiserror::Error)]
#[error(
    "can't serve metrics at {address}: {reason}; use an address of this host with a free port, such as \
     127.0.0.1:9464"
)]
pub struct BindError {
    pub address: SocketAddr,
    pub reason: io::Error,
}

/// Serves a page at an address until the program exits. Returns the bound address. Port 0 selects a free
/// port.
///
/// # Errors
/// Returns an error if the address is in use or does not belong to this host.
pub async fn serve(page: Page, address: SocketAddr) -> Result<SocketAddr, BindError> {
    let failed = |why| BindError { address, reason: why };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .fallback((StatusCode::NOT_FOUND, "not found: expected /metrics, /livez or /readyz\n"))
        .with_state(page);
    tokio::spawn(accept(listener, routes));
    Ok(bound)
}

async fn metrics(State(page): State<Page>) -> Response {
    ([(CONTENT_TYPE, OPEN_METRICS)], page.text().await).into_response()
}

async fn live(State(page): State<Page>) -> Response {
    probe_response("live", page.live())
}

async fn ready(State(page): State<Page>) -> Response {
    probe_response("ready", page.ready().await)
}

fn probe_response(what: &str, ProbeResult { problems }: ProbeResult) -> Response {
    let fine = problems.is_empty();
    let status = if fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = if fine { json!({ what: true }) } else { json!({ what: false, "wrong": problems }) };
    (status, [(CONTENT_TYPE, "application/json")], format!("{text}\n")).into_response()
}

/// Open connections, oldest first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

struct Connection {
    task: AbortHandle,
    /// `true` once the head of the request is complete.
    has_request: Arc<AtomicBool>,
}

impl Connections {
    /// Serves one request on a new connection. If [`MAX_CONNECTIONS`] connections are open, the oldest
    /// connection without a complete request is closed. If every open connection has a complete request, the
    /// new connection is closed.
    fn open(&mut self, stream: TcpStream, routes: &Router) {
        self.0.retain(|open| !open.task.is_finished());
        if self.0.len() >= MAX_CONNECTIONS {
            let idle = self.0.iter().position(|open| !open.has_request.load(Ordering::Relaxed));
            let Some(closed) = idle.and_then(|idle| self.0.remove(idle)) else { return };
            closed.task.abort();
        }
        let has_request = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(serve_one(stream, routes.clone(), Arc::clone(&has_request))).abort_handle();
        self.0.push_back(Connection { task, has_request });
    }
}

async fn serve_one(stream: TcpStream, routes: Router, has_request: Arc<AtomicBool>) {
    let service = service_fn(move |request| {
        has_request.store(true, Ordering::Relaxed);
        routes.clone().oneshot(request)
    });
    let mut http = http1::Builder::new();
    // Each connection serves one request, so idle connections do not delay a probe.
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
    match timeout(CONNECTION_TIMEOUT, http.serve_connection(TokioIo::new(stream), service)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "metrics connection failed"),
        Err(_) => tracing::debug!("metrics connection closed after {CONNECTION_TIMEOUT:?}"),
    }
}

async fn accept(listener: TcpListener, routes: Router) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => connections.open(stream, &routes),
            // The error is temporary: for example, the program has too many open files.
            Err(error) => {
                tracing::debug!(%error, "can't accept a metrics connection");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
        // The next accepted connection may close the new one. Therefore the new connection may read its
        // request first.
        yield_now().await;
    }
}
