//! Owner of tasks: an HTTP server that receives completion callbacks. The server answers with success at
//! `/well`, and with an error at all other paths.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use schemas::names::TaskGuid;
use serde_json::Value;

use crate::support::http::{self, PostRequest};

/// Callback server, with the tasks whose completion callbacks it acknowledged.
pub(super) struct Owner {
    pub(super) url: String,
    acknowledged: Arc<Mutex<BTreeSet<TaskGuid>>>,
}

impl Owner {
    /// Starts the server, which runs until the program exits.
    pub(super) fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
        let known = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // A caller that disconnects early has reported no completion.
                drop(answer(connection, &known));
            }
        });
        Self { url, acknowledged }
    }

    /// Returns the tasks whose completion was acknowledged.
    pub(super) fn acknowledged(&self) -> BTreeSet<TaskGuid> {
        self.acknowledged.lock().unwrap().clone()
    }
}

fn answer(connection: TcpStream, told: &Mutex<BTreeSet<TaskGuid>>) -> std::io::Result<()> {
    let call = PostRequest::read(&connection)?;
    let well = call.path == "/well";
    let task: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    if well && let Some(task) = task["task_guid"].as_str().and_then(|task| task.parse().ok()) {
        told.lock().unwrap().insert(task);
    }
    http::respond(&connection, if well { "200 OK" } else { "500 Internal Server Error" }, "")
}
