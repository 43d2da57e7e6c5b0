//! Collects facts about the NATS server, the stream, and the permissions of the credentials.

use std::time::{Duration, Instant};

use access::Role;
use access::pattern::{covers, example};
use access::probes::{Probe, probes};
use bus::nats::{ConnectError, Connection};
use bus::permissions::{Operations, probe_permissions};
use bus::{Bus, RequestError};
use bytes::Bytes;
use cli_base::connect::{identity_of, role, without_password};
use cli_base::options::Global;
use client::{Client, Error, Inbox};
use host::bbs::parse_server_time;
use host::serve::{Nats, identity};
use journal::examine::{self, ExamineError};
use journal::monitor;
use schemas::bus::INBOX_ROOT;
use schemas::caller::Caller;
use schemas::names::ServiceId;
use schemas::verb::QueryVerb;
use text::chain;

use explain::doctor::facts::{
    Certificate, Fact, NoConnection, Permissions, Reading, Server, Storage, Stream, Unknown,
};

/// Timeout of each request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of round-trip measurements. The result is the shortest measurement.
const ROUND_TRIP_SAMPLES: u32 = 3;

/// Connection to a NATS server, and the identity of this program there.
pub(super) struct Connected {
    connection: Connection,
    /// Role named in the credentials. If the credentials name no role, the role of a client.
    role: Role,
    /// `true` if the credentials name the role.
    role_is_known: bool,
    /// Second connection of the same user. Used to try permissions.
    trial: Connection,
    /// Caller in the subjects of this program's queries. `None` if the role sends no queries.
    caller: Option<Caller>,
    /// Connection name, and subject prefix of the replies to this connection.
    name_and_inbox: (String, String),
}

pub(super) async fn connect(nats: &Nats, global: &Global) -> Result<Connected, NoConnection> {
    let no_id = |error: host::error::ServiceError| NoConnection::Settings(chain(&error));
    let (id, _) = identity("doctor").map_err(no_id)?;
    let said = role(global);
    let (domain, name) = identity_of(global);
    let role = said.clone().unwrap_or(Role::Client(domain, name));
    let inbox = inbox(&role, id.clone());
    let caller = inbox.as_ref().and_then(Caller::from_inbox);
    // An administrator has no `Inbox`. The subject of an administrator's inbox also consists of the root and
    // the name of the role.
    let inbox = inbox.map_or_else(
        || format!("{INBOX_ROOT}{}", role.to_string().replace(' ', ".")),
        |inbox| inbox.to_string(),
    );
    let reach = async |name: String| nats.connect_for_diagnosis(&name, &inbox).await.map_err(no_connection);
    let connection = reach(id.to_string()).await?;
    let trial = reach(format!("{id} rights")).await?;
    let name_and_inbox = (id.to_string(), inbox);
    Ok(Connected { connection, role, role_is_known: said.is_some(), trial, caller, name_and_inbox })
}

/// Returns the inbox of a role. `None` for a role that does not use the bus.
fn inbox(role: &Role, id: ServiceId) -> Option<Inbox> {
    Some(match role.clone() {
        Role::BbsWriter => Inbox::BbsWriter(id),
        Role::Bbs => Inbox::Bbs(id),
        Role::Auctioneer => Inbox::Auctioneer(id),
        Role::Rep(cell) => Inbox::Rep(cell),
        Role::Client(domain, name) => Inbox::Client(domain, name),
        Role::Projector => Inbox::Projector(id),
        Role::Auditor(name) => Inbox::Auditor(name),
        Role::Operator(name) => Inbox::Operator(name),
        Role::Gateway(name) => Inbox::Gateway(name),
        Role::Admin(_) | Role::System => return None,
    })
}

fn no_connection(error: ConnectError) -> NoConnection {
    let why = chain(&error);
    match error {
        ConnectError::Unreachable { .. } => NoConnection::Unreachable(why),
        ConnectError::Refused { .. } => NoConnection::Refused(why),
        ConnectError::File { .. } | ConnectError::Settings(_) => NoConnection::Settings(why),
    }
}

/// Returns a client of the cluster that uses the same connection.
pub(super) fn client(connected: &Connected, global: &Global) -> Result<Client, Error> {
    let (domain, name) = identity_of(global);
    let client = Client::with_bus(Bus::from(connected.connection.clone()), domain, name)?;
    Ok(client.with_caller(connected.caller.clone()))
}

/// Returns the server's information about itself, and the measured round-trip time.
pub(super) async fn server_facts(connected: &Connected, global: &Global) -> Server {
    let info = connected.connection.client().server_info();
    let url = global.nats.clone().unwrap_or_default();
    let urls: Vec<String> = url.split(',').map(|url| without_password(url.trim())).collect();
    Server {
        url: urls.join(", "),
        name: info.server_name,
        version: info.version,
        cluster: info.cluster.filter(|name| !name.is_empty()),
        jetstream: info.jetstream,
        encrypted: info.tls_required || urls.iter().any(|url| url.starts_with("tls://")),
        role: connected.role_is_known.then(|| connected.role.clone()),
        credentials: global.creds.clone(),
        round_trip: round_trip(connected).await,
        problems: examine::server_problems(&connected.connection),
        certificates: certificates(global),
    }
}

/// Returns the remaining validity of the client certificate and of the authorities' certificates.
fn certificates(global: &Global) -> Fact<Vec<Certificate>> {
    let files = [&global.tls.tls_cert, &global.tls.tls_ca];
    let read = |file: &std::path::PathBuf| {
        let failed = |why: String| Unknown::Failed(format!("{}: {why}", file.display()));
        let pem = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
        let expires = access::certificates::expiry(&pem).map_err(|error| failed(error.to_string()))?;
        let left = expires.since(clock::now());
        Ok(Certificate { file: file.clone(), left: (!left.is_zero()).then_some(left) })
    };
    files.into_iter().flatten().map(read).collect()
}

/// Returns a subject on which the role may send a request that changes nothing.
fn harmless_subject(Connected { role, caller, .. }: &Connected) -> Option<String> {
    let rights = role.rights()?;
    // No service subscribes to the example subject of a command. So only the server answers, and no command
    // is carried out.
    let command = rights.publishes.first().filter(|_| matches!(role, Role::Client(..) | Role::Operator(_)));
    let info = format!("$JS.API.STREAM.INFO.{}", journal::STREAM);
    let query = caller.as_ref().map(|caller| caller.query(QueryVerb::ClusterShow));
    let mut asked = command.map(|pattern| example(pattern)).into_iter().chain([info]).chain(query);
    asked.find(|subject| rights.publishes.iter().any(|right| covers(right, subject)))
}

async fn round_trip(connected: &Connected) -> Fact<Duration> {
    let question = harmless_subject(connected)
        .ok_or_else(|| Unknown::Skipped(format!("{} may send no requests", connected.role)))?;
    let bus = Bus::from(connected.connection.clone());
    let mut shortest: Option<Duration> = None;
    for _ in 0..ROUND_TRIP_SAMPLES {
        let asked = Instant::now();
        match bus.request(&question, Bytes::new(), REQUEST_TIMEOUT).await {
            Ok(_) | Err(RequestError::NoResponder(_)) => {
                let took = asked.elapsed();
                shortest = Some(shortest.map_or(took, |least| least.min(took)));
            }
            Err(
                error
                @ (RequestError::TimedOut(_) | RequestError::Disconnected(_) | RequestError::Refused(_)),
            ) => {
                return Err(Unknown::Skipped(error.to_string()));
            }
        }
    }
    shortest.ok_or_else(|| Unknown::Skipped("not measured".to_owned()))
}

pub(super) async fn stream_facts(connected: &Connected, wanted: usize) -> Fact<Stream> {
    let asked = clock::now();
    // The latency covers only the request for the stream's state. The examination reads the last entry
    // afterwards.
    match examine::examine_stream(&connected.connection, wanted).await {
        Ok(seen) => Ok(Stream {
            request_times: (asked, asked + seen.latency),
            server_time: seen.server_time.as_deref().and_then(parse_server_time),
            examination: seen,
        }),
        Err(error @ ExamineError::Forbidden(_)) => {
            Err(Unknown::Skipped(format!("{error}: {} may not inspect the stream", connected.role)))
        }
        Err(error @ (ExamineError::Absent | ExamineError::NoJetStream(_) | ExamineError::Unavailable(_))) => {
            Err(Unknown::Failed(chain(&error)))
        }
    }
}

/// Reads the first, the last and sampled entries from each named server over a separate connection. A server
/// answers from its own replica if the replica is up to date.
pub(super) async fn read_entries(
    connected: &Connected,
    nats: &Nats,
    stream: &Fact<Stream>,
) -> Fact<Vec<Reading>> {
    let Ok(stream) = stream else {
        return Err(Unknown::Skipped("the stream is unknown".to_owned()));
    };
    let (name, inbox) = &connected.name_and_inbox;
    let mut all = vec![];
    for url in &nats.urls {
        let alone = Nats { urls: vec![url.clone()], ..nats.clone() };
        let reading = match alone.connect_for_diagnosis(&format!("{name} entries"), inbox).await {
            Ok(connection) => Reading {
                server: connection.client().server_info().server_name,
                read: examine::read_samples(&connection, stream.examination.positions)
                    .await
                    .map_err(|error| Unknown::Failed(chain(&error))),
            },
            Err(error) => {
                Reading { server: without_password(url), read: Err(Unknown::Skipped(chain(&error))) }
            }
        };
        all.push(reading);
    }
    Ok(all)
}

pub(super) async fn storage_facts(monitoring: &[String]) -> Fact<Vec<Storage>> {
    if monitoring.is_empty() {
        return Err(Unknown::Skipped(
            "no monitoring address is set: pass --monitoring http://HOST:8222".to_owned(),
        ));
    }
    let mut all = vec![];
    for url in monitoring {
        let said = monitor::get(url, "/jsz").await.map_err(|error| Unknown::Failed(error.to_string()))?;
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
        let (used, max_bytes) = (number(&said["storage"]), number(&said["config"]["max_storage"]));
        let free = said["config"]["store_dir"].as_str().and_then(free_bytes);
        all.push(Storage { url: url.clone(), used, max_bytes, free });
    }
    Ok(all)
}

/// Returns the free bytes of the disk that contains a folder. `None` if the folder is not on this host.
fn free_bytes(folder: &str) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Queries the health endpoint of each server.
pub(super) async fn query_health(monitoring: &[String]) -> Fact<Vec<(String, Result<(), String>)>> {
    if monitoring.is_empty() {
        return Err(Unknown::Skipped(
            "no monitoring address is set: pass --monitoring http://HOST:8222".to_owned(),
        ));
    }
    let mut all = vec![];
    for url in monitoring {
        let said = monitor::health(url).await.map_err(|error| Unknown::Failed(error.to_string()))?;
        all.push((url.clone(), said));
    }
    Ok(all)
}

/// Tries the permissions that the role needs, and one permission that the role must not have.
pub(super) async fn try_permissions(connected: &Connected) -> Fact<Permissions> {
    let Connected { role, role_is_known, trial, connection: _, caller: _, name_and_inbox: _ } = connected;
    let question = harmless_subject(connected).ok_or_else(|| {
        Unknown::Skipped(format!("{role} may send no requests, so its permissions can't be tried"))
    })?;
    let all = probes(role);
    let (mut publishes, mut subscribes) = (vec![], vec![]);
    for probe in all.allowed {
        match probe {
            Probe::Publish(subject) => publishes.push(subject),
            Probe::Subscribe(pattern) => subscribes.push(pattern),
        }
    }
    let tried = publishes.len() + subscribes.len();
    // Subject in the inbox of another role. No program publishes on this subject. The server must deny the
    // subscription.
    let others = all.denied.into_iter().find_map(|probe| match probe {
        Probe::Subscribe(subject) => {
            (subject.starts_with(INBOX_ROOT) && !subject.contains(['*', '>'])).then_some(subject)
        }
        Probe::Publish(_) => None,
    });
    subscribes.extend(others.clone());
    let refused = probe_permissions(trial, &Operations { publishes, subscribes }, &question).await;
    let Operations { publishes, mut subscribes } =
        refused.map_err(|error| Unknown::Failed(format!("can't try the permissions: {error}")))?;
    let beyond = others.clone().filter(|subject| !subscribes.contains(subject));
    subscribes.retain(|subject| others.as_ref() != Some(subject));
    let refused = publishes.iter().map(|subject| format!("publish to {subject}"));
    let refused = refused.chain(subscribes.iter().map(|pattern| format!("subscribe to {pattern}")));
    Ok(Permissions {
        role: role.clone(),
        role_is_known: *role_is_known,
        tried,
        refused: refused.collect(),
        excess: beyond,
    })
}
