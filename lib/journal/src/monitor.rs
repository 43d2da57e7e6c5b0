//! Client for a NATS server's monitoring address. The client fetches facts that no NATS subject offers.

use std::io;

use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use crate::limits::{MONITOR_BYTES, MONITOR_TIMEOUT};
use crate::with_causes;

/// Returns the JSON document at `path` of the server with the monitoring address `url`, such as
/// `http://127.0.0.1:8222` or `https://nats.example:8222`.
///
/// # Errors
/// The server does not respond in time, its status is not 200, or the response is too large or not JSON.
pub async fn get(url: &str, path: &str) -> io::Result<Value> {
    let (status, body) = get_with_timeout(url, path).await?;
    if status != StatusCode::OK {
        return Err(invalid_data(format!("{url}{path} returned status {status}")));
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

async fn get_with_timeout(url: &str, path: &str) -> io::Result<(StatusCode, Vec<u8>)> {
    match timeout(MONITOR_TIMEOUT, http_get(url, path)).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no response from {url}"))),
    }
}

/// Sends one request and returns the status and the body of the response.
async fn http_get(url: &str, path: &str) -> io::Result<(StatusCode, Vec<u8>)> {
    let failed = |error: reqwest::Error| {
        io::Error::other(format!("requesting {url}{path}: {}", with_causes(&error.without_url())))
    };
    let client = outbound::builder().redirect(Policy::none()).no_proxy().build().map_err(failed)?;
    let target = format!("{}{path}", url.trim_end_matches('/'));
    let mut response = client.get(target).send().await.map_err(failed)?;
    let body = read_body(&mut response).await.map_err(failed)?;
    let body = body.ok_or_else(|| {
        invalid_data(format!("the response of {url}{path} is larger than {MONITOR_BYTES} bytes"))
    })?;
    Ok((response.status(), body))
}

/// Returns the body, or `None` if it is larger than [`MONITOR_BYTES`].
async fn read_body(response: &mut Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MONITOR_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

fn invalid_data(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::*;

    /// Starts a server that sends `answer` to its first client and then closes the connection. Returns the
    /// server's address and the first bytes that the client sends.
    async fn serve(answer: Vec<u8>) -> (String, oneshot::Receiver<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (send, request) = oneshot::channel();
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut first = vec![0; 4096];
            let length = client.read(&mut first).await.unwrap();
            first.truncate(length);
            drop(send.send(first));
            // A client that refuses the response closes the connection before its end.
            drop(client.write_all(&answer).await);
        });
        (address, request)
    }

    fn response(status: &str, body: &str) -> Vec<u8> {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    async fn get_error(answer: Vec<u8>) -> String {
        let (address, _) = serve(answer).await;
        get(&format!("http://{address}"), "/jsz").await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn document_of_a_successful_response_is_parsed() {
        let (address, request) = serve(response("200 OK", r#"{"config":{"sync_always":true}}"#)).await;
        let document = get(&format!("http://{address}/"), "/jsz?streams=true").await.unwrap();
        assert_eq!(document["config"]["sync_always"], true);
        let request = String::from_utf8(request.await.unwrap()).unwrap();
        assert!(request.starts_with("GET /jsz?streams=true HTTP/1.1\r\n"), "{request}");
    }

    #[tokio::test]
    async fn https_address_starts_a_tls_handshake() {
        const TLS_HANDSHAKE: u8 = 22;
        let (address, request) = serve(response("200 OK", "{}")).await;
        let error = get(&format!("https://{address}"), "/jsz").await.unwrap_err().to_string();
        assert_eq!(request.await.unwrap().first(), Some(&TLS_HANDSHAKE));
        assert!(error.starts_with(&format!("requesting https://{address}/jsz: ")), "{error}");
    }

    #[tokio::test]
    async fn other_status_redirect_garbage_and_large_response_are_errors() {
        let error = get_error(response("503 Service Unavailable", "{}")).await;
        assert!(error.ends_with("/jsz returned status 503 Service Unavailable"), "{error}");
        let moved = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_vec();
        let error = get_error(moved).await;
        assert!(error.ends_with("/jsz returned status 302 Found"), "{error}");
        let error = get_error(b"-ERR\r\n\r\n".to_vec()).await;
        assert!(error.contains("/jsz: error sending request: "), "{error}");
        let large: String = iter::repeat_n('1', MONITOR_BYTES + 1).collect();
        let error = get_error(response("200 OK", &large)).await;
        assert!(error.ends_with("/jsz is larger than 1048576 bytes"), "{error}");
    }

    #[tokio::test]
    async fn health_reports_the_reason_of_an_unhealthy_server() {
        for (status, body, expected) in [
            ("200 OK", r#"{"status":"ok"}"#, Ok(())),
            (
                "503 Service Unavailable",
                r#"{"status":"error","error":"no space"}"#,
                Err("no space".to_owned()),
            ),
        ] {
            let (address, _) = serve(response(status, body)).await;
            assert_eq!(health(&format!("http://{address}")).await.unwrap(), expected);
        }
        let (address, _) = serve(response("200 OK", "{}")).await;
        let error = health(&format!("http://{address}")).await.unwrap_err().to_string();
        assert!(error.ends_with("/healthz reports no status"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_server_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let error = get(&url, "/jsz").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), format!("no response from {url}"));
    }
}
