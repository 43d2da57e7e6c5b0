//! The owners of tasks: an HTTP server that is told of completed ones, and answers well at `/well` and badly elsewhere.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use schemas::names::TaskGuid;
use serde_json::Value;

/// Whoever listens, and what they were told.
pub(super) struct Owner {
    pub(super) url: String,
    told: Arc<Mutex<BTreeSet<TaskGuid>>>,
}

impl Owner {
    /// Listens for as long as the program runs.
    pub(super) fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let told = Arc::new(Mutex::new(BTreeSet::new()));
        let known = Arc::clone(&told);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // Who calls and goes away again has told nothing.
                drop(answer(connection, &known));
            }
        });
        Self { url, told }
    }

    /// The tasks whose owners know that they have completed.
    pub(super) fn told(&self) -> BTreeSet<TaskGuid> {
        self.told.lock().unwrap().clone()
    }
}

fn answer(connection: TcpStream, told: &Mutex<BTreeSet<TaskGuid>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let well = first.starts_with("POST /well ");
    let task: Value = serde_json::from_slice(&body).unwrap_or_default();
    if well && let Some(task) = task["task_guid"].as_str().and_then(|task| task.parse().ok()) {
        told.lock().unwrap().insert(task);
    }
    let status = if well { "200 OK" } else { "500 Internal Server Error" };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    (&connection).write_all(head.as_bytes())
}
