//! Client of a trace collector.

use std::fmt;
use std::time::Duration;

use reqwest::{Client, Response, StatusCode, Url};
use serde_json::{Value, json};
use text::chain;
use text::words::{InvalidValue, count, one_line};

use super::span::string_attribute;

/// Maximum number of spans per request.
pub const MAX_BATCH: usize = 512;
/// Default timeout of a request to a collector.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes read from a response.
const MAX_RESPONSE_BYTES: usize = 16 * 1_024;
/// Maximum number of characters shown of a response.
const MAX_SHOWN_CHARS: usize = 200;

/// Address of a trace collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector(Url);

impl Collector {
    /// Parses the address of a collector. A URL without a path gets the standard path.
    ///
    /// # Errors
    /// The text is not an HTTP or HTTPS URL.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let expected = "http:// or https:// with a host, such as http://127.0.0.1:4318";
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let mut url = url.ok_or_else(|| InvalidValue::new("collector URL", text, expected))?;
        if url.path() == "/" {
            url.set_path("/v1/traces");
        }
        Ok(Self(url))
    }

    /// Sends at most [`MAX_BATCH`] spans in one request.
    pub async fn send(&self, http: &Client, spans: &[Value]) -> Result<(), SendError> {
        let body = request(spans).to_string();
        let call = http.post(self.0.clone()).header("content-type", "application/json").body(body);
        let answer = call.send().await.map_err(|error| SendError::NoAnswer(chain(&error.without_url())))?;
        check_response(answer).await
    }
}

impl fmt::Display for Collector {
    /// Formats the address without its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.clone();
        if url.password().is_some() && url.set_password(None).is_err() {
            return f.write_str("the collector");
        }
        url.fmt(f)
    }
}

/// Reason why a collector did not accept all spans.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The collector does not answer.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The collector answered with an error status.
    #[error("status {0}{1}")]
    Answered(StatusCode, String),
    /// The collector rejected some of the spans.
    #[error("rejected {}: {why}", count(*.spans, "span"))]
    Rejected {
        /// Number of rejected spans.
        spans: u64,
        why: String,
    },
}

impl SendError {
    /// Returns `true` if a retry of the same spans may succeed (OpenTelemetry Protocol Specification,
    /// "Failures").
    pub(crate) const fn is_retryable(&self) -> bool {
        match self {
            Self::NoAnswer(_) => true,
            Self::Answered(status, _) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::Rejected { .. } => false,
        }
    }
}

/// Returns an error unless the collector accepted the whole batch.
async fn check_response(answer: Response) -> Result<(), SendError> {
    let status = answer.status();
    let said = read_body(answer).await;
    if !status.is_success() {
        let shown: String = one_line(&String::from_utf8_lossy(&said)).chars().take(MAX_SHOWN_CHARS).collect();
        let shown = if shown.is_empty() { shown } else { format!(": {shown}") };
        return Err(SendError::Answered(status, shown));
    }
    rejected_spans(&said).map_or(Ok(()), Err)
}

/// Returns the start of the response body. If reading fails, returns the part that was read, because the
/// status is already known.
async fn read_body(mut answer: Response) -> Vec<u8> {
    let mut said = vec![];
    while said.len() < MAX_RESPONSE_BYTES {
        match answer.chunk().await {
            Ok(Some(bytes)) => said.extend_from_slice(&bytes),
            Ok(None) | Err(_) => break,
        }
    }
    said
}

/// Returns the rejected part of a batch, if the response reports one.
fn rejected_spans(said: &[u8]) -> Option<SendError> {
    let said: Value = serde_json::from_slice(said).ok()?;
    let partial = &said["partialSuccess"];
    // The JSON encoding of protocol buffers represents 64-bit integers as text, but some collectors send
    // numbers.
    let spans = &partial["rejectedSpans"];
    let rejected = spans.as_u64().or_else(|| spans.as_str()?.parse().ok()).filter(|count| *count > 0)?;
    let why = one_line(partial["errorMessage"].as_str().unwrap_or("no reason given"));
    Some(SendError::Rejected { spans: rejected, why })
}

/// Returns the body of a request with these spans.
fn request(spans: &[Value]) -> Value {
    json!({"resourceSpans": [{
        "resource": {"attributes": [string_attribute("service.name", "muster")]},
        "scopeSpans": [{
            "scope": {"name": "muster", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_address_without_path_gets_the_standard_path() {
        let shown = |text: &str| Collector::parse(text).map(|collector| collector.to_string());
        assert_eq!(shown("http://a:4318").as_deref(), Ok("http://a:4318/v1/traces"));
        assert_eq!(shown("https://a/").as_deref(), Ok("https://a/v1/traces"));
        assert_eq!(shown("http://a/otel?x=1").as_deref(), Ok("http://a/otel?x=1"));
        assert_eq!(shown("http://me:secret@a").as_deref(), Ok("http://me@a/v1/traces"));
        for bad in ["", "a:4318", "127.0.0.1:4318", "ftp://a", "http://"] {
            assert!(shown(bad).unwrap_err().to_string().contains("expected http:// or https://"), "{bad}");
        }
    }

    #[test]
    fn partial_rejection_is_reported() {
        let told = |text: &str| rejected_spans(text.as_bytes()).map(|why| why.to_string());
        let some = r#"{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}"#;
        assert_eq!(told(some).as_deref(), Some("rejected 2 spans: too old"));
        assert_eq!(
            told(r#"{"partialSuccess": {"rejectedSpans": 1}}"#).as_deref(),
            Some("rejected 1 span: no reason given")
        );
        for fine in
            ["", "ok", "{}", r#"{"partialSuccess": {}}"#, r#"{"partialSuccess": {"rejectedSpans": "0"}}"#]
        {
            assert_eq!(told(fine), None, "{fine}");
        }
    }

    #[test]
    fn only_transient_errors_are_retryable() {
        let answered =
            |status: u16| SendError::Answered(StatusCode::from_u16(status).unwrap(), String::new());
        assert!(
            SendError::NoAnswer(String::new()).is_retryable()
                && answered(503).is_retryable()
                && answered(429).is_retryable()
        );
        assert!(
            !answered(400).is_retryable()
                && !answered(500).is_retryable()
                && !SendError::Rejected { spans: 1, why: String::new() }.is_retryable()
        );
    }
}
