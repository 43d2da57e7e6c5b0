//! Completion callbacks: restrictions on the URLs that clients set, and the HTTP call.
//!
//! A BBS calls URLs that clients choose, from within the network of its cluster. So the BBS calls only
//! allowed targets, through the clients of [`outbound`], and follows no redirects. It reads only the status
//! of a response.
//!
//! | file | content |
//! |---|---|
//! | this one | the call, and its limits |
//! | [`allow`] | allowed targets: hosts, networks, schemes |
//! | [`kinds`] | classification of addresses: public, or a special kind |

pub(crate) mod allow;
pub(crate) mod kinds;

use std::time::Duration;

use outbound::{Clients, TargetPolicy, UrlError, refusal};
use reqwest::{Client, Url};
use schemas::limits::CALLBACKS_IN_FLIGHT;
use schemas::task::CallbackResult;
use text::chain;
use tokio::sync::Semaphore;

use allow::{Allowed, NotAllowed};

/// Timeout of a whole call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of name resolution and connection setup.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Caller of task callbacks. It makes at most [`CALLBACKS_IN_FLIGHT`] concurrent calls, because each call
/// uses a file descriptor.
#[derive(Debug)]
pub(crate) struct Caller {
    clients: Clients<NotAllowed>,
    permits: Semaphore,
}

impl Caller {
    /// Creates a caller that calls only allowed targets.
    ///
    /// # Errors
    /// The certificates of the system cannot be used.
    pub(crate) fn new(allowed: Allowed) -> Result<Self, reqwest::Error> {
        let judge = TargetPolicy::new(move |target| allowed.check(&target));
        let clients =
            Clients::new(judge, |client| client.timeout(CALL_TIMEOUT).connect_timeout(CONNECT_TIMEOUT))?;
        Ok(Self { clients, permits: Semaphore::new(CALLBACKS_IN_FLIGHT) })
    }

    /// Posts JSON to a URL. If the URL is secret, the result contains no part of the URL.
    pub(crate) async fn call(&self, url: &str, is_secret: bool, body: String) -> CallbackResult {
        let refused =
            |why: &NotAllowed| CallbackResult::Refused(if is_secret { why.kind() } else { why.to_string() });
        let (client, url) = match self.checked_url(url) {
            Ok(judged) => judged,
            Err(why) => return refused(&why),
        };
        let Ok(_room) = self.permits.acquire().await else {
            return CallbackResult::Failed("the BBS is stopping".to_owned());
        };
        let request = client.post(url).header("content-type", "application/json").body(body);
        match request.send().await {
            Ok(answer) => CallbackResult::Answered(answer.status().as_u16()),
            Err(error) => match refusal::<NotAllowed>(&error) {
                Some(why) => refused(why),
                // The causes of an error may contain the host.
                None if is_secret => CallbackResult::Failed(error.without_url().to_string()),
                None => CallbackResult::Failed(chain(&error.without_url()).trim_end().to_owned()),
            },
        }
    }

    /// Returns the parsed URL and the client for it, after the checks that need no name resolution.
    fn checked_url(&self, text: &str) -> Result<(&Client, Url), NotAllowed> {
        let url: Url = text.parse().map_err(|_| NotAllowed::InvalidUrl)?;
        let client = self.clients.for_url(&url).map_err(|why| match why {
            UrlError::NotHttp => NotAllowed::InvalidUrl,
            UrlError::Refused(why) => why,
        })?;
        Ok((client, url))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn caller(rules: &[&str]) -> Caller {
        Caller::new(rules.iter().map(|rule| rule.parse().unwrap()).collect()).unwrap()
    }

    /// Answers one request on a local port. The thread returns the request.
    fn serve_once(answer: &'static str) -> (u16, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        });
        (port, served)
    }

    fn refused(called: CallbackResult) -> String {
        match called {
            CallbackResult::Refused(why) => why,
            other @ (CallbackResult::Answered(_) | CallbackResult::Failed(_)) => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn local_and_private_targets_are_refused_in_every_notation() {
        let caller = caller(&[]);
        for url in [
            "http://127.0.0.1:1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://017700000001/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://169.254.169.254/latest/meta-data",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
            "http://10.0.0.1/",
            "http://192.168.0.1/",
            "http://224.0.0.1/",
            "http://localhost/",
            "http://LOCALHOST/",
            "https://localhost/",
        ] {
            let why = refused(caller.call(url, false, String::new()).await);
            assert!(why.contains("not allowed by --callback-allow"), "{url}: {why}");
        }
        for url in ["file:///etc/passwd", "ftp://a/", "gopher://a/", "nonsense", "http://"] {
            let why = refused(caller.call(url, false, String::new()).await);
            assert!(why.contains("http"), "{url}: {why}");
        }
    }

    #[tokio::test]
    async fn allowed_target_is_called_without_following_redirects() {
        for host in ["127.0.0.1", "localhost"] {
            let (port, served) = serve_once(
                "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            );
            let called = caller(&["127.0.0.0/8"])
                .call(&format!("http://{host}:{port}/done"), false, "{}".into())
                .await;
            assert_eq!(called, CallbackResult::Answered(302));
            assert!(served.join().unwrap().starts_with("POST /done HTTP/1.1\r\n"));
        }
    }

    #[tokio::test]
    async fn allowed_name_with_disallowed_address_is_refused() {
        let why =
            refused(caller(&["localhost", "*"]).call("http://localhost:1/", false, String::new()).await);
        assert!(why.contains("localhost resolves to") && why.contains("loopback"), "{why}");
        let why =
            refused(caller(&["https://127.0.0.0/8"]).call("http://localhost:1/", false, String::new()).await);
        assert!(why.contains("not allowed by --callback-allow"), "{why}");
    }

    #[tokio::test]
    async fn secret_url_is_not_revealed_by_errors() {
        for url in ["http://127.0.0.1:1/secret", "http://localhost:1/secret", "secret"] {
            let why = refused(caller(&[]).call(url, true, String::new()).await);
            assert!(!why.contains("127") && !why.contains("localhost") && !why.contains("secret"), "{why}");
        }
        let CallbackResult::Failed(why) =
            caller(&["127.0.0.0/8"]).call("http://127.0.0.1:1/secret", true, String::new()).await
        else {
            panic!("expected a failed call: no server listens there")
        };
        assert!(!why.contains("127") && !why.contains("secret"), "{why}");
    }
}
