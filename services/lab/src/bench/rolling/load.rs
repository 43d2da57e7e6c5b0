//! Requests at a steady pace, each over a connection of its own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::sync::CancellationToken;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of failures whose reason is recorded.
const MAX_REASONS: usize = 5;

/// Sender of requests, with their outcomes.
#[derive(Debug)]
pub(super) struct Load {
    /// Interval between two requests to the same instance.
    interval: Duration,
    requests: Mutex<Requests>,
}

/// Outcomes of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pub(super) answered: Vec<Duration>,
    pub(super) failed: u64,
    /// Reasons of the first failures.
    pub(super) reasons: Vec<String>,
}

impl Load {
    /// Creates a sender of `rate` requests per second to each instance.
    pub(super) fn new(rate: u32) -> Self {
        Self { interval: Duration::from_secs(1) / rate.max(1), requests: Mutex::default() }
    }

    /// Returns the outcomes so far.
    pub(super) fn requests(&self) -> Requests {
        self.requests.lock().clone()
    }

    /// Sends requests to an instance until `stop` is cancelled. A slow answer delays no other request.
    /// Requests without an answer at the end are awaited and counted.
    pub(super) async fn send_steadily(&self, name: &str, at: SocketAddr, stop: CancellationToken) {
        let mut ticks = interval_at(Instant::now(), self.interval);
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(done) = under_way.join_next() => self.record(name, done.unwrap_or_else(|error| Err(error.into()))),
                _ = ticks.tick() => {
                    under_way.spawn(timed_request(at));
                }
            }
        }
        while let Some(done) = under_way.join_next().await {
            self.record(name, done.unwrap_or_else(|error| Err(error.into())));
        }
    }

    fn record(&self, name: &str, done: io::Result<Duration>) {
        let mut requests = self.requests.lock();
        match done {
            Ok(took) => requests.answered.push(took),
            Err(error) => {
                requests.failed += 1;
                if requests.reasons.len() < MAX_REASONS {
                    requests.reasons.push(format!("{name}: {error}"));
                }
            }
        }
    }
}

async fn timed_request(at: SocketAddr) -> io::Result<Duration> {
    let asked = Instant::now();
    timeout(TIMEOUT, request(at)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(asked.elapsed())
}

/// Sends one request. Returns an error unless the whole answer arrives.
async fn request(at: SocketAddr) -> io::Result<()> {
    let mut connection = TcpStream::connect(at).await?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n").await?;
    let mut answer = vec![];
    connection.read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"\n") {
        return Ok(());
    }
    Err(io::Error::other(format!("unexpected response {:?}", String::from_utf8_lossy(&answer))))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Returns the outcomes of a short load on a server that sends this answer to the first request and none
    /// to later requests.
    async fn requests_to(answer: &'static [u8]) -> Requests {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (load, stop) = (Load::new(1_000), CancellationToken::new());
        let server = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            connection.read_exact(&mut [0; 4]).await.unwrap();
            connection.write_all(answer).await.unwrap();
            connection.shutdown().await.unwrap();
            drop(connection);
            stop.cancel();
            drop(listener);
        };
        tokio::join!(load.send_steadily("one", at, stop.clone()), server);
        load.requests()
    }

    #[tokio::test]
    async fn only_complete_answer_counts_as_answered() {
        let good = requests_to(b"HTTP/1.1 200 OK\r\n\r\nhello\n").await;
        assert_eq!(good.answered.len(), 1);
        assert!(good.reasons.iter().all(|reason| reason.starts_with("one: ")), "{good:?}");
        for bad in [&b"HTTP/1.1 503 Service Unavailable\r\n\r\nno\n"[..], b"HTTP/1.1 200 OK\r\n\r\nhel", b""]
        {
            let requests = requests_to(bad).await;
            assert!(requests.answered.is_empty() && requests.failed >= 1, "{requests:?}");
            assert!(requests.reasons.len() <= MAX_REASONS);
        }
    }
}
