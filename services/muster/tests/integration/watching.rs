//! Monitoring of services: metrics and probes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use metrics::catalogue::CATALOGUE;
use metrics::family::{Family, Service as Teller};
use serde_json::{Value, json};

use crate::dev::sleeper;
use crate::support::test_dir::{ensure, wait_within};
use crate::support::{Cluster, Muster, Service, TestDir, eventually};

/// Sends an HTTP request and returns the status and the body.
pub(crate) fn http_get(address: &str, path: &str) -> Result<(u16, String), String> {
    let failed = |error: std::io::Error| format!("{address}{path}: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(failed)?;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| answer.clone())?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| head.to_owned())?, body.to_owned()))
}

/// Samples of metrics. A sample has a name, labels as text, and a value.
type Samples = Vec<(String, String, f64)>;

/// Returns the names and the samples of the metrics on a page.
fn metrics_page(address: &str) -> Result<(BTreeSet<String>, Samples), String> {
    let (status, text) = http_get(address, "/metrics")?;
    ensure(status == 200 && text.ends_with("# EOF\n"), || text.clone())?;
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (what, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = what.split_once('{').unwrap_or((what, "}"));
        (name.to_owned(), labels.trim_end_matches('}').to_owned(), value.parse().unwrap())
    });
    Ok((types.map(str::to_owned).collect(), samples.collect()))
}

/// Returns the value of the only sample with this metric name and these labels.
fn sample(samples: &Samples, name: &str, labels: &str) -> Result<f64, String> {
    let found: Vec<f64> = samples
        .iter()
        .filter(|(known, with, _)| known == name && labels.split(',').all(|label| with.contains(label)))
        .map(|(_, _, value)| *value)
        .collect();
    match found[..] {
        [one] => Ok(one),
        _ => Err(format!("{name}{{{labels}}}: {found:?}")),
    }
}

/// Returns the metrics address from the log of a service.
pub(crate) fn metrics_address(service: &Service) -> String {
    eventually("the service logs its metrics address", || {
        let said = service.log();
        let rest = said.split("serving metrics at http://").nth(1).ok_or_else(|| said.clone())?;
        rest.split('/').next().map(str::to_owned).ok_or(said.clone())
    })
}

/// Waits until the readiness probe succeeds.
fn wait_until_ready(name: &str, address: &str) {
    eventually(&format!("{name} is ready"), || {
        let (status, body) = http_get(address, "/readyz")?;
        ensure(status == 200 && body == "{\"ready\":true}\n", || body)
    });
}

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

#[test]
fn running_services_export_every_metric() {
    let mut cluster = Cluster::empty();
    for name in ["bbs-1", "bbs-2", "auctioneer-1", "rep-c1"] {
        cluster.start_service_with(name, &METRICS);
    }
    let url = cluster.server.url();
    let tables = format!("sqlite:{}", cluster.place.path().join("tables.db").display());
    let log = cluster.place.path().join("projector.log");
    let args = [["projector", "--database", &tables].as_slice(), &METRICS].concat();
    let projector = Service::start("projector", &log, &args, &[("MUSTER_NATS_URL", &url)]);
    cluster.services.insert("projector-1".to_owned(), projector);
    cluster.wait_until_ready(1);
    let muster = cluster.muster();
    let file = cluster.place.write_file("web.toml", sleeper("web", 2)).display().to_string();
    muster.ok(&format!("apply {file}"));
    let desired =
        json!({"body": {"process_guid": "web", "domain": "shop", "action": {"run": {"path": "true"}}}});
    cluster.plain("stranger").request_json("muster.client.shop.stranger.lrp.desire", &desired);
    let large = json!({"process_guid": "large", "domain": "shop", "memory_mb": 4096,
        "action": {"run": {"path": "true"}}});
    let large = cluster.place.write_file("large.json", large.to_string()).display().to_string();
    muster.ok(&format!("apply {large} --detach"));
    let addresses: BTreeMap<String, String> =
        cluster.services.iter().map(|(name, service)| (name.clone(), metrics_address(service))).collect();
    for (name, at) in &addresses {
        wait_until_ready(name, at);
        assert_eq!(http_get(at, "/livez").unwrap(), (200, "{\"live\":true}\n".to_owned()), "{name}");
    }
    assert_catalogue_is_exported(&addresses);
    assert_values_match_cluster(&cluster, &addresses);
    assert_services_without_server_are_live_and_not_ready(&mut cluster, &addresses);
}

/// Checks that each service exports the metrics that the catalogue lists for it, and no others. Also checks
/// the labels of these metrics.
fn assert_catalogue_is_exported(addresses: &BTreeMap<String, String>) {
    for (name, at) in addresses {
        let (types, samples) = metrics_page(at).unwrap();
        let kind = name.split('-').next().unwrap();
        let of_kind = |family: &&&Family| family.exported_by.iter().any(|by| by.as_str() == kind);
        let expected: BTreeSet<String> =
            CATALOGUE.iter().filter(of_kind).map(|family| family.full_name()).collect();
        assert_eq!(types, expected, "{name}");
        let is_rep = kind == Teller::Rep.as_str();
        for (sample, labels, _) in samples {
            let family = CATALOGUE.iter().find(|family| family.samples().contains(&sample));
            let family = family.unwrap_or_else(|| panic!("{name} exports the unknown metric {sample}"));
            let mut told: BTreeSet<&str> =
                labels.split("\",").filter_map(|label| label.split('=').next()).collect();
            told.remove("le");
            let mut known: BTreeSet<&str> = family.labels.iter().copied().chain(["service"]).collect();
            known.extend(is_rep.then_some("cell"));
            assert_eq!(told, known, "{name}: {sample}{{{labels}}}");
            let secretive = labels.contains("web") || labels.contains("large");
            assert!(!secretive, "{name}: {sample}{{{labels}}} contains a process guid");
        }
    }
}

fn assert_values_match_cluster(cluster: &Cluster, addresses: &BTreeMap<String, String>) {
    let leader = cluster.leader("bbs");
    let follower = if leader == "bbs-1" { "bbs-2" } else { "bbs-1" };
    eventually("the leading BBS exports the state of the cluster", || {
        let (_, samples) = metrics_page(&addresses[&leader])?;
        let expected = [
            ("muster_leader", "", 1.0),
            ("muster_processes_desired", "", 2.0),
            ("muster_instances_desired", "", 3.0),
            ("muster_instances", "state=\"running\"", 2.0),
            ("muster_instances", "state=\"unclaimed\"", 1.0),
            ("muster_instances_unplaced", "", 1.0),
            ("muster_evaluations", "status=\"blocked\"", 1.0),
            ("muster_cells", "state=\"present\"", 1.0),
            ("muster_cell_memory_capacity_bytes", "cell=\"c1\"", 1_073_741_824.0),
            ("muster_cell_containers_used", "cell=\"c1\"", 2.0),
            ("muster_command_seconds_count", "verb=\"lrp.desire\",outcome=\"done\"", 2.0),
            ("muster_command_seconds_count", "verb=\"lrp.desire\",outcome=\"refused\"", 1.0),
            ("muster_refusals_total", "code=\"ResourceExists\"", 1.0),
            ("muster_mass_loss_guard", "", 0.0),
            ("muster_found_by_convergence_total", "", 0.0),
        ];
        for (name, labels, expected) in expected {
            let told = sample(&samples, name, labels)?;
            ensure(told == expected, || format!("{name}{{{labels}}} is {told}, expected {expected}"))?;
        }
        let more = [
            "muster_append_seconds_count",
            "muster_heartbeats_received_total",
            "muster_convergence_seconds_count",
        ];
        for name in more {
            let told = sample(&samples, name, "")?;
            ensure(told > 0.0, || format!("{name} is {told}"))?;
        }
        let stored = sample(&samples, "muster_appends_total", "outcome=\"stored\"")?;
        ensure(stored > 0.0, || format!("{stored} appends"))
    });
    eventually("the standby exports the same state of the log", || {
        let (_, samples) = metrics_page(&addresses[follower])?;
        let told = [
            sample(&samples, "muster_leader", "")?,
            sample(&samples, "muster_instances", "state=\"running\"")?,
            sample(&samples, "muster_appends_total", "outcome=\"stored\"")?,
        ];
        ensure(told == [0.0, 2.0, 0.0], || format!("{told:?}"))
    });
    eventually("auctioneer, rep and projector export their activity", || {
        let (_, samples) = metrics_page(&addresses["auctioneer-1"])?;
        let auctioneer = [
            sample(&samples, "muster_placements_total", "outcome=\"placed\"")?,
            sample(&samples, "muster_work", "state=\"blocked\"")?,
            sample(&samples, "muster_auction_work_sum", "")?,
        ];
        ensure(auctioneer[..2] == [2.0, 1.0] && auctioneer[2] >= 3.0, || format!("{auctioneer:?}"))?;
        let (_, samples) = metrics_page(&addresses["rep-c1"])?;
        let rep = [
            sample(&samples, "muster_containers", "state=\"running\"")?,
            sample(&samples, "muster_container_start_seconds_count", "cell=\"c1\"")?,
            sample(&samples, "muster_rep_attached", "")?,
            sample(&samples, "muster_rep_memory_capacity_bytes", "")?,
        ];
        ensure(rep == [2.0, 2.0, 1.0, 1_073_741_824.0], || format!("{rep:?}"))?;
        let (_, samples) = metrics_page(&addresses["projector-1"])?;
        let lag = sample(&samples, "muster_projection_lag_entries", "")?;
        let position = sample(&samples, "muster_projection_position", "")?;
        ensure(lag == 0.0 && position > 5.0, || format!("{lag} entries behind, at position {position}"))
    });
}

fn assert_services_without_server_are_live_and_not_ready(
    cluster: &mut Cluster,
    addresses: &BTreeMap<String, String>,
) {
    cluster.server.kill9();
    for (name, at) in addresses {
        eventually(&format!("{name} reports the missing server"), || {
            let (status, body) = http_get(at, "/readyz")?;
            let wrong: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
            let told = body.contains("no connection to a NATS server")
                || body.contains("can't read the end of the journal");
            ensure(status == 503 && wrong["ready"] == false && told, || body)
        });
        assert_eq!(http_get(at, "/livez").unwrap().0, 200, "{name}");
    }
    cluster.server.restart();
    addresses.iter().for_each(|(name, at)| wait_until_ready(name, at));
}

#[test]
fn local_cluster_serves_one_page_and_refuses_bad_address() {
    let place = TestDir::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let data = place.path().join("data").display().to_string();
    let nobody = Muster::local(&place.path().join("none"));
    let refused = nobody.exits(1, &format!("dev --data {data} --metrics {at}"));
    refused.expect_output(&[&at, "Address already in use", "use an address of this host with a free port"]);
    nobody.exits(2, "bbs --metrics localhost:9464").expect_output(&["IP:PORT, such as 127.0.0.1:9464"]);
    drop(taken);
    let dev = crate::dev::LocalCluster::start(&place, &["--metrics", &at]);
    wait_within(Duration::from_secs(60), "the page contains every service", || {
        let (types, samples) = metrics_page(&at)?;
        ensure(types.len() == CATALOGUE.len(), || format!("{types:?}"))?;
        let ready = samples.iter().filter(|(name, _, value)| name == "muster_ready" && *value == 1.0).count();
        ensure(ready == 6, || format!("{ready} services are ready"))
    });
    let cells = ["c1", "c2", "c3"]
        .map(|cell| sample(&metrics_page(&at).unwrap().1, "muster_rep_attached", cell).unwrap());
    assert_eq!(cells, [1.0; 3]);
    dev.end(&place);
}
