//! Example of a service that publishes its desired state. The service publishes the process in a file,
//! refreshes the domain, and prints the events of the process.
//!
//! Run it with `cargo run -p client --example publish -- examples/web.json`. It connects to `MUSTER_NATS_URL`
//! or to a local cluster.

use std::error::Error;
use std::time::Duration;

use client::{Client, Events, Target, default_socket};
use schemas::names::ClientName;
use schemas::query::ReadEntry;
use schemas::{Position, spec};

/// Time for which the domain stays fresh after the death of this service. Long enough to restart the service.
const FRESH_TTL: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: publish FILE, a DesiredLRP in JSON")?;
    let lrp = spec::lrp(serde_json::from_slice(&std::fs::read(file)?)?)?;
    let guid = lrp.process_guid.clone();

    let target = match std::env::var("MUSTER_NATS_URL") {
        Ok(url) => Target::nats(&url),
        Err(_) => Target::Socket(default_socket()),
    };
    // The subject of every command contains the domain and the name. The server can enforce permissions on
    // subjects.
    let client = Client::connect(target).domain(lrp.domain.clone()).name(ClientName::new("publish")?).await?;

    // Called at every start. Creates the process, or updates the existing process. An unchanged process is
    // not restarted.
    let done = client.clone().with_reason("published by the example").publish_lrp(lrp).await?;
    print_line(&format!("desired {guid} at position {}", done.position));

    // Refresh the domain only after everything is published. After the refresh, the cluster may stop
    // instances that are not desired.
    client.refresh_domain(Some(FRESH_TTL)).await?;

    let events = client.events(Position(done.position.0 - 1)).for_target(format!("lrp:{guid}"));
    tokio::select! {
        failed = keep_fresh(&client) => failed?,
        failed = print(events) => failed?,
    }
    Ok(())
}

/// Refreshes the domain repeatedly, before it expires.
async fn keep_fresh(client: &Client) -> Result<(), client::Error> {
    loop {
        tokio::time::sleep(FRESH_TTL / 4).await;
        client.refresh_domain(Some(FRESH_TTL)).await?;
    }
}

/// Prints the events. If the BBS or the NATS server is unavailable, waits until it is available again.
async fn print(mut events: Events) -> Result<(), client::Error> {
    loop {
        let recorded = events.next().await?;
        match recorded.entry {
            ReadEntry::Known(entry) => {
                for decision in entry.decisions {
                    let events: Vec<&str> = decision.events.iter().map(|event| event.type_name()).collect();
                    print_line(&format!("{} {} {}", recorded.position, decision.at, events.join(" ")));
                }
            }
            ReadEntry::Unknown { reason, .. } => print_line(&format!("{} {reason}", recorded.position)),
        }
    }
}

#[expect(clippy::print_stdout, reason = "this is what the example is for")]
fn print_line(line: &str) {
    println!("{line}");
}
