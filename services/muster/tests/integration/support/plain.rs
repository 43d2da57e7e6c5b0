//! A NATS client as any language has one: it knows the text protocol, and nothing of Muster.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::place::LIMIT;

/// How long is waited for what must not come. Every answer that comes at all takes a fraction of it.
const SILENCE: Duration = Duration::from_millis(1500);

/// A message that came.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) payload: Vec<u8>,
    /// What the server says with it, as `503`: nobody is there.
    pub(crate) status: Option<String>,
}

impl Message {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.payload).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A connection.
pub(crate) struct Plain {
    stream: Wire,
    messages: Receiver<Message>,
    /// What the server complains about.
    complaints: Receiver<String>,
    /// Its answers to whether it is there.
    pongs: Receiver<()>,
    inbox: String,
    asked: u64,
}

impl Plain {
    /// Connects, as nobody in particular; answers come to `_INBOX.<name>`.
    pub(crate) fn connect(url: &str, name: &str) -> Self {
        Self::connect_as(url, &format!("_INBOX.{name}"))
    }

    /// Connects, as the user in the address if there is one; answers come below `inbox`.
    pub(crate) fn connect_as(url: &str, inbox: &str) -> Self {
        let address = url.strip_prefix("nats://").unwrap();
        let (login, host) = match address.split_once('@') {
            Some((login, host)) => (login.split_once(':'), host),
            None => (None, address),
        };
        let mut stream = TcpStream::connect(host).unwrap();
        greeting(&mut stream);
        let mut options = json!({});
        if let Some((user, password)) = login {
            (options["user"], options["pass"]) = (user.into(), password.into());
        }
        let mut plain = Self::over(Wire::Tcp(stream), inbox, options);
        plain.subscribe(&format!("{inbox}.>"));
        plain
    }

    /// Speaks over what is connected already, and says who it is.
    pub(crate) fn over(stream: Wire, inbox: &str, mut options: Value) -> Self {
        let (sender, messages) = channel();
        let (complains, complaints) = channel();
        let (answers, pongs) = channel();
        let (reader, writer) = (BufReader::new(stream.again()), stream.again());
        std::thread::spawn(move || read(reader, writer, &sender, &complains, &answers));
        let mut plain = Self { stream, messages, complaints, pongs, inbox: inbox.to_owned(), asked: 0 };
        for (name, value) in [("verbose", false), ("headers", true), ("no_responders", true)] {
            options[name] = value.into();
        }
        // Who is not let in may be told before.
        plain.stream.write_all(format!("CONNECT {options}\r\n").as_bytes()).ok();
        plain
    }

    /// What the server complains about of all that was sent so far; none: the connection has ended.
    pub(crate) fn complaints(&mut self) -> Option<Vec<String>> {
        self.stream.write_all(b"PING\r\n").ok()?;
        self.pongs.recv_timeout(LIMIT).ok()?;
        Some(self.complaints.try_iter().collect())
    }

    /// Whether the server ends the connection.
    pub(crate) fn is_ended(&mut self) -> bool {
        while self.messages.recv_timeout(LIMIT).is_ok() {}
        self.complaints().is_none()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn subscribe(&mut self, pattern: &str) {
        self.asked += 1;
        let line = format!("SUB {pattern} {}\r\n", self.asked);
        self.write(line.as_bytes());
    }

    /// Publishes, with whatever reply subject.
    pub(crate) fn publish(&mut self, subject: &str, reply: &str, payload: &[u8]) {
        let head = format!("PUB {subject} {reply} {}\r\n", payload.len());
        self.write(&[head.as_bytes(), payload, b"\r\n"].concat());
    }

    /// The same, of something that the server may not let through.
    pub(crate) fn try_publish(&mut self, subject: &str, payload: &[u8]) {
        let head = format!("PUB {subject} {}\r\n", payload.len());
        self.stream.write_all(&[head.as_bytes(), payload, b"\r\n"].concat()).ok();
    }

    /// Sends these bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &str) {
        self.write(bytes.as_bytes());
    }

    /// The next message, if one comes.
    pub(crate) fn next(&mut self) -> Option<Message> {
        self.messages.recv_timeout(LIMIT).ok()
    }

    /// The next message, if one comes so soon.
    pub(crate) fn next_within(&mut self, limit: Duration) -> Option<Message> {
        self.messages.recv_timeout(limit).ok()
    }

    /// Nothing may come.
    pub(crate) fn silence(&mut self) {
        if let Ok(message) = self.messages.recv_timeout(SILENCE) {
            panic!("nothing should have come: {message:?}");
        }
    }

    /// Asks, and waits for the answer. What else comes meanwhile is lost.
    #[track_caller]
    pub(crate) fn ask(&mut self, subject: &str, payload: &[u8]) -> Message {
        let answer = self.ask_within(LIMIT, subject, payload);
        answer.unwrap_or_else(|| panic!("{subject} is not answered"))
    }

    /// Asks, and waits so long for an answer. There is none when the server hands the question to somebody who has just
    /// been killed.
    pub(crate) fn ask_within(&mut self, limit: Duration, subject: &str, payload: &[u8]) -> Option<Message> {
        self.asked += 1;
        let reply = format!("{}.{}", self.inbox, self.asked);
        self.publish(subject, &reply, payload);
        let until = Instant::now() + limit;
        loop {
            let message = self.messages.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
            if message.subject == reply {
                return Some(message);
            }
        }
    }

    /// Asks in JSON, and reads the answer as JSON.
    #[track_caller]
    pub(crate) fn ask_json(&mut self, subject: &str, body: &Value) -> Value {
        self.ask(subject, body.to_string().as_bytes()).json()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        match &self.stream {
            Wire::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both).ok(),
            Wire::Bridged(stream) => stream.shutdown(std::net::Shutdown::Both).ok(),
        };
    }
}

/// What a connection goes over.
pub(crate) enum Wire {
    /// The network itself.
    Tcp(TcpStream),
    /// Somebody who encrypts it.
    Bridged(UnixStream),
}

impl Wire {
    fn again(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().unwrap()),
            Self::Bridged(stream) => Self::Bridged(stream.try_clone().unwrap()),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Bridged(stream) => stream.read(into),
        }
    }
}

impl Write for Wire {
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

/// What a server says first of itself, and not a byte more.
pub(crate) fn greeting(stream: &mut TcpStream) -> Value {
    let mut line = vec![];
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    let info = line.strip_prefix(b"INFO ").unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&line)));
    serde_json::from_slice(info).unwrap()
}

/// Reads what the server sends until the connection ends.
fn read(
    mut reader: BufReader<Wire>,
    mut writer: Wire,
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
                let Some(payload) = take(&mut reader, bytes) else { return };
                drop(to.send(Message { subject: subject.to_owned(), payload, status: None }));
            }
            ["HMSG", subject, .., head, bytes] => {
                let Some(mut head_and_payload) = take(&mut reader, bytes) else { return };
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

/// So many bytes, and the end of their line.
fn take(reader: &mut impl Read, bytes: &str) -> Option<Vec<u8>> {
    let mut payload = vec![0; bytes.parse::<usize>().unwrap() + 2];
    reader.read_exact(&mut payload).ok()?;
    payload.truncate(payload.len() - 2);
    Some(payload)
}
