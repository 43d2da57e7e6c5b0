//! The page over HTTP. Anybody who reaches the address may read it; it holds nothing secret.

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

use crate::page::{Page, Probed};

/// Most connections that are open at once.
const CONNECTIONS: usize = 64;
/// Time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(2);
/// Time limit for a connection as a whole.
const WHOLE: Duration = Duration::from_secs(30);
/// The pause after a connection that could not be accepted.
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
        .fallback((StatusCode::NOT_FOUND, "not found: expected /metrics, /livez or /readyz\n"))
        .with_state(page);
    tokio::spawn(accept(listener, routes));
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

/// The connections that are open, oldest first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

struct Connection {
    task: AbortHandle,
    /// Set when the head of the request is complete.
    has_request: Arc<AtomicBool>,
}

impl Connections {
    /// Serves one request on a new connection. If [`CONNECTIONS`] are open, the oldest one without a complete request is
    /// closed for it; if all of them have one, the new connection is closed.
    fn open(&mut self, stream: TcpStream, routes: &Router) {
        self.0.retain(|open| !open.task.is_finished());
        if self.0.len() >= CONNECTIONS {
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
    // One request for each connection: an idle connection keeps no probe waiting.
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
    match timeout(WHOLE, http.serve_connection(TokioIo::new(stream), service)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics ends"),
        Err(_) => tracing::debug!("a connection for metrics is closed: it took longer than {WHOLE:?}"),
    }
}

async fn accept(listener: TcpListener, routes: Router) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => connections.open(stream, &routes),
            // As when the program has too many files open: that passes.
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics is not accepted");
                sleep(AGAIN).await;
            }
        }
        // Lets the new connection read its request before the next one is accepted, which may close it.
        yield_now().await;
    }
}
