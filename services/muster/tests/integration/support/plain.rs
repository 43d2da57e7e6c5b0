//! A NATS client as any language has one: it knows the text protocol, and nothing of Muster.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
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
    stream: TcpStream,
    messages: Receiver<Message>,
    /// What the server complains about.
    complaints: Receiver<String>,
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
        let stream = TcpStream::connect(host).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut info = String::new();
        reader.read_line(&mut info).unwrap();
        assert!(info.starts_with("INFO "), "{info}");
        let (sender, messages) = channel();
        let (complains, complaints) = channel();
        let writer = stream.try_clone().unwrap();
        std::thread::spawn(move || read(reader, writer, &sender, &complains));
        let mut plain = Self { stream, messages, complaints, inbox: inbox.to_owned(), asked: 0 };
        let mut options = json!({"verbose": false, "headers": true, "no_responders": true});
        if let Some((user, password)) = login {
            (options["user"], options["pass"]) = (user.into(), password.into());
        }
        plain.write(format!("CONNECT {options}\r\n").as_bytes());
        plain.subscribe(&format!("{inbox}.>"));
        plain
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

    /// The next message, if one comes.
    pub(crate) fn next(&mut self) -> Option<Message> {
        self.messages.recv_timeout(LIMIT).ok()
    }

    /// The next message, if one comes so soon.
    pub(crate) fn next_within(&mut self, limit: Duration) -> Option<Message> {
        self.messages.recv_timeout(limit).ok()
    }

    /// What the server complains about next, if it does.
    pub(crate) fn complaint(&mut self) -> Option<String> {
        self.complaints.recv_timeout(LIMIT).ok()
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
        self.stream.shutdown(std::net::Shutdown::Both).ok();
    }
}

/// Reads what the server sends until the connection ends.
fn read(
    mut reader: BufReader<TcpStream>,
    mut writer: TcpStream,
    to: &Sender<Message>,
    complains: &Sender<String>,
) {
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["PING"] => drop(writer.write_all(b"PONG\r\n")),
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
