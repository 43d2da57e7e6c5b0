//! Plain NATS client, like those of other programming languages. It implements the text protocol and uses no
//! Muster code.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::test_dir::TIMEOUT;

/// Time after which a message that has not arrived counts as not sent. Every answer arrives in a fraction of
/// this time.
const GRACE: Duration = Duration::from_millis(1500);

/// Received message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) payload: Vec<u8>,
    /// Status from the server, such as `503` if the subject has no subscriber.
    pub(crate) status: Option<String>,
}

impl Message {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.payload).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Connection of a plain client.
pub(crate) struct PlainClient {
    stream: Transport,
    messages: Receiver<Message>,
    /// Errors from the server.
    errors: Receiver<String>,
    /// Answers of the server to pings.
    pongs: Receiver<()>,
    inbox: String,
    request_count: u64,
}

impl PlainClient {
    /// Connects without a role. Answers arrive at `_INBOX.<name>`.
    pub(crate) fn connect(url: &str, name: &str) -> Self {
        Self::connect_as(url, &format!("_INBOX.{name}"))
    }

    /// Connects, as the user in the URL if it contains one. Answers arrive below `inbox`.
    pub(crate) fn connect_as(url: &str, inbox: &str) -> Self {
        let address = url.strip_prefix("nats://").unwrap();
        let (login, host) = match address.split_once('@') {
            Some((login, host)) => (login.split_once(':'), host),
            None => (None, address),
        };
        let mut stream = TcpStream::connect(host).unwrap();
        read_info(&mut stream);
        let mut options = json!({});
        if let Some((user, password)) = login {
            (options["user"], options["pass"]) = (user.into(), password.into());
        }
        let mut plain = Self::over(Transport::Tcp(stream), inbox, options);
        plain.subscribe(&format!("{inbox}.>"));
        plain
    }

    /// Creates a client on an established connection, and sends its connect options.
    pub(crate) fn over(stream: Transport, inbox: &str, mut options: Value) -> Self {
        let (sender, messages) = channel();
        let (complains, complaints) = channel();
        let (answers, pongs) = channel();
        let (reader, writer) = (BufReader::new(stream.try_clone()), stream.try_clone());
        std::thread::spawn(move || read(reader, writer, &sender, &complains, &answers));
        let mut plain =
            Self { stream, messages, errors: complaints, pongs, inbox: inbox.to_owned(), request_count: 0 };
        for (name, value) in [("verbose", false), ("headers", true), ("no_responders", true)] {
            options[name] = value.into();
        }
        // The server may already have closed the connection of a client that it rejects.
        plain.stream.write_all(format!("CONNECT {options}\r\n").as_bytes()).ok();
        plain
    }

    /// Returns the server's errors about everything sent so far, or `None` if the connection has ended.
    pub(crate) fn errors(&mut self) -> Option<Vec<String>> {
        self.stream.write_all(b"PING\r\n").ok()?;
        self.pongs.recv_timeout(TIMEOUT).ok()?;
        Some(self.errors.try_iter().collect())
    }

    /// Waits until the server sends nothing more, and returns `true` if it has ended the connection.
    pub(crate) fn wait_for_close(&mut self) -> bool {
        while self.messages.recv_timeout(TIMEOUT).is_ok() {}
        self.errors().is_none()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn subscribe(&mut self, pattern: &str) {
        self.request_count += 1;
        let line = format!("SUB {pattern} {}\r\n", self.request_count);
        self.write(line.as_bytes());
    }

    /// Publishes a message with any reply subject.
    pub(crate) fn publish(&mut self, subject: &str, reply: &str, payload: &[u8]) {
        let head = format!("PUB {subject} {reply} {}\r\n", payload.len());
        self.write(&[head.as_bytes(), payload, b"\r\n"].concat());
    }

    /// Publishes a message that the server may reject.
    pub(crate) fn try_publish(&mut self, subject: &str, payload: &[u8]) {
        let head = format!("PUB {subject} {}\r\n", payload.len());
        self.stream.write_all(&[head.as_bytes(), payload, b"\r\n"].concat()).ok();
    }

    /// Sends this text unchanged.
    pub(crate) fn send_raw(&mut self, bytes: &str) {
        self.write(bytes.as_bytes());
    }

    /// Returns the next message, or `None` if none arrives within [`LIMIT`].
    pub(crate) fn next(&mut self) -> Option<Message> {
        self.messages.recv_timeout(TIMEOUT).ok()
    }

    /// Returns the next message, or `None` if none arrives within `limit`.
    pub(crate) fn next_within(&mut self, limit: Duration) -> Option<Message> {
        self.messages.recv_timeout(limit).ok()
    }

    /// Checks that no message arrives.
    pub(crate) fn expect_silence(&mut self) {
        if let Ok(message) = self.messages.recv_timeout(GRACE) {
            panic!("unexpected message: {message:?}");
        }
    }

    /// Sends a request and waits for the answer. Other messages that arrive before it are discarded.
    #[track_caller]
    pub(crate) fn request(&mut self, subject: &str, payload: &[u8]) -> Message {
        let answer = self.request_within(TIMEOUT, subject, payload);
        answer.unwrap_or_else(|| panic!("no answer on {subject}"))
    }

    /// Sends a request and waits for the answer. Returns `None` if none arrives within `limit`, for example
    /// because the server delivered the request to a service that had just been killed.
    pub(crate) fn request_within(
        &mut self,
        limit: Duration,
        subject: &str,
        payload: &[u8],
    ) -> Option<Message> {
        self.request_count += 1;
        let reply = format!("{}.{}", self.inbox, self.request_count);
        self.publish(subject, &reply, payload);
        let until = Instant::now() + limit;
        loop {
            let message = self.messages.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
            if message.subject == reply {
                return Some(message);
            }
        }
    }

    /// Sends a JSON request and returns the JSON answer.
    #[track_caller]
    pub(crate) fn request_json(&mut self, subject: &str, body: &Value) -> Value {
        self.request(subject, body.to_string().as_bytes()).json()
    }
}

impl Drop for PlainClient {
    fn drop(&mut self) {
        match &self.stream {
            Transport::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both).ok(),
            Transport::Bridged(stream) => stream.shutdown(std::net::Shutdown::Both).ok(),
        };
    }
}

/// Transport of a connection.
pub(crate) enum Transport {
    /// Plain TCP.
    Tcp(TcpStream),
    /// Socket to a bridge that encrypts the connection.
    Bridged(UnixStream),
}

impl Transport {
    fn try_clone(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().unwrap()),
            Self::Bridged(stream) => Self::Bridged(stream.try_clone().unwrap()),
        }
    }
}

impl Read for Transport {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Bridged(stream) => stream.read(into),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Bridged(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Bridged(stream) => stream.flush(),
        }
    }
}

/// Reads the server's INFO line and not a byte more.
pub(crate) fn read_info(stream: &mut TcpStream) -> Value {
    let mut line = vec![];
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    let info = line.strip_prefix(b"INFO ").unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&line)));
    serde_json::from_slice(info).unwrap()
}

/// Reads messages of the server until the connection ends.
fn read(
    mut reader: BufReader<Transport>,
    mut writer: Transport,
    to: &Sender<Message>,
    complains: &Sender<String>,
    pongs: &Sender<()>,
) {
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["PING"] => drop(writer.write_all(b"PONG\r\n")),
            ["PONG"] => drop(pongs.send(())),
            ["-ERR", ..] => drop(complains.send(line.trim().to_owned())),
            ["MSG", subject, .., bytes] => {
                let Some(payload) = read_payload(&mut reader, bytes) else { return };
                drop(to.send(Message { subject: subject.to_owned(), payload, status: None }));
            }
            ["HMSG", subject, .., head, bytes] => {
                let Some(mut head_and_payload) = read_payload(&mut reader, bytes) else { return };
                let payload = head_and_payload.split_off(head.parse().unwrap());
                let head = String::from_utf8_lossy(&head_and_payload).into_owned();
                let status = head.lines().next().and_then(|first| first.split(' ').nth(1)).map(str::to_owned);
                drop(to.send(Message { subject: subject.to_owned(), payload, status }));
            }
            _ => {}
        }
        line.clear();
    }
}

/// Reads this number of bytes and the line end after them.
fn read_payload(reader: &mut impl Read, bytes: &str) -> Option<Vec<u8>> {
    let mut payload = vec![0; bytes.parse::<usize>().unwrap() + 2];
    reader.read_exact(&mut payload).ok()?;
    payload.truncate(payload.len() - 2);
    Some(payload)
}
