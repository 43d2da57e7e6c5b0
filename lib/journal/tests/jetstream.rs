//! Tests specific to the journal on JetStream. The journal survives a server restart, and refuses a stream
//! that could lose history.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod writing;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::stream::{
    Compression, Config, DiscardPolicy, PersistenceMode, Republish, RetentionPolicy, Source, StorageType,
    SubjectTransform,
};
use bus::nats::{Login, Settings};
use bytes::Bytes;
use journal::Journal;
use journal::{
    Append, AppendError, Durability, JetStream, JournalError, STREAM, StoredEntry, StreamSettings,
};
use schemas::names::{EntryId, IdGenerator};
use schemas::{Position, Subject, Timestamp};
use support::server::NatsServer;
use tokio::time::{sleep, timeout};

use self::writing::writer;

const PATIENCE: Duration = Duration::from_secs(60);

async fn open(settings: &Settings, wanted: &StreamSettings) -> Result<Journal, JournalError> {
    let connection = settings.connect().await.expect("the server runs");
    JetStream::open(connection, wanted).await.map(Journal::JetStream)
}

fn body(number: u64) -> Bytes {
    Bytes::from(format!("{{\"n\":{number}}}"))
}

fn settings(servers: &[NatsServer]) -> Settings {
    let urls = servers.iter().map(|server| server.url.clone()).collect();
    Settings::new(urls, "bbs-writer", "muster.inbox.bbs-writer")
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_reports_recreated_stream_as_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = NatsServer::start(folder.path()).await.unwrap();
    let journal = open(&settings(std::slice::from_ref(&server)), &StreamSettings::default()).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writing = writer(journal.clone(), 1, body, Arc::clone(&stop));
    let mut follower = journal.follow(Position(0));
    timeout(PATIENCE, follower.next_batch(10)).await.unwrap().unwrap();
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    server.stop().await.unwrap();
    std::fs::remove_dir_all(folder.path().join("store")).unwrap();
    server.restart().await.unwrap();
    open(&settings(std::slice::from_ref(&server)), &StreamSettings::default()).await.unwrap();
    let ended = async {
        loop {
            if let Err(error) = follower.next_batch(10_000).await {
                return error;
            }
        }
    };
    let error = timeout(PATIENCE, ended).await.expect("the other history is detected");
    assert!(matches!(error, JournalError::Damaged(_)), "{error:?}");
}

/// A backup of the server's store is restored while this program runs. The stream has the same name, and soon
/// has the same length again.
#[tokio::test(flavor = "multi_thread")]
async fn restored_store_fails_followers_and_appends() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = NatsServer::start(folder.path()).await.unwrap();
    let settings = settings(std::slice::from_ref(&server));
    let journal = open(&settings, &StreamSettings::default()).await.unwrap();
    let (store, backup) = (folder.path().join("store"), folder.path().join("backup"));
    let append = |shard: u16, expected: u64, id: u128| Append {
        subject: Subject::Lrp(shard),
        expected: Position(expected),
        entry: EntryId(uuid::Uuid::from_u128(id)),
        bytes: format!("entry {id}").into(),
    };
    journal.append(append(1, 0, 1)).await.unwrap();
    server.stop().await.unwrap();
    copy(&store, &backup);
    server.restart().await.unwrap();
    journal.append(append(2, 0, 2)).await.unwrap();
    let mut follower = journal.follow(Position(0));
    while follower.position() < Position(2) {
        timeout(PATIENCE, follower.next_batch(10)).await.unwrap().unwrap();
    }
    server.stop().await.unwrap();
    std::fs::remove_dir_all(&store).unwrap();
    copy(&backup, &store);
    server.restart().await.unwrap();
    // Another program continues from the backup. Its log becomes longer than the lost log.
    let other = open(&settings, &StreamSettings::default()).await.unwrap();
    other.append(append(3, 0, 3)).await.unwrap();
    other.append(append(3, 2, 4)).await.unwrap();
    // Shard 4 is empty in both logs. Only the history shows that this append is invalid.
    let appended = journal.append(append(4, 0, 5)).await.unwrap_err();
    assert!(matches!(&appended, AppendError::Unknown(JournalError::Damaged(_))), "{appended:?}");
    let error = timeout(PATIENCE, follower.next_batch(10)).await.unwrap().unwrap_err();
    assert!(matches!(&error, JournalError::Damaged(why) if why.contains("position 2")), "{error:?}");
    assert_eq!(other.end().await.unwrap(), Position(3));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_is_refused_until_import_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let server = NatsServer::start(folder.path()).await.unwrap();
    let settings = settings(std::slice::from_ref(&server));
    let importing = StreamSettings { imports: Some(Position(2)), ..StreamSettings::default() };
    let journal = open(&settings, &importing).await.unwrap();
    let one = |at: u64| StoredEntry {
        position: Position(at),
        subject: Subject::Lrp(1).to_string(),
        entry: Some(EntryId(uuid::Uuid::from_u128(at.into()))),
        bytes: "bytes".into(),
    };
    journal.import(vec![one(1)]).await.unwrap();
    let refused = open(&settings, &StreamSettings::default()).await.unwrap_err();
    assert!(refused.to_string().contains("position 1 of 2"), "{refused}");
    open(&settings, &importing).await.unwrap().import(vec![one(2)]).await.unwrap();
    open(&settings, &StreamSettings::default()).await.unwrap();
}

/// A defect of a stream, and a word that the error message must contain.
type Flaw = (fn(&mut Config), &'static str);

const FLAWS: &[Flaw] = &[
    (|config| config.max_age = Duration::from_secs(3600), "max_age"),
    (|config| config.discard = DiscardPolicy::Old, "discard"),
    (
        |config| {
            config.discard = DiscardPolicy::Old;
            config.max_messages = 10;
        },
        "max_msgs",
    ),
    (
        |config| {
            config.discard = DiscardPolicy::Old;
            config.max_bytes = 1 << 20;
        },
        "max_bytes",
    ),
    (|config| config.max_messages_per_subject = 5, "max_msgs_per_subject"),
    (|config| config.deny_delete = false, "deny_delete"),
    (|config| config.deny_purge = false, "deny_purge"),
    (
        |config| {
            config.deny_purge = false;
            config.allow_rollup = true;
        },
        "rollup",
    ),
    (|config| config.storage = StorageType::Memory, "storage"),
    (|config| config.retention = RetentionPolicy::WorkQueue, "retention"),
    (|config| config.persist_mode = Some(PersistenceMode::Async), "persist_mode"),
    (|config| config.no_ack = true, "no_ack"),
    (|config| config.allow_direct = false, "allow_direct"),
    (|config| config.max_message_size = 1024, "max_msg_size"),
    (|config| config.subjects = vec!["muster.event.lrp.*".into()], "subjects"),
    (|config| config.subjects.push("other.>".into()), "subjects"),
    (|config| config.allow_message_ttl = true, "ttl"),
    (
        |config| {
            config.discard = DiscardPolicy::Old;
            config.allow_message_schedules = true;
        },
        "schedules",
    ),
    (
        |config| {
            config.subject_transform =
                Some(SubjectTransform { source: "muster.event.>".into(), destination: "other.>".into() });
        },
        "subject_transform",
    ),
    (
        |config| {
            let (source, destination) = ("muster.event.>".into(), "copy.>".into());
            config.republish = Some(Republish { source, destination, headers_only: false });
        },
        "republish",
    ),
    (
        |config| {
            config.subjects.clear();
            config.mirror = Some(Source { name: "ORIGIN".into(), ..Source::default() });
        },
        "mirror",
    ),
    (|config| config.sources = Some(vec![Source { name: "ORIGIN".into(), ..Source::default() }]), "sources"),
    (|config| config.first_sequence = Some(100), "first entries"),
];

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_stream_configurations_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = NatsServer::start(folder.path()).await.unwrap();
    let settings = settings(std::slice::from_ref(&server));
    let context = async_nats::jetstream::new(async_nats::connect(&server.url).await.unwrap());
    let origin = Config { name: "ORIGIN".into(), subjects: vec!["origin".into()], ..Config::default() };
    context.create_stream(origin).await.unwrap();
    drop(open(&settings, &StreamSettings::default()).await.expect("a created stream is accepted"));
    let ours = context.get_stream(STREAM).await.unwrap().cached_info().config.clone();
    for (spoil, word) in FLAWS {
        context.delete_stream(STREAM).await.unwrap();
        let mut config = ours.clone();
        spoil(&mut config);
        context.create_stream(config).await.unwrap_or_else(|error| panic!("{word}: {error}"));
        let error = open(&settings, &StreamSettings::default()).await.expect_err(word);
        assert!(matches!(&error, JournalError::Refused(why) if why.contains(word)), "{word}: {error:?}");
    }
    context.delete_stream(STREAM).await.unwrap();
    context.create_stream(ours).await.unwrap();
    let wanted = StreamSettings { replicas: 3, ..StreamSettings::default() };
    let error = open(&settings, &wanted).await.unwrap_err();
    assert!(error.to_string().contains("1 replicas, expected 3"), "{error}");
    context.delete_stream(STREAM).await.unwrap();
    let wanted = StreamSettings { create: false, ..StreamSettings::default() };
    let error = open(&settings, &wanted).await.unwrap_err();
    assert!(error.to_string().contains("the stream MUSTER does not exist"), "{error}");
}

async fn started(folder: &Path, lines: &str) -> (NatsServer, Settings) {
    let server = NatsServer::start_with(folder, lines).await.unwrap();
    let settings = settings(std::slice::from_ref(&server));
    (server, settings)
}

fn any_entry() -> Append {
    let entry = EntryId(IdGenerator::new(1).next(Timestamp::from_millis(1)));
    Append { subject: Subject::Cluster, expected: Position(0), entry, bytes: "{}".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_with_small_max_payload_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, settings) = started(folder.path(), "max_payload: 65536").await;
    let error = open(&settings, &StreamSettings::default()).await.unwrap_err();
    assert!(error.to_string().contains("max_payload is 65536"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn append_without_permission_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let users = "authorization { users: [ { user: writer, password: secret },
        { user: reader, password: secret, permissions: { publish: [\"$JS.API.>\"], subscribe: [\"muster.inbox.>\"] } },
        { user: nobody, password: secret, permissions: { publish: [\"x\"], subscribe: [\"muster.inbox.>\"] } } ] }";
    let (_server, mut settings) = started(folder.path(), users).await;
    let file = folder.path().join("password");
    std::fs::write(&file, "secret").unwrap();
    let login = |user: &str| Login::Password { user: user.into(), file: file.clone() };
    settings.login = login("writer");
    open(&settings, &StreamSettings::default()).await.unwrap();
    settings.login = login("reader");
    let journal = open(&settings, &StreamSettings::default()).await.unwrap();
    let error = journal.append(any_entry()).await.unwrap_err();
    assert!(matches!(&error, AppendError::Refused(why) if why.contains("no permission")), "{error:?}");
    settings.login = login("nobody");
    let error = open(&settings, &StreamSettings::default()).await.unwrap_err();
    assert!(error.to_string().contains("no permission to publish on $JS.API.STREAM.INFO.MUSTER"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn append_to_killed_server_has_unknown_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, settings) = started(folder.path(), "").await;
    let journal = open(&settings, &StreamSettings::default()).await.unwrap();
    assert!(matches!(journal.durability(), Durability::Unverified(_)));
    server.kill9().await.unwrap();
    let error = journal.append(any_entry()).await.unwrap_err();
    assert!(matches!(error, AppendError::Unknown(_)), "{error:?}");
    server.restart().await.unwrap();
    let stored = async {
        loop {
            match journal.append(any_entry()).await {
                Err(AppendError::Unknown(_)) => {}
                known => return known,
            }
        }
    };
    assert_eq!(timeout(PATIENCE, stored).await.unwrap().unwrap(), Position(1));
    assert_eq!(journal.end().await.unwrap(), Position(1));
}

/// Returns entries of another journal, starting at position 1.
fn foreign_entries(count: u64) -> Vec<StoredEntry> {
    let mut ids = IdGenerator::new(7);
    let one = |at: u64| StoredEntry {
        position: Position(at),
        subject: Subject::Lrp(1).to_string(),
        entry: Some(EntryId(ids.next(Timestamp::from_millis(at)))),
        bytes: Bytes::from(format!("{{\"n\":{at}}}")),
    };
    (1..=count).map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn import_stops_at_foreign_message() {
    let folder = tempfile::tempdir().unwrap();
    let (server, settings) = started(folder.path(), "").await;
    let journal = open(&settings, &StreamSettings::default()).await.unwrap();
    let foreign = async_nats::connect(&server.url).await.unwrap();
    let log = foreign_entries(40_000);
    let writing = {
        let (journal, log) = (journal.clone(), log.clone());
        tokio::spawn(async move { journal.import(log).await })
    };
    while journal.end().await.unwrap() < Position(1_000) {
        sleep(Duration::from_millis(1)).await;
    }
    foreign.publish("muster.event.cluster", "foreign".into()).await.unwrap();
    foreign.flush().await.unwrap();
    let error = timeout(PATIENCE, writing).await.unwrap().unwrap().unwrap_err();
    assert!(error.to_string().contains("another program writes"), "{error}");
    let end = journal.end().await.unwrap();
    let last = journal.read(Position(end.0 - 1), None, 1).await.unwrap().remove(0);
    assert_eq!((last.position, &last.bytes[..]), (end, &b"foreign"[..]), "no message follows it");
    let before = journal.read(Position(end.0 - 2), None, 1).await.unwrap().remove(0);
    assert_eq!(before, log[usize::try_from(end.0).unwrap() - 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_with_deleted_entries_can_be_inspected() {
    let folder = tempfile::tempdir().unwrap();
    let (server, settings) = started(folder.path(), "").await;
    let journal = open(&settings, &StreamSettings::default()).await.unwrap();
    journal.import(foreign_entries(10)).await.unwrap();
    let context = async_nats::jetstream::new(async_nats::connect(&server.url).await.unwrap());
    let mut config = context.get_stream(STREAM).await.unwrap().cached_info().config.clone();
    context.delete_stream(STREAM).await.unwrap();
    config.deny_delete = false;
    let stream = context.create_stream(config).await.unwrap();
    journal.import(foreign_entries(10)).await.unwrap();
    for gone in [1, 5, 10] {
        stream.delete_message(gone).await.unwrap();
    }
    let error = open(&settings, &StreamSettings::default()).await.unwrap_err();
    assert!(error.to_string().contains("entries were deleted"), "{error}");
    let seen = Journal::JetStream(JetStream::inspect(settings.connect().await.unwrap()).await.unwrap());
    assert_eq!(seen.end().await.unwrap(), Position(10), "the server reports the end");
    let there: Vec<u64> =
        seen.read(Position(0), None, 100).await.unwrap().iter().map(|one| one.position.0).collect();
    assert_eq!(there, [2, 3, 4, 6, 7, 8, 9]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_block_is_reported_until_it_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, settings) = started(folder.path(), "").await;
    let journal = open(&settings, &StreamSettings::default()).await.unwrap();
    // The entries fill several blocks. After a restart, the server's cache contains none of the entries.
    let mut log = foreign_entries(20);
    log.iter_mut().for_each(|entry| entry.bytes = Bytes::from(vec![b'x'; 900_000]));
    journal.import(log.clone()).await.unwrap();
    journal.check_readable().await.unwrap();
    let block = server.store().join("jetstream/$G/streams").join(STREAM).join("msgs/1.blk");
    server.stop().await.unwrap();
    let whole = std::fs::read(&block).unwrap();
    std::fs::write(&block, [&b"cmp\x01"[..], &whole[4..]].concat()).unwrap();
    server.restart().await.unwrap();

    let journal = open(&settings, &StreamSettings::default()).await.unwrap();
    let refused = journal.check_readable().await.unwrap_err().to_string();
    assert!(refused.contains("position 1, though its stream MUSTER holds positions 1 to 20"), "{refused}");
    journal.check_position(Position(20)).await.unwrap();
    journal.check_position(Position(21)).await.unwrap();
    let connection = settings.connect().await.unwrap();
    let sampled = journal::examine::read_samples(&connection, (Position(1), Position(20))).await;
    assert!(sampled.unwrap_err().to_string().contains("position 1 can't be read"));
    let mut follower = journal.follow(Position(0));
    let following = tokio::spawn(async move { follower.next_batch(100).await });
    let reported = async {
        loop {
            match journal.unreadable_reason() {
                Some(why) => return why,
                None => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    assert!(timeout(PATIENCE, reported).await.unwrap().contains("no message found"));

    server.stop().await.unwrap();
    std::fs::write(&block, whole).unwrap();
    server.restart().await.unwrap();
    let first = timeout(PATIENCE, following).await.unwrap().unwrap().unwrap().remove(0);
    assert_eq!((first.position, &first.bytes), (Position(1), &log[0].bytes));
    assert_eq!(journal.unreadable_reason(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_stream_is_migrated_once_and_keeps_its_entries() {
    let folder = tempfile::tempdir().unwrap();
    let (server, settings) = started(folder.path(), "").await;
    let journal = open(&settings, &StreamSettings::default()).await.unwrap();
    let context = async_nats::jetstream::new(async_nats::connect(&server.url).await.unwrap());
    let config = async || context.get_stream(STREAM).await.unwrap().cached_info().config.clone();
    let ours = config().await;
    assert_eq!(ours.compression, Some(Compression::None));
    context.update_stream(Config { compression: Some(Compression::S2), ..ours.clone() }).await.unwrap();
    journal.import(foreign_entries(10)).await.unwrap();
    let connection = settings.connect().await.unwrap();
    assert!(journal::migrate::uncompress(&connection).await.unwrap());
    assert_eq!(config().await, ours, "no other setting changes");
    assert!(!journal::migrate::uncompress(&connection).await.unwrap());
    assert_eq!(journal.read(Position(0), None, 100).await.unwrap(), foreign_entries(10));
}
