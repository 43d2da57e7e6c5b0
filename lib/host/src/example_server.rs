//! Small web server for the examples and for `muster-lab bench --rolling`. Each answer names the instance that
//! sent it. The server needs no program except muster.
//!
//! Its shutdown is an example for services behind a router. After SIGTERM the server continues to answer for
//! a moment, because the router is notified of the stop later. Afterwards it accepts no more connections,
//! answers the open connections, and exits.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use futures::FutureExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Timeout of a whole connection, from the request to the end of the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes read from the head of a request.
const MAX_HEAD_BYTES: u64 = 16 * 1024;
/// Maximum number of concurrent connections. Further connections wait in the accept queue.
const MAX_CONNECTIONS: usize = 512;
/// Default drain time: the server continues to answer for this duration after SIGTERM.
const DEFAULT_DRAIN: Duration = Duration::from_millis(100);
/// Environment variable that overrides the default drain time, in milliseconds.
pub const DRAIN_MS: &str = "DRAIN_MS";

/// Listen address, from the environment of a container.
struct ListenAddress {
    address: String,
    port: u16,
}

/// Serves requests on `PORT` until SIGTERM. With `check`, sends one request to a running server and reports
/// the result.
#[must_use]
pub fn run(check: bool) -> ExitCode {
    match ListenAddress::from_environment()
        .and_then(|place| if check { check_server(&place) } else { serve(&place) })
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            write_line(&mut io::stderr(), &format!("example-server: {error}"));
            ExitCode::FAILURE
        }
    }
}

impl ListenAddress {
    fn from_environment() -> io::Result<Self> {
        let port = std::env::var("PORT").ok().and_then(|port| port.parse().ok());
        let port = port.ok_or_else(|| io::Error::other("missing or invalid PORT: expected a port number"))?;
        Ok(Self { address: variable_or("CF_INSTANCE_IP", "127.0.0.1"), port })
    }
}

fn variable_or(name: &str, default_value: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default_value.to_owned())
}

/// Sends a request to the server. Returns an error unless the response has status 200.
fn check_server(place: &ListenAddress) -> io::Result<()> {
    let mut connection = TcpStream::connect((place.address.as_str(), place.port))?;
    connection.set_read_timeout(Some(CONNECTION_TIMEOUT))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut status = String::new();
    BufReader::new(io::Read::take(&connection, MAX_HEAD_BYTES)).read_line(&mut status)?;
    if status.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(io::Error::other(format!("unexpected response {:?}", status.trim_end())))
}

fn serve(place: &ListenAddress) -> io::Result<()> {
    let drain = match std::env::var(DRAIN_MS) {
        Ok(text) => Duration::from_millis(text.parse().map_err(|_| {
            io::Error::other(format!(
                "invalid {DRAIN_MS} {text:?}: expected a number of milliseconds, such as 100"
            ))
        })?),
        Err(_) => DEFAULT_DRAIN,
    };
    let index = variable_or("INSTANCE_INDEX", "0");
    let body = format!("hello from instance {index} on cell {}\n", variable_or("MUSTER_CELL_ID", "nowhere"));
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut end = signal(SignalKind::terminate())?;
        let listener = TcpListener::bind((place.address.as_str(), place.port)).await?;
        write_line(
            &mut io::stdout(),
            &format!("instance {index} listens on {}:{}", place.address, place.port),
        );
        let asked = async {
            end.recv().await;
        };
        serve_until(listener, asked, drain, body).await;
        Ok(())
    })
}

/// Serves until `asked` completes, and for `drain` afterwards. Every client that connects before the end gets
/// an answer.
async fn serve_until(listener: TcpListener, asked: impl Future<Output = ()>, drain: Duration, body: String) {
    let mut open = JoinSet::new();
    // A client that disconnects early does not stop the server.
    let serve = |open: &mut JoinSet<()>, connection: io::Result<tokio::net::TcpStream>| match connection {
        Ok(connection) => {
            let body = body.clone();
            open.spawn(async move { drop(timeout(CONNECTION_TIMEOUT, answer(connection, &body)).await) });
        }
        Err(error) => write_line(&mut io::stderr(), &format!("example-server: {error}")),
    };
    let ended = async {
        asked.await;
        sleep(drain).await;
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => break,
            connection = listener.accept(), if open.len() < MAX_CONNECTIONS => {
                serve(&mut open, connection.map(|(connection, _)| connection));
            }
            Some(_) = open.join_next() => {}
        }
    }
    while let Some(Ok((connection, _))) = listener.accept().now_or_never() {
        serve(&mut open, Ok(connection));
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

/// Reads the head of one request, and answers it.
async fn answer(mut connection: tokio::net::TcpStream, body: &str) -> io::Result<()> {
    let (reader, mut writer) = connection.split();
    let mut reader = tokio::io::BufReader::new(reader.take(MAX_HEAD_BYTES));
    let mut request = String::new();
    reader.read_line(&mut request).await?;
    let mut header = String::new();
    while reader.read_line(&mut header).await? > 2 {
        header.clear();
    }
    write_line(&mut io::stdout(), request.trim_end());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
    writer.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    writer.shutdown().await
}

/// Writes a line. Errors are ignored because the log of an example may have no reader.
fn write_line(to: &mut impl Write, line: &str) {
    drop(writeln!(to, "{line}"));
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    async fn ask(port: u16) -> io::Result<String> {
        let mut browser = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        browser.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
        let mut text = String::new();
        browser.read_to_string(&mut text).await?;
        Ok(text)
    }

    #[tokio::test]
    async fn server_answers_until_drain_time_after_stop_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (end, asked) = oneshot::channel();
        let asked = async move { drop(asked.await) };
        let drain = Duration::from_secs(1);
        let server = tokio::spawn(serve_until(listener, asked, drain, "hello\n".into()));
        let text = ask(port).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nhello\n"), "{text:?}");
        let place = ListenAddress { address: "127.0.0.1".into(), port };
        tokio::task::spawn_blocking(move || check_server(&place)).await.unwrap().unwrap();

        end.send(()).unwrap();
        assert!(ask(port).await.unwrap().ends_with("hello\n"), "requests are answered during the drain time");
        // A client that connected before the end gets an answer even if its request arrives later.
        let mut slow = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let ask_late = async {
            sleep(drain + Duration::from_millis(200)).await;
            assert!(ask(port).await.is_err(), "the listener is closed");
            slow.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let mut text = String::new();
            slow.read_to_string(&mut text).await.unwrap();
            assert!(text.ends_with("hello\n"), "{text:?}");
        };
        ask_late.await;
        server.await.unwrap();
    }
}
