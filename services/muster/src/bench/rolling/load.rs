//! Requests at a steady pace: each a connection of its own, as whoever has no patience for old ones makes them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::sync::CancellationToken;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Failures of which the reason is kept.
const REASONS: usize = 5;

/// Requests, and what became of them.
#[derive(Debug)]
pub(super) struct Load {
    /// Between two requests to the same instance.
    every: Duration,
    requests: Mutex<Requests>,
}

/// What became of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pub(super) answered: Vec<Duration>,
    pub(super) failed: u64,
    /// Why the first of them failed.
    pub(super) reasons: Vec<String>,
}

impl Load {
    /// So many requests a second to each instance.
    pub(super) fn new(rate: u32) -> Self {
        Self { every: Duration::from_secs(1) / rate.max(1), requests: Mutex::default() }
    }

    /// What became of the requests so far.
    pub(super) fn requests(&self) -> Requests {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks an instance again and again until it is told to stop. A slow answer holds up no other request; those under way
    /// at the end are waited for, and count.
    pub(super) async fn ask_steadily(&self, name: &str, at: SocketAddr, stop: CancellationToken) {
        let mut ticks = interval_at(Instant::now(), self.every);
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(done) = under_way.join_next() => self.note(name, done.unwrap_or_else(|error| Err(error.into()))),
                _ = ticks.tick() => {
                    under_way.spawn(timed(at));
                }
            }
        }
        while let Some(done) = under_way.join_next().await {
            self.note(name, done.unwrap_or_else(|error| Err(error.into())));
        }
    }

    fn note(&self, name: &str, done: io::Result<Duration>) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        match done {
            Ok(took) => requests.answered.push(took),
            Err(error) => {
                requests.failed += 1;
                if requests.reasons.len() < REASONS {
                    requests.reasons.push(format!("{name}: {error}"));
                }
            }
        }
    }
}

async fn timed(at: SocketAddr) -> io::Result<Duration> {
    let asked = Instant::now();
    timeout(PATIENCE, ask(at)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(asked.elapsed())
}

/// One request. It fails unless the whole answer comes.
async fn ask(at: SocketAddr) -> io::Result<()> {
    let mut connection = TcpStream::connect(at).await?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n").await?;
    let mut answer = vec![];
    connection.read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"\n") {
        return Ok(());
    }
    Err(io::Error::other(format!("answered {:?}", String::from_utf8_lossy(&answer))))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What becomes of the requests of a moment to a server that gives this answer to the first request, and none to others.
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
        tokio::join!(load.ask_steadily("one", at, stop.clone()), server);
        load.requests()
    }

    #[tokio::test]
    async fn every_request_counts_and_only_a_whole_answer_is_one() {
        let good = requests_to(b"HTTP/1.1 200 OK\r\n\r\nhello\n").await;
        assert_eq!(good.answered.len(), 1);
        assert!(good.reasons.iter().all(|reason| reason.starts_with("one: ")), "{good:?}");
        for bad in [&b"HTTP/1.1 503 Service Unavailable\r\n\r\nno\n"[..], b"HTTP/1.1 200 OK\r\n\r\nhel", b""]
        {
            let requests = requests_to(bad).await;
            assert!(requests.answered.is_empty() && requests.failed >= 1, "{requests:?}");
            assert!(requests.reasons.len() <= REASONS);
        }
    }
}
