//! Tests of the behaviour that all buses share, and of features of single buses.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use bus::Bus;
use bus::limits::SUBSCRIPTION_QUEUE;
use bus::nats::{Login, Settings};
use bus::{BusError, InProcess, RequestError, SocketServer, Subscription};
use bytes::Bytes;
use schemas::limits::MESSAGE_BYTES;
use support::server::NatsServer;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(5);

/// Two handles to one bus, and the resources that must live as long as the handles.
struct Bench {
    name: &'static str,
    bbs: Bus,
    rep: Bus,
    _resources: Resources,
}

#[expect(dead_code, reason = "kept until the test ends")]
enum Resources {
    Nothing,
    Socket(SocketServer, TempDir),
    Nats(Box<NatsServer>, TempDir),
}

async fn benches() -> [Bench; 4] {
    let local = InProcess::new();
    let as_role = |role: &str| Bus::InProcess(local.with_inbox(&format!("muster.inbox.{role}")).unwrap());
    let in_process = Bench {
        name: "in process",
        bbs: as_role("bbs"),
        rep: as_role("rep.c1"),
        _resources: Resources::Nothing,
    };
    [in_process, socket_bench(true).await, socket_bench(false).await, nats_bench().await]
}

/// Returns a bench with a rep that is connected over the socket. If `both` is set, the BBS is connected over
/// the socket, too. Otherwise the BBS uses the bus of the server's process.
async fn socket_bench(both: bool) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus.sock");
    let local = Bus::in_process("muster.inbox.bbs").unwrap();
    let server = local.serve_socket(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let rep = Bus::connect_socket(&path, "muster.inbox.rep.c1").await.unwrap();
    let bbs = if both { Bus::connect_socket(&path, "muster.inbox.bbs").await.unwrap() } else { local };
    let name = if both { "over a socket" } else { "over a socket to its process" };
    Bench { name, bbs, rep, _resources: Resources::Socket(server, folder) }
}

async fn nats_bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let server = NatsServer::start(folder.path()).await.unwrap();
    let (bbs, rep) = (connect(&server, "bbs").await, connect(&server, "rep.c1").await);
    Bench { name: "NATS", bbs, rep, _resources: Resources::Nats(Box::new(server), folder) }
}

async fn connect(server: &NatsServer, role: &str) -> Bus {
    let settings = Settings::new(vec![server.url.clone()], role, &format!("muster.inbox.{role}"));
    Bus::from(settings.connect().await.unwrap())
}

/// Answers every request with the payload of the request until the task is aborted.
async fn echo(bus: &Bus, pattern: &str, group: Option<&str>) -> tokio::task::JoinHandle<()> {
    let (bus, mut questions) = (bus.clone(), bus.subscribe(pattern, group).await.unwrap());
    tokio::spawn(async move {
        while let Some(question) = questions.next().await {
            if let Some(to) = question.reply {
                bus.reply(&to, question.payload).await.unwrap();
            }
        }
    })
}

/// Returns the subject and the text of the next message. `None` if no message arrives within 300 ms.
async fn next(subscription: &mut Subscription) -> Option<(String, String)> {
    let message = timeout(Duration::from_millis(300), subscription.next()).await.ok()??;
    Some((message.subject, String::from_utf8(message.payload.to_vec()).unwrap()))
}

/// Sends requests until there is a response. Over a network, a subscription takes a moment to become active.
async fn request_until_answered(bus: &Bus, subject: &str) {
    for _ in 0..100 {
        if bus.request(subject, "there?".into(), PATIENCE / 5).await.is_ok() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("no responder on {subject}");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_answered() {
    for Bench { name, bbs, rep, _resources } in benches().await {
        let mut questions = bbs.subscribe("muster.cell.*.bbs.claim", Some("bbs")).await.unwrap();
        let asking = tokio::spawn(async move {
            request_until_answered(&rep, "muster.cell.c1.bbs.claim").await;
            rep.request("muster.cell.c1.bbs.claim", "mine?".into(), PATIENCE).await
        });
        for _ in 0..2 {
            let question = timeout(PATIENCE, questions.next()).await.unwrap().unwrap();
            assert_eq!(question.subject, "muster.cell.c1.bbs.claim", "{name}");
            let to = question.reply.unwrap();
            assert!(to.is_inbox_of("rep.c1") && !to.is_inbox_of("bbs"), "{name}: {}", to.subject());
            assert!(to.is_inbox_of("rep") && !to.is_inbox_of("re"), "{name}: {}", to.subject());
            bbs.reply(&to, Bytes::from([b"yes: ", question.payload.as_ref()].concat())).await.unwrap();
        }
        assert_eq!(asking.await.unwrap().unwrap(), "yes: mine?", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_subscriber_is_reported_immediately_and_silence_times_out() {
    for Bench { name, bbs, rep, _resources } in benches().await {
        let started = Instant::now();
        let error = rep.request("nobody.here", "?".into(), PATIENCE).await.unwrap_err();
        assert!(matches!(error, RequestError::NoResponder(_)), "{name}: {error}");
        assert!(started.elapsed() < PATIENCE / 2, "{name}");

        let silent = bbs.subscribe("somebody.here", None).await.unwrap();
        sleep(Duration::from_millis(50)).await;
        let error = rep.request("somebody.here", "?".into(), Duration::from_millis(100)).await.unwrap_err();
        assert!(matches!(error, RequestError::TimedOut(_)), "{name}: {error}");

        drop(silent);
        sleep(Duration::from_millis(50)).await;
        let error = rep.request("somebody.here", "?".into(), PATIENCE).await.unwrap_err();
        assert!(matches!(error, RequestError::NoResponder(_)), "{name}, dropped: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pattern_wildcards_match_tokens() {
    for Bench { name, bbs, rep, _resources } in benches().await {
        let mut one = bbs.subscribe("cell.*.heartbeat", None).await.unwrap();
        let mut below = bbs.subscribe("cell.>", None).await.unwrap();
        let mut exact = bbs.subscribe("cell.c1.heartbeat", None).await.unwrap();
        sleep(Duration::from_millis(50)).await;
        for subject in ["cell.c1.heartbeat", "cell.c2.heartbeat", "cell.c2.bbs.claim", "cell", "other"] {
            rep.publish(subject, subject.to_owned().into()).await.unwrap();
        }
        let told = |subject: &str| Some((subject.to_owned(), subject.to_owned()));
        assert_eq!(next(&mut one).await, told("cell.c1.heartbeat"), "{name}");
        assert_eq!(next(&mut one).await, told("cell.c2.heartbeat"), "{name}");
        assert_eq!(next(&mut one).await, None, "{name}");
        assert_eq!(next(&mut below).await, told("cell.c1.heartbeat"), "{name}");
        assert_eq!(next(&mut below).await, told("cell.c2.heartbeat"), "{name}");
        assert_eq!(next(&mut below).await, told("cell.c2.bbs.claim"), "{name}");
        assert_eq!(next(&mut below).await, None, "{name}");
        assert_eq!(next(&mut exact).await, told("cell.c1.heartbeat"), "{name}");
        assert_eq!(next(&mut exact).await, None, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_reaches_one_member_per_group_and_every_other_subscriber() {
    const MESSAGES: usize = 200;
    for Bench { name, bbs, rep, _resources } in benches().await {
        let mut members = [
            bbs.subscribe("work.>", Some("bbs")).await.unwrap(),
            rep.subscribe("work.>", Some("bbs")).await.unwrap(),
            bbs.subscribe("work.>", Some("bbs")).await.unwrap(),
        ];
        let mut others = [
            bbs.subscribe("work.>", None).await.unwrap(),
            rep.subscribe("work.>", Some("audit")).await.unwrap(),
        ];
        sleep(Duration::from_millis(50)).await;
        for n in 0..MESSAGES {
            rep.publish("work.do", n.to_string().into()).await.unwrap();
        }
        let mut got = Vec::new();
        for member in &mut members {
            while let Some((_, text)) = next(member).await {
                got.push(text.parse::<usize>().unwrap());
            }
        }
        got.sort_unstable();
        assert_eq!(got, (0..MESSAGES).collect::<Vec<_>>(), "{name}");
        for other in &mut others {
            for n in 0..MESSAGES {
                assert_eq!(next(other).await.map(|(_, text)| text), Some(n.to_string()), "{name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_subscriber_loses_messages_without_delaying_others() {
    for Bench { name, bbs, rep, _resources } in benches().await {
        let mut slow = bbs.subscribe("flood", None).await.unwrap();
        let answering = echo(&bbs, "question", None).await;
        request_until_answered(&rep, "question").await;
        // Over a socket, a queue at each end holds messages. The rest also exceeds what the socket itself holds.
        let sent = 2 * SUBSCRIPTION_QUEUE + SUBSCRIPTION_QUEUE / 2;
        for n in 0..sent {
            rep.publish("flood", n.to_string().into()).await.unwrap();
            // At this pace, the connection itself loses no message. The test is only about the losses of the
            // queue.
            if n % 512 == 0 {
                rep.request("question", "still there?".into(), PATIENCE).await.unwrap();
            }
        }
        rep.request("question", "still there?".into(), PATIENCE).await.unwrap();
        let mut got = 0;
        while next(&mut slow).await.is_some() {
            got += 1;
        }
        assert!((SUBSCRIPTION_QUEUE..sent).contains(&got), "{name}: {got}");
        answering.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_subjects_and_oversized_payloads_are_refused() {
    for Bench { name, bbs, rep, _resources } in benches().await {
        let large = Bytes::from(vec![0; MESSAGE_BYTES + 1]);
        let error = rep.publish("large", large.clone()).await.unwrap_err();
        assert!(matches!(&error, BusError::Refused(why) if why.contains("large")), "{name}: {error}");
        let error = rep.request("large", large, PATIENCE).await.unwrap_err();
        assert!(matches!(&error, RequestError::Refused(why) if why.contains("large")), "{name}: {error}");
        for subject in ["", "a b", "a.*", "a..b", "muster.event.cluster"] {
            let error = rep.publish(subject, Bytes::new()).await.unwrap_err();
            assert!(matches!(error, BusError::Refused(_)), "{name}: {subject:?}");
        }
        for pattern in ["", "a.>.b", "a b"] {
            assert!(rep.subscribe(pattern, None).await.is_err(), "{name}: {pattern:?}");
        }
        let mut largest = bbs.subscribe("largest", None).await.unwrap();
        sleep(Duration::from_millis(50)).await;
        rep.publish("largest", vec![b'x'; MESSAGE_BYTES].into()).await.unwrap();
        let got = timeout(PATIENCE, largest.next()).await.unwrap().unwrap();
        assert_eq!(got.payload.len(), MESSAGE_BYTES, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_reply_subject_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = NatsServer::start(folder.path()).await.unwrap();
    let bbs = connect(&server, "bbs").await;
    let mut questions = bbs.subscribe("question", None).await.unwrap();
    // When the server has answered a later request, it has processed the subscription.
    bbs.request("nobody", Bytes::new(), PATIENCE).await.unwrap_err();
    let mut raw = tokio::net::TcpStream::connect(server.url.strip_prefix("nats://").unwrap()).await.unwrap();
    raw.write_all(b"CONNECT {\"verbose\":false}\r\nPUB question muster.event.cluster 2\r\nhi\r\n")
        .await
        .unwrap();
    let question = timeout(PATIENCE, questions.next()).await.unwrap().unwrap();
    let error = bbs.reply(&question.reply.unwrap(), "no".into()).await.unwrap_err();
    assert!(error.to_string().contains("is not an inbox"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_frame_closes_only_its_socket_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus.sock");
    let local = Bus::in_process("muster.inbox.bbs").unwrap();
    let server = local.serve_socket(&path).unwrap();
    // The kernel lists the socket under the socket's own name.
    let in_use = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(in_use.lines().any(|line| line.ends_with(&format!(" {}", path.display()))), "{in_use}");
    let second = local.serve_socket(&path).unwrap_err();
    let why = std::error::Error::source(&second).unwrap().to_string();
    assert_eq!(why, "in use by another process");
    let good = Bus::connect_socket(&path, "muster.inbox.client").await.unwrap();
    let answering = echo(&local, "question", None).await;
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100], &[0, 0, 0, 17, 200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
    {
        let mut bad = tokio::net::UnixStream::connect(&path).await.unwrap();
        bad.write_all(garbage).await.unwrap();
        bad.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // The server closes the connection. The client may see this as a reset.
        drop(timeout(PATIENCE, bad.read_to_end(&mut rest)).await.unwrap());
        assert!(rest.is_empty());
        assert_eq!(good.request("question", "there?".into(), PATIENCE).await.unwrap(), "there?");
    }
    let mut subscription = good.subscribe("never", None).await.unwrap();
    answering.abort();
    drop(server);
    assert!(!path.exists());
    assert!(
        timeout(PATIENCE, subscription.next()).await.unwrap().is_none(),
        "a closed bus ends subscriptions"
    );
    let error = good.request("question", "there?".into(), PATIENCE).await.unwrap_err();
    assert!(matches!(error, RequestError::Disconnected(_)), "{error}");
    let error = Bus::connect_socket(&path, "muster.inbox.client").await.unwrap_err();
    assert!(error.to_string().contains("no process serves the socket"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permission_and_lost_server_are_reported_on_nats() {
    let folder = tempfile::tempdir().unwrap();
    let users = "authorization { users: [ { user: rep, password: secret, permissions: {
        publish: [\"muster.cell.c1.>\", \"muster.inbox.rep.c1.>\"], subscribe: [\"muster.inbox.rep.c1.>\", \"muster.cell.c1.>\"] } } ] }";
    let mut server = NatsServer::start_with(folder.path(), users).await.unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let mut settings = Settings::new(vec![server.url.clone()], "rep", "muster.inbox.rep.c1");
    let error = settings.connect().await.unwrap_err().to_string();
    assert!(error.contains("refused the connection"), "{error}");
    settings.login = Login::Password { user: "rep".into(), file };
    let rep = Bus::from(settings.connect().await.unwrap());
    let error =
        rep.request("muster.cell.c2.bbs.claim", "?".into(), Duration::from_millis(300)).await.unwrap_err();
    assert!(error.to_string().contains("no permission to publish on muster.cell.c2.bbs.claim"), "{error}");
    let answering = echo(&rep, "muster.cell.c1.rep.state", None).await;
    request_until_answered(&rep, "muster.cell.c1.rep.state").await;

    server.kill9().await.unwrap();
    timeout(PATIENCE, async {
        while !matches!(
            rep.publish("muster.cell.c1.heartbeat", Bytes::new()).await,
            Err(BusError::Disconnected(_))
        ) {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the lost connection is reported");
    server.restart().await.unwrap();
    timeout(2 * PATIENCE, request_until_answered(&rep, "muster.cell.c1.rep.state"))
        .await
        .expect("the client reconnects");
    answering.abort();
}
