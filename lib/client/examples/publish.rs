//! A service that publishes what it desires: it keeps one process as a file says, tells the cluster that the domain is
//! up to date, and prints what happens to the process.
//!
//! `cargo run -p client --example publish -- examples/web.json`, against `MUSTER_NATS_URL` or a local cluster.

use std::error::Error;
use std::time::Duration;

use client::{Client, Events, Target, default_socket};
use schemas::names::ClientName;
use schemas::query::ReadEntry;
use schemas::{Position, spec};

/// How long the domain stays fresh if this service dies: long enough to start it again.
const FRESH: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("give the JSON file of a DesiredLRP")?;
    let lrp = spec::lrp(serde_json::from_slice(&std::fs::read(file)?)?)?;
    let guid = lrp.process_guid.clone();

    let target = match std::env::var("MUSTER_NATS_URL") {
        Ok(url) => Target::nats(&url),
        Err(_) => Target::Socket(default_socket()),
    };
    // The domain and the name are in the subject of every command, where permissions can prove them.
    let client = Client::connect(target).domain(lrp.domain.clone()).name(ClientName::new("publish")?).await?;

    // At every start: desire it, or change what is desired already. Nothing is restarted by that.
    let done = client.clone().because("published by the example").publish_lrp(lrp).await?;
    say(&format!("{guid} is desired since position {}", done.position));

    // Only now, with everything published, the domain is up to date: what nobody desires may be stopped.
    client.refresh_domain(Some(FRESH)).await?;

    let events = client.events(Position(done.position.0 - 1)).about(format!("lrp:{guid}"));
    tokio::select! {
        failed = keep_fresh(&client) => failed?,
        failed = print(events) => failed?,
    }
    Ok(())
}

/// Refreshes the domain, in good time, for ever.
async fn keep_fresh(client: &Client) -> Result<(), client::Error> {
    loop {
        tokio::time::sleep(FRESH / 4).await;
        client.refresh_domain(Some(FRESH)).await?;
    }
}

/// Prints what happens. A BBS or a NATS server that is away for a while only makes this wait.
async fn print(mut events: Events) -> Result<(), client::Error> {
    loop {
        let recorded = events.next().await?;
        match recorded.entry {
            ReadEntry::Known(entry) => {
                for decision in entry.decisions {
                    let events: Vec<&str> = decision.events.iter().map(|event| event.type_name()).collect();
                    say(&format!("{} {} {}", recorded.position, decision.at, events.join(" ")));
                }
            }
            ReadEntry::Unknown { why, .. } => say(&format!("{} {why}", recorded.position)),
        }
    }
}

#[expect(clippy::print_stdout, reason = "this is what the example is for")]
fn say(line: &str) {
    println!("{line}");
}
