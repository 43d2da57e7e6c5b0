//! Tests of a store against a server with scripted responses.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use artifacts::{Error, FetchRequest, Fetched, Judge, Settings, Store};
use schemas::action::ChecksumAlgorithm;
use schemas::names::Domain;
use tempfile::TempDir;

/// Scripted response. It consists of the status line with headers, of the body, and of a flag that is `true`
/// if the connection is cut after the body.
#[derive(Clone)]
struct Reply {
    head: String,
    body: Vec<u8>,
    cut: bool,
}

fn reply(head: &str, body: &[u8]) -> Reply {
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    Reply { head, body: body.to_vec(), cut: false }
}

/// Returns a response that is cut off after `after` bytes of its body.
fn cut_reply(head: &str, body: &[u8], after: usize) -> Reply {
    Reply { body: body[..after].to_vec(), cut: true, ..reply(head, body) }
}

/// Head and body of a request.
type Request = (String, Vec<u8>);

/// Server that sends its scripted responses in order and then repeats the last one. It records the requests.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    fn new(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(vec![]));
        let heard = Arc::clone(&asked);
        let mut replies: VecDeque<Reply> = replies.into();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let reply = if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() };
                answer(stream.unwrap(), &reply, &heard);
            }
        });
        Self { port, asked }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/a.tgz", self.port)
    }

    fn request_heads(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(head, _)| head.to_ascii_lowercase()).collect()
    }
}

fn answer(stream: TcpStream, reply: &Reply, heard: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    let length = head.to_ascii_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length: ").map(|length| length.parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    heard.lock().unwrap().push((head, body));
    let mut stream = stream;
    stream.write_all(reply.head.as_bytes()).unwrap();
    stream.write_all(&reply.body).unwrap();
    if reply.cut {
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
}

fn domain() -> Domain {
    Domain::new("shop").unwrap()
}

fn store(root: &TempDir, settings: Settings) -> Store {
    Store::open(root.path().join("artifacts"), settings).unwrap()
}

fn settings() -> Settings {
    Settings { cache_bytes: 1000, artifact_bytes: 2000, ..Settings::default() }
}

async fn fetch(store: &Store, url: &str, cache_key: &str) -> Result<Fetched, Error> {
    let domain = domain();
    store.fetch(&FetchRequest { domain: &domain, url, is_secret: false, cache_key, checksum: None }).await
}

async fn checked(
    store: &Store,
    url: &str,
    key: &str,
    by: ChecksumAlgorithm,
    value: &str,
) -> Result<Fetched, Error> {
    let domain = domain();
    store
        .fetch(&FetchRequest {
            domain: &domain,
            url,
            is_secret: false,
            cache_key: key,
            checksum: Some((by, value)),
        })
        .await
}

fn text(fetched: &mut Fetched) -> String {
    let mut text = String::new();
    fetched.file.read_to_string(&mut text).unwrap();
    assert_eq!(text.len() as u64, fetched.bytes);
    text
}

/// Counts the files in a subfolder of a store.
fn file_count(root: &TempDir, folder: &str) -> usize {
    std::fs::read_dir(root.path().join("artifacts").join(folder)).unwrap().count()
}

#[tokio::test]
async fn archive_without_cache_key_is_fetched_each_time_and_leaves_no_files() {
    let root = tempfile::tempdir().unwrap();
    let (store, server) =
        (store(&root, settings()), Server::new(vec![reply("200 OK\r\netag: \"1\"", b"hello")]));
    for _ in 0..2 {
        let mut fetched = fetch(&store, &server.url(), "").await.unwrap();
        assert!(!fetched.from_cache);
        assert_eq!(text(&mut fetched), "hello");
    }
    assert_eq!(server.request_heads().len(), 2);
    assert_eq!((file_count(&root, "new"), file_count(&root, "kept")), (0, 0));
}

#[tokio::test]
async fn unchanged_archive_comes_from_cache_also_after_reopening() {
    let root = tempfile::tempdir().unwrap();
    let head = "200 OK\r\netag: \"1\"\r\nlast-modified: Tue, 01 Jan 2030 00:00:00 GMT";
    let server = Server::new(vec![
        reply(head, b"hello"),
        reply("304 Not Modified", b""),
        reply("304 Not Modified", b""),
        reply("200 OK\r\netag: \"2\"", b"changed"),
        reply("304 Not Modified", b""),
    ]);
    let first = store(&root, settings());
    assert_eq!(text(&mut fetch(&first, &server.url(), "k").await.unwrap()), "hello");
    let mut again = fetch(&first, &server.url(), "k").await.unwrap();
    assert!(again.from_cache);
    assert_eq!(text(&mut again), "hello");
    drop(first);
    let second = store(&root, settings());
    assert!(fetch(&second, &server.url(), "k").await.unwrap().from_cache);
    for told in &server.request_heads()[1..] {
        assert!(
            told.contains("if-none-match: \"1\"\r\n") && told.contains("if-modified-since: tue, 01"),
            "{told}"
        );
    }
    assert_eq!(text(&mut fetch(&second, &server.url(), "k").await.unwrap()), "changed");
    assert_eq!(text(&mut fetch(&second, &server.url(), "k").await.unwrap()), "changed");
    assert_eq!(file_count(&root, "kept"), 2, "a record and its bytes");
    // The same cache key in a different domain stands for a different archive.
    let other = Domain::new("other").unwrap();
    let wanted =
        FetchRequest { domain: &other, url: &server.url(), is_secret: false, cache_key: "k", checksum: None };
    assert!(matches!(second.fetch(&wanted).await, Err(Error::UnexpectedStatus(304))));
}

#[tokio::test]
async fn interrupted_download_resumes_with_a_range_request() {
    let root = tempfile::tempdir().unwrap();
    let whole = b"0123456789";
    let server = Server::new(vec![
        cut_reply("200 OK\r\netag: \"1\"", whole, 4),
        cut_reply("206 Partial Content\r\netag: \"1\"\r\ncontent-range: bytes 4-9/10", &whole[4..], 3),
        reply("206 Partial Content\r\netag: \"1\"\r\ncontent-range: bytes 7-9/10", &whole[7..]),
    ]);
    let sum = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
    let store = store(&root, settings());
    let mut fetched = checked(&store, &server.url(), "", ChecksumAlgorithm::Sha256, sum).await.unwrap();
    assert_eq!(text(&mut fetched), "0123456789");
    let asked = server.request_heads();
    assert!(
        asked[1].contains("range: bytes=4-\r\n") && asked[1].contains("if-range: \"1\"\r\n"),
        "{}",
        asked[1]
    );
    assert!(asked[2].contains("range: bytes=7-\r\n"), "{}", asked[2]);
}

#[tokio::test]
async fn interrupted_download_restarts_if_archive_changed_or_has_no_validators() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::new(vec![
        cut_reply("200 OK\r\netag: \"1\"", b"0123456789", 4),
        reply("200 OK\r\netag: \"2\"", b"another"),
    ]);
    let store = store(&root, settings());
    let md5 = "b32d73e56ec99bc5ec8f83871cde708a";
    let mut fetched = checked(&store, &server.url(), "", ChecksumAlgorithm::Md5, md5).await.unwrap();
    assert_eq!(text(&mut fetched), "another");
    let without_tag =
        Server::new(vec![cut_reply("200 OK", b"0123456789", 4), reply("200 OK", b"0123456789")]);
    assert_eq!(text(&mut fetch(&store, &without_tag.url(), "").await.unwrap()), "0123456789");
    assert!(!without_tag.request_heads()[1].contains("range:"));
}

#[tokio::test]
async fn server_errors_are_retried_and_client_errors_are_not() {
    let root = tempfile::tempdir().unwrap();
    let store = store(&root, settings());
    let busy = Server::new(vec![reply("503 Busy", b""), reply("429 Slower", b""), reply("200 OK", b"hello")]);
    assert_eq!(text(&mut fetch(&store, &busy.url(), "").await.unwrap()), "hello");
    let refusing = Server::new(vec![reply("404 Not Found", b"")]);
    let said = fetch(&store, &refusing.url(), "").await.unwrap_err().to_string();
    assert_eq!((said.as_str(), refusing.request_heads().len()), ("the server answered 404", 1));
    let down = Server::new(vec![reply("500 Down", b"")]);
    let said = fetch(&store, &down.url(), "").await.unwrap_err().to_string();
    assert_eq!(
        (said.as_str(), down.request_heads().len()),
        ("the server answered 500", artifacts::limits::MAX_ATTEMPTS)
    );
}

#[tokio::test]
async fn archive_with_wrong_checksum_is_rejected_and_not_cached() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::new(vec![reply("200 OK\r\netag: \"1\"", b"hello")]);
    let store = store(&root, settings());
    let wrong = "0".repeat(40);
    let said =
        checked(&store, &server.url(), "k", ChecksumAlgorithm::Sha1, &wrong).await.unwrap_err().to_string();
    let sum = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d";
    assert_eq!(said, format!("sha1 mismatch: got {sum}, expected {wrong}"));
    assert_eq!((file_count(&root, "new"), file_count(&root, "kept")), (0, 0));
    checked(&store, &server.url(), "k", ChecksumAlgorithm::Sha1, sum).await.unwrap();
    // The cached archive does not match the expected checksum, so the whole archive is requested.
    let said = checked(&store, &server.url(), "k", ChecksumAlgorithm::Md5, &"0".repeat(32)).await;
    assert!(matches!(said, Err(Error::Checksum { .. })));
    assert!(!server.request_heads().last().unwrap().contains("if-none-match"));
}

#[tokio::test]
async fn oversized_archive_is_rejected_with_or_without_content_length() {
    let root = tempfile::tempdir().unwrap();
    let store = store(&root, settings());
    let said = Server::new(vec![reply("200 OK", &[b'x'; 2001])]);
    let endless = Reply {
        head: "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".into(),
        body: vec![b'x'; 5000],
        cut: true,
    };
    for server in [said, Server::new(vec![endless])] {
        let said = fetch(&store, &server.url(), "").await.unwrap_err().to_string();
        assert_eq!(said, "the file is larger than 2000 bytes");
    }
    assert_eq!(file_count(&root, "new"), 0);
}

#[tokio::test]
async fn least_recently_used_archive_is_evicted_first() {
    let root = tempfile::tempdir().unwrap();
    let store = store(&root, settings());
    let server = Server::new(vec![reply("200 OK\r\netag: \"1\"", &[b'x'; 400])]);
    for key in ["a", "b"] {
        fetch(&store, &server.url(), key).await.unwrap();
    }
    let unchanged = Server::new(vec![reply("304 Not Modified", b"")]);
    assert!(fetch(&store, &unchanged.url(), "a").await.unwrap().from_cache);
    fetch(&store, &server.url(), "c").await.unwrap();
    assert!(fetch(&store, &unchanged.url(), "a").await.unwrap().from_cache);
    assert!(fetch(&store, &unchanged.url(), "c").await.unwrap().from_cache);
    assert!(matches!(fetch(&store, &unchanged.url(), "b").await, Err(Error::UnexpectedStatus(304))));
    assert_eq!(file_count(&root, "kept"), 4);
    // An archive larger than the whole cache is fetched but not cached.
    let large = Server::new(vec![reply("200 OK\r\netag: \"1\"", &[b'x'; 1500])]);
    assert_eq!(fetch(&store, &large.url(), "d").await.unwrap().bytes, 1500);
    assert_eq!(file_count(&root, "kept"), 4);
}

#[tokio::test]
async fn reopened_store_removes_incomplete_files_and_keeps_archives() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::new(vec![reply("200 OK\r\netag: \"1\"", b"hello"), reply("304 Not Modified", b"")]);
    fetch(&store(&root, settings()), &server.url(), "k").await.unwrap();
    let folder = root.path().join("artifacts");
    std::fs::write(folder.join("new/7"), "half").unwrap();
    std::fs::write(folder.join("kept/0123.9"), "bytes without a record").unwrap();
    std::fs::write(folder.join("kept/4567.json"), "{\"data\":").unwrap();
    let again = store(&root, settings());
    assert_eq!((file_count(&root, "new"), file_count(&root, "kept")), (0, 2));
    assert!(fetch(&again, &server.url(), "k").await.unwrap().from_cache);
    drop(again);
    // A record whose bytes are truncated is discarded.
    for entry in std::fs::read_dir(folder.join("kept")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension != "json") {
            std::fs::write(path, "hel").unwrap();
        }
    }
    let last = store(&root, settings());
    assert_eq!(file_count(&root, "kept"), 0);
    assert!(matches!(fetch(&last, &server.url(), "k").await, Err(Error::UnexpectedStatus(304))));
}

#[tokio::test]
async fn concurrent_fetches_of_one_key_download_once() {
    let root = tempfile::tempdir().unwrap();
    let (store, url) = (
        store(&root, settings()),
        Server::new(vec![reply("200 OK\r\netag: \"1\"", b"hello"), reply("304 Not Modified", b"")]),
    );
    let (url, asked) = (url.url(), url);
    let all = futures::future::join_all((0..8).map(|_| fetch(&store, &url, "k"))).await;
    assert_eq!(
        all.iter().filter(|fetched| fetched.as_ref().is_ok_and(|fetched| !fetched.from_cache)).count(),
        1
    );
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(asked.request_heads().len(), 8);
}

#[tokio::test]
async fn redirects_are_followed_only_to_permitted_targets() {
    let root = tempfile::tempdir().unwrap();
    let end = Server::new(vec![reply("200 OK", b"hello")]);
    let to = |place: &str| Server::new(vec![reply(&format!("302 Found\r\nlocation: {place}"), b"")]);
    let everywhere = store(&root, settings());
    assert_eq!(text(&mut fetch(&everywhere, &to(&end.url()).url(), "").await.unwrap()), "hello");
    let round = to("/a.tgz");
    assert!(matches!(fetch(&everywhere, &round.url(), "").await, Err(Error::TooManyRedirects)));
    assert_eq!(round.request_heads().len(), artifacts::limits::MAX_REDIRECTS + 1);
    assert!(matches!(fetch(&everywhere, &to("ftp://a/b").url(), "").await, Err(Error::InvalidUrl)));
    drop(everywhere);

    let judge = Judge::new(|target| match target.address {
        Some(address) if address.to_string() == "169.254.169.254" => Err(format!("{address} is not allowed")),
        Some(_) | None => Ok(()),
    });
    let judged = store(&root, Settings { judge, ..settings() });
    let said = fetch(&judged, &to("http://169.254.169.254/latest/").url(), "").await.unwrap_err().to_string();
    assert_eq!(said, "169.254.169.254 is not allowed");
}

#[tokio::test]
async fn judge_checks_resolved_addresses_and_errors_hide_secret_urls() {
    let root = tempfile::tempdir().unwrap();
    let judge = Judge::new(|target| match target.address {
        Some(address) if address.is_loopback() => Err(format!("{:?} resolves to {address}", target.host)),
        Some(_) | None => Ok(()),
    });
    let store = store(&root, Settings { judge, ..settings() });
    let said = fetch(&store, "http://localhost:1/a", "").await.unwrap_err().to_string();
    assert!(said.starts_with("Some(\"localhost\") resolves to "), "{said}");
    let domain = domain();
    for url in ["http://localhost:1/token", "http://u:token@127.0.0.1:1/", "token"] {
        let wanted = FetchRequest { domain: &domain, url, is_secret: true, cache_key: "", checksum: None };
        let said = store.fetch(&wanted).await.unwrap_err().to_string();
        assert!(!said.contains("token") && !said.contains("localhost") && !said.contains("127"), "{said}");
    }
}

#[tokio::test]
async fn upload_sends_checksum_and_retries_server_errors() {
    let root = tempfile::tempdir().unwrap();
    let store = store(&root, settings());
    let path = root.path().join("droplet");
    std::fs::write(&path, "hello").unwrap();
    let open = || std::fs::File::open(&path).unwrap();
    let server = Server::new(vec![reply("502 Bad", b""), reply("201 Created", b"")]);
    assert_eq!(store.send(open(), &server.url(), false).await.unwrap(), 5);
    for (head, body) in &*server.asked.lock().unwrap() {
        assert!(head.starts_with("POST /a.tgz ") && head.contains("content-length: 5\r\n"), "{head}");
        assert!(head.contains("content-md5: XUFAKrxLKna5cZ2REBfFkg==\r\n"), "{head}");
        assert_eq!(body, b"hello");
    }
    let refusing = Server::new(vec![reply("403 No", b"")]);
    let said = store.send(open(), &refusing.url(), false).await.unwrap_err().to_string();
    assert_eq!((said.as_str(), refusing.request_heads().len()), ("the server answered 403", 1));
    std::fs::write(&path, vec![0; 2001]).unwrap();
    assert!(matches!(store.send(open(), &refusing.url(), false).await, Err(Error::TooLarge { limit: 2000 })));
}

#[tokio::test]
async fn dropped_fetch_closes_connection_and_removes_file() {
    let root = tempfile::tempdir().unwrap();
    let store = store(&root, settings());
    // The server announces 100 bytes, sends some of them, and then sends nothing more.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a", listener.local_addr().unwrap());
    let gone = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").unwrap();
        let mut rest = vec![];
        // Returns only when the client closes the connection.
        stream.read_to_end(&mut rest).map_or_else(|_| true, |_| true)
    });
    assert!(tokio::time::timeout(Duration::from_millis(300), fetch(&store, &url, "k")).await.is_err());
    assert!(tokio::task::spawn_blocking(move || gone.join().unwrap()).await.unwrap());
    assert_eq!(file_count(&root, "new"), 0);
    // The lock of the key is released.
    let server = Server::new(vec![reply("200 OK", b"hello")]);
    assert_eq!(text(&mut fetch(&store, &server.url(), "k").await.unwrap()), "hello");
}
