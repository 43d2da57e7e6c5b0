//! Tests of the metrics page as Prometheus reads it, and of the probes, over HTTP.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics::catalogue::{APPEND, APPENDS, ATTACHED, LEADER, PROJECTION_LAG};
use metrics::counters::Histogram;
use metrics::family::{Sample, Service};
use metrics::page::{Page, Source, SourceFuture};
use metrics::server::serve;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct FakeSource {
    service: Service,
    cell: Option<&'static str>,
    samples: Vec<Sample>,
    hangs: AtomicBool,
}

impl FakeSource {
    fn new(service: Service, cell: Option<&'static str>, samples: Vec<Sample>) -> Arc<Self> {
        Arc::new(Self { service, cell, samples, hangs: AtomicBool::new(false) })
    }
}

impl Source for FakeSource {
    fn service(&self) -> Service {
        self.service
    }

    fn cell(&self) -> Option<String> {
        self.cell.map(str::to_owned)
    }

    fn status_text(&self) -> String {
        "fixed".to_owned()
    }

    fn tell(&self) -> SourceFuture<'_, Vec<Sample>> {
        Box::pin(std::future::ready(self.samples.clone()))
    }

    fn hang_reason(&self) -> Option<String> {
        self.hangs.load(Ordering::SeqCst).then(|| "the loop hangs".to_owned())
    }

    fn unready_reasons(&self) -> SourceFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(self.hang_reason().into_iter().collect()))
    }
}

/// Returns the lines of the page about these metrics.
async fn page_lines(page: &Page, names: &[&str]) -> Vec<String> {
    let text = page.text().await;
    assert!(text.ends_with("# EOF\n"), "{text}");
    let about = |line: &&str| names.iter().any(|name| line.contains(name));
    text.lines().filter(about).map(str::to_owned).collect()
}

#[tokio::test]
async fn metric_appears_once_for_several_services() {
    let page = Page::new("1.2.3");
    let appends = vec![APPENDS.sample(vec![("outcome", "stored".into())], 7_u64), LEADER.value_sample(true)];
    page.add(FakeSource::new(Service::Bbs, None, appends));
    page.add(FakeSource::new(Service::Auctioneer, None, vec![LEADER.value_sample(false)]));
    page.add(FakeSource::new(Service::Rep, Some("c1"), vec![ATTACHED.value_sample(true)]));
    page.add(FakeSource::new(Service::Rep, Some("c\"2"), vec![ATTACHED.value_sample(false)]));
    let told = page_lines(
        &page,
        &["muster_leader", "muster_appends ", "muster_appends_total", "muster_rep_attached", "muster_build"],
    )
    .await;
    assert_eq!(
        told,
        [
            "# HELP muster_build_info Version of the program; the value is always 1",
            "# TYPE muster_build_info gauge",
            "muster_build_info{service=\"bbs\",version=\"1.2.3\"} 1",
            "muster_build_info{service=\"auctioneer\",version=\"1.2.3\"} 1",
            "muster_build_info{service=\"rep\",cell=\"c1\",version=\"1.2.3\"} 1",
            "muster_build_info{service=\"rep\",cell=\"c\\\"2\",version=\"1.2.3\"} 1",
            "# HELP muster_leader 1 if the service leads, 0 if it stands by",
            "# TYPE muster_leader gauge",
            "muster_leader{service=\"bbs\"} 1",
            "muster_leader{service=\"auctioneer\"} 0",
            "# HELP muster_appends Appends to the journal by outcome: stored, conflict (another entry was \
             first), unknown, refused (never stored), not_stored (a limit or a disk is full)",
            "# TYPE muster_appends counter",
            "muster_appends_total{service=\"bbs\",outcome=\"stored\"} 7",
            "# HELP muster_rep_attached 1 if the rep is attached to its cell, else 0",
            "# TYPE muster_rep_attached gauge",
            "muster_rep_attached{service=\"rep\",cell=\"c1\"} 1",
            "muster_rep_attached{service=\"rep\",cell=\"c\\\"2\"} 0",
        ]
    );
    assert_eq!(
        page_lines(&page, &["muster_projection"]).await,
        Vec::<String>::new(),
        "there is no projector"
    );
}

#[tokio::test]
async fn histogram_and_measure_have_units() {
    let append = Histogram::durations();
    append.observe_duration(Duration::from_millis(3));
    append.observe_duration(Duration::from_secs(20));
    let page = Page::new("1");
    page.add(FakeSource::new(Service::Bbs, None, vec![APPEND.value_sample(append.snapshot())]));
    page.add(FakeSource::new(Service::Projector, None, vec![PROJECTION_LAG.value_sample(0.25)]));
    let told = page_lines(&page, &["muster_append_", "muster_projection_lag_seconds"]).await;
    for line in [
        "# UNIT muster_append_seconds seconds",
        "muster_append_seconds_sum{service=\"bbs\"} 20.003",
        "muster_append_seconds_count{service=\"bbs\"} 2",
        "muster_append_seconds_bucket{le=\"0.0025\",service=\"bbs\"} 0",
        "muster_append_seconds_bucket{le=\"0.005\",service=\"bbs\"} 1",
        "muster_append_seconds_bucket{le=\"10.0\",service=\"bbs\"} 1",
        "muster_append_seconds_bucket{le=\"+Inf\",service=\"bbs\"} 2",
        "muster_projection_lag_seconds{service=\"projector\"} 0.25",
    ] {
        assert!(told.iter().any(|told| told == line), "no {line} in {told:#?}");
    }
}

/// Sends a GET request. Returns the status line and the body.
async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let asked = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn probes_report_problems() {
    let page = Page::new("1");
    let address = serve(page.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (ok, unavailable) = ("HTTP/1.1 200 OK", "HTTP/1.1 503 Service Unavailable");
    let is = |status: &str, body: &str| (status.to_owned(), format!("{body}\n"));
    assert_eq!(get(address, "/livez").await, is(ok, r#"{"live":true}"#));
    let starting = r#"{"ready":false,"wrong":{"program":["starting, or waiting for the log"]}}"#;
    assert_eq!(get(address, "/readyz").await, is(unavailable, starting));
    let rep = FakeSource::new(Service::Rep, Some("c1"), vec![]);
    page.add(rep.clone());
    assert_eq!(get(address, "/readyz").await, is(ok, r#"{"ready":true}"#));
    rep.hangs.store(true, Ordering::SeqCst);
    let wrong = r#"{"ready":false,"wrong":{"rep c1":["the loop hangs"]}}"#;
    assert_eq!(get(address, "/readyz").await, is(unavailable, wrong));
    assert_eq!(get(address, "/livez").await, is(unavailable, &wrong.replace("ready", "live")));
    let (status, body) = get(address, "/metrics").await;
    assert!(status == ok && body.contains("muster_ready{service=\"rep\",cell=\"c1\"} 0"), "{body}");
    let (status, body) = get(address, "/").await;
    assert!(status.ends_with("404 Not Found") && body.contains("expected /metrics"), "{status} {body}");
}

#[tokio::test]
async fn probe_is_answered_despite_many_incomplete_requests() {
    let page = Page::new("1");
    let address = serve(page, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let mut half = vec![];
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n").await.unwrap();
        half.push(stream);
        if half.len() % 50 == 0 {
            let probed = tokio::time::timeout(Duration::from_secs(60), get(address, "/livez")).await;
            assert_eq!(probed.expect("incomplete requests do not block the probe").0, "HTTP/1.1 200 OK");
        }
    }
    let mut closed = 0;
    for mut stream in half {
        // The connection is reset or closed: an incomplete request gets no response.
        let read = stream.read(&mut [0; 16]).await;
        closed += usize::from(read.is_err() || read.is_ok_and(|bytes| bytes == 0));
    }
    assert_eq!(closed, 200);
}

#[tokio::test]
async fn address_in_use_is_reported() {
    let taken = serve(Page::new("1"), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let why = serve(Page::new("1"), taken).await.unwrap_err().to_string();
    let expected = format!("can't serve metrics at {taken}: Address already in use");
    assert!(why.starts_with(&expected) && why.contains("use an address of this host"), "{why}");
}
