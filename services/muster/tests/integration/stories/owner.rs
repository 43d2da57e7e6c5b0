//! The owners of tasks: an HTTP server that is told of completed ones, and answers well at `/well` and badly elsewhere.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use schemas::names::TaskGuid;
use serde_json::Value;

use crate::support::http::{self, Call};

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
    let call = Call::read(&connection)?;
    let well = call.path == "/well";
    let task: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    if well && let Some(task) = task["task_guid"].as_str().and_then(|task| task.parse().ok()) {
        told.lock().unwrap().insert(task);
    }
    http::answer(&connection, if well { "200 OK" } else { "500 Internal Server Error" }, "")
}
