//! Minimal HTTP/1.0 client for a NATS server's monitoring address. The client fetches facts that no NATS
//! subject offers.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::limits::{MONITOR_BYTES, MONITOR_TIMEOUT};

/// Returns the JSON document at `path` of the server with the monitoring address `url`, such as
/// `http://127.0.0.1:8222`.
///
/// # Errors
/// The server does not respond in time, its status is not 200, or the response is not JSON.
pub async fn get(url: &str, path: &str) -> io::Result<Value> {
    let (status, body) = get_with_timeout(url, path).await?;
    if status.split(' ').nth(1) != Some("200") {
        return Err(invalid_data(format!("{url}{path} returned {status:?}")));
    }
    parse(url, path, &body)
}

/// Queries the health endpoint of the server with the monitoring address `url`. The inner result is `Err`
/// with the reason if the server reports that it is unhealthy.
///
/// # Errors
/// The server does not respond in time, or the response does not come from a health endpoint.
pub async fn health(url: &str) -> io::Result<Result<(), String>> {
    let path = "/healthz";
    let (_, body) = get_with_timeout(url, path).await?;
    let answer = parse(url, path, &body)?;
    let text = |field: &str| answer[field].as_str().map(str::to_owned);
    match text("status") {
        Some(status) if status == "ok" => Ok(Ok(())),
        Some(status) => Ok(Err(text("error").unwrap_or(status))),
        None => Err(invalid_data(format!("{url}{path} reports no status"))),
    }
}

fn parse(url: &str, path: &str, body: &[u8]) -> io::Result<Value> {
    serde_json::from_slice(body).map_err(|error| invalid_data(format!("{url}{path}: {error}")))
}

async fn get_with_timeout(url: &str, path: &str) -> io::Result<(String, Vec<u8>)> {
    match timeout(MONITOR_TIMEOUT, http_get(url, path)).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no response from {url}"))),
    }
}

/// Sends one request and returns the status line and the body of the response.
async fn http_get(url: &str, path: &str) -> io::Result<(String, Vec<u8>)> {
    let host = url
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'))
        .ok_or_else(|| invalid_data(format!("invalid address {url}: expected http://HOST:PORT")))?;
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MONITOR_BYTES as u64).read_to_end(&mut answer).await?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or_else(|| invalid_data(format!("the response of {url} is not HTTP")))?;
    let status = String::from_utf8_lossy(&answer[..end]).lines().next().unwrap_or_default().to_owned();
    Ok((status, answer.split_off(end + 4)))
}

fn invalid_data(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
