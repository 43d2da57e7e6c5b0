//! The folder of `muster auth`: created files, preserved files and errors.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use access::store::{Store, StoreError, StoreOptions, seed_file_role};
use access::{Role, server};
use nkeys::KeyPair;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use schemas::Timestamp;
use schemas::names::ClientName;

const NOW: Timestamp = Timestamp::from_seconds(1_795_000_000);

fn new(hosts: &[String]) -> StoreOptions<'_> {
    StoreOptions {
        hosts,
        listen: "127.0.0.1:4222",
        monitoring: "127.0.0.1:8222",
        visible_path: None,
        streams: None,
        cluster: false,
    }
}

fn role(text: &str) -> Role {
    text.parse().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn secrets_are_private_and_configuration_matches_list() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("auth");
    let mut store = Store::create(&at, &new(&[]), NOW).unwrap();
    store.add(role("bbs-writer"), None, [1; 32], NOW).unwrap();
    store.add(role("bbs"), None, [2; 32], NOW).unwrap();
    store.add(role("client shop web"), Some(ClientName::new("web").unwrap()), [3; 32], NOW).unwrap();
    for secret in ["ca.key", "server.key", "users/bbs.nk", "users/bbs.key", "users/web.nk"] {
        assert_eq!(mode(&at.join(secret)), 0o600, "{secret}");
    }
    assert_eq!((mode(&at), mode(&at.join("users"))), (0o700, 0o700));
    let seed = fs::read_to_string(at.join("users/web.nk")).unwrap();
    assert_eq!(seed_file_role(&seed), Some(role("client shop web")));
    assert_eq!(seed_file_role("SUAB"), None);
    let key = KeyPair::from_seed(seed.lines().last().unwrap()).unwrap();
    assert_eq!(key.public_key(), store.users()[2].nkey);
    let variables = fs::read_to_string(at.join("users/bbs.env")).unwrap();
    assert!(variables.contains("MUSTER_NATS_URL=tls://127.0.0.1:4222\n"), "{variables}");
    assert!(variables.contains("WRITER_CREDS=") && variables.contains("users/bbs-writer.nk"), "{variables}");
    drop(store);
    let again = Store::open(&at).unwrap();
    assert_eq!(
        again.users().iter().map(|user| user.name.as_str()).collect::<Vec<_>>(),
        ["bbs-writer", "bbs", "web"]
    );
    assert_eq!(
        fs::read_to_string(at.join("users.conf")).unwrap(),
        server::users_configuration(again.users())
    );
}

#[test]
fn existing_files_are_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut store = Store::create(at, &new(&[]), NOW).unwrap();
    assert!(matches!(Store::open(at), Err(StoreError::Busy { .. })), "the folder is locked");
    store.add(role("rep c1"), None, [1; 32], NOW).unwrap();
    assert!(matches!(store.add(role("rep c1"), None, [2; 32], NOW), Err(StoreError::Taken { .. })));
    let left = at.join("users/rep-c2.nk");
    fs::write(&left, "of another user").unwrap();
    assert!(
        matches!(store.add(role("rep c2"), None, [2; 32], NOW), Err(StoreError::Exists { path }) if path.ends_with("rep-c2.nk"))
    );
    assert_eq!(fs::read_to_string(&left).unwrap(), "of another user");
    assert_eq!(store.users().len(), 1);
    drop(store);
    let before = fs::read_to_string(at.join("users.list")).unwrap();
    assert!(matches!(Store::create(at, &new(&[]), NOW), Err(StoreError::Exists { .. })));
    assert_eq!(fs::read_to_string(at.join("users.list")).unwrap(), before);
    assert!(matches!(Store::open(&at.join("users")), Err(StoreError::Absent { .. })));
}

#[test]
fn revoked_user_is_removed_from_every_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path(), &new(&[]), NOW).unwrap();
    let nkey = store.add(role("operator ops"), None, [1; 32], NOW).unwrap().nkey.clone();
    store.add(role("auditor eve"), None, [2; 32], NOW).unwrap();
    store.revoke("operator-ops").unwrap();
    let unknown = store.revoke("operator-ops").unwrap_err();
    assert_eq!(unknown.to_string(), "user operator-ops does not exist: the users are auditor-eve");
    let folder = folder.path();
    for name in ["users.list", "users.conf"] {
        assert!(!fs::read_to_string(folder.join(name)).unwrap().contains(&nkey), "{name}");
    }
    for ending in ["nk", "crt", "key", "env"] {
        assert!(!store.user_file("operator-ops", ending).exists(), "{ending}");
    }
    store.add(role("operator ops"), None, [3; 32], NOW).unwrap();
}

#[test]
fn renewal_replaces_certificates_and_rotation_replaces_one_nkey() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = |name: &str| fs::read_to_string(at.join(name)).unwrap();
    let mut store = Store::create(at, &new(&["n1".to_owned()]), NOW).unwrap();
    store.add(role("rep c1"), None, [1; 32], NOW).unwrap();
    store.add(role("bbs"), None, [2; 32], NOW).unwrap();
    drop(store);
    let mut store = Store::open(at).unwrap();
    let secrets = ["server.key", "users/rep-c1.key", "users/rep-c1.nk", "ca.key"];
    let (before, list) = (secrets.map(text), text("users.list"));
    let later = NOW + std::time::Duration::from_secs(86_400);

    let renewed = store.renew_server(&[], later).unwrap();
    assert_eq!(
        (renewed.file.as_path(), renewed.expires_at.since(NOW).as_secs() / 86_400),
        (&*at.join("server.crt"), 3651)
    );
    store.renew("rep-c1", later).unwrap();
    let same = [0, 1, 2, 3].map(|at| text(secrets[at]) == before[at]);
    assert_eq!(same, [false, false, true, true], "{secrets:?}");
    assert_eq!(text("users.list"), list, "a renewed certificate changes no user");
    store.renew_server(&["n2".to_owned(), "n1".to_owned()], later).unwrap();
    assert_eq!(text("users.list"), list.replace("host ::1\n", "host ::1\nhost n2\n"));

    let old = store.users().to_vec();
    let rotated = store.rotate("rep-c1", [3; 32], later).unwrap().clone();
    assert!(rotated.nkey != old[0].nkey && rotated.role == old[0].role);
    assert_eq!(store.users()[1], old[1]);
    let seed = text("users/rep-c1.nk");
    assert_eq!(KeyPair::from_seed(seed.lines().last().unwrap()).unwrap().public_key(), rotated.nkey);
    assert!(text("users.conf").contains(&rotated.nkey) && !text("users.conf").contains(&old[0].nkey));
    assert_eq!(seed_file_role(&seed), Some(role("rep c1")));
    for secret in secrets {
        assert_eq!(mode(&at.join(secret)), 0o600, "{secret}");
    }
    assert!(matches!(store.rotate("rep-c9", [4; 32], later), Err(StoreError::Unknown { .. })));

    let authorities = || text("ca.crt").matches("BEGIN CERTIFICATE").count();
    store.renew_authority(later).unwrap();
    assert_eq!(authorities(), 2);
    store.forget_authority().unwrap();
    store.forget_authority().unwrap();
    assert_eq!(authorities(), 1);
    assert_ne!(text("ca.key"), before[3]);
    assert_eq!(access::certificates::expiry(text("ca.crt").as_bytes()).unwrap(), renewed.expires_at);
}

#[test]
fn outdated_configuration_is_detected_after_killed_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::create(folder.path(), &new(&[]), NOW).unwrap();
    let before = fs::read_to_string(folder.path().join("users.conf")).unwrap();
    store.add(role("projector"), None, [1; 32], NOW).unwrap();
    assert!(!store.is_outdated().unwrap());
    fs::write(folder.path().join("users.conf"), before).unwrap();
    assert!(store.is_outdated().unwrap());
    store.write().unwrap();
    assert!(!store.is_outdated().unwrap());
}

#[test]
fn malformed_list_error_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::create(folder.path(), &new(&[]), NOW).unwrap());
    let list = folder.path().join("users.list");
    for (text, why) in [
        ("user a UX rep c1\n", "line 1: invalid nkey"),
        ("server tls://a\nuser a.b UX rep c1\n", "line 2: "),
        ("server tls://a\nwho knows\n", "line 2: expected server URL"),
        ("# nothing\n", "the line server URL is missing"),
    ] {
        fs::write(&list, text).unwrap();
        let error = Store::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn environment_uses_folder_path_of_containers() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = ["nats.example".to_owned(), "fd00::7".to_owned()];
    let seen = Path::new("/etc/muster/auth");
    let given = StoreOptions {
        listen: "0.0.0.0:4333",
        visible_path: Some(seen),
        streams: Some(Path::new("/data")),
        ..new(&hosts)
    };
    drop(Store::create(folder.path(), &given, NOW).unwrap());
    let mut store = Store::open(folder.path()).unwrap();
    store.add(role("rep c1"), None, [1; 32], NOW).unwrap();
    let variables = fs::read_to_string(store.user_file("rep-c1", "env")).unwrap();
    assert_eq!(
        variables,
        "MUSTER_NATS_URL=tls://nats.example:4333\nMUSTER_NATS_CREDS=/etc/muster/auth/users/rep-c1.nk\n\
         MUSTER_NATS_CA=/etc/muster/auth/ca.crt\nMUSTER_NATS_CERT=/etc/muster/auth/users/rep-c1.crt\n\
         MUSTER_NATS_KEY=/etc/muster/auth/users/rep-c1.key\nMUSTER_CELL=c1\n"
    );
    let configuration = fs::read_to_string(folder.path().join("nats.conf")).unwrap();
    for line in [
        "store_dir: \"/data\"",
        "ca_file: \"/etc/muster/auth/ca.crt\"",
        "verify: true",
        "sync_interval: always",
    ] {
        assert!(configuration.contains(line), "{configuration}");
    }
}

#[test]
fn cluster_servers_have_routes_and_users_have_all_urls() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = ["n1", "n2", "fd00::7"].map(str::to_owned);
    let seen = Some(Path::new("/etc/muster/auth"));
    let given = StoreOptions { listen: "0.0.0.0:4222", cluster: true, visible_path: seen, ..new(&hosts) };
    let mut store = Store::create(folder.path(), &given, NOW).unwrap();
    assert_eq!(store.url(), "tls://n1:4222,tls://n2:4222,tls://[fd00::7]:4222");
    store.add(role("auctioneer"), None, [1; 32], NOW).unwrap();
    let variables = fs::read_to_string(store.user_file("auctioneer", "env")).unwrap();
    assert!(variables.starts_with("MUSTER_NATS_URL=tls://n1:4222,tls://n2:4222,"), "{variables}");
    let second = fs::read_to_string(folder.path().join("nats-2.conf")).unwrap();
    for line in [
        "# Configuration of the server on n2, one of 3.",
        "include \"nats.conf\"\nserver_name: muster-2\n",
        "routes: [\"tls://n1:6222\", \"tls://n2:6222\", \"tls://[fd00::7]:6222\"]",
        "ca_file: \"/etc/muster/auth/ca.crt\"",
        "authorization { user: localhost }",
        "verify_and_map: true",
    ] {
        assert!(second.contains(line), "{second}");
    }
    drop(store);
    assert_eq!(Store::open(folder.path()).unwrap().url(), "tls://n1:4222,tls://n2:4222,tls://[fd00::7]:4222");
    let elsewhere = tempfile::tempdir().unwrap();
    let two =
        Store::create(&elsewhere.path().join("auth"), &StoreOptions { hosts: &hosts[..2], ..given }, NOW);
    assert!(two.unwrap_err().to_string().contains("invalid number of hosts 2: a cluster has 3 or 5 servers"));
    assert!(!elsewhere.path().join("auth").exists());
}

#[test]
fn certificates_verify_for_their_role_and_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = ["nats.example".to_owned(), "*.nats.example".to_owned(), "10.0.0.7".to_owned()];
    let mut store = Store::create(folder.path(), &new(&hosts), NOW).unwrap();
    store.add(role("rep c1"), None, [1; 32], NOW).unwrap();
    let read = |name: &str| CertificateDer::from_pem_file(folder.path().join(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(read("ca.crt")).unwrap();
    let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
    let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
        .build()
        .unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider).build().unwrap();
    let at =
        |days: u64| UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW.seconds() + days * 86_400));
    let (server, user) = (read("server.crt"), read("users/rep-c1.crt"));
    let is_server = |certificate: &CertificateDer<'_>, host: &str, days: u64| {
        let name = ServerName::try_from(host.to_owned()).unwrap();
        servers.verify_server_cert(certificate, &[], &name, &[], at(days)).is_ok()
    };
    for host in ["nats.example", "a.nats.example", "10.0.0.7", "localhost", "127.0.0.1", "::1"] {
        assert!(is_server(&server, host, 0) && is_server(&server, host, 3_600), "{host}");
        assert!(!is_server(&user, host, 0), "a certificate of a user is not valid for a server");
    }
    assert!(!is_server(&server, "elsewhere", 0) && !is_server(&server, "localhost", 4_000));
    assert!(clients.verify_client_cert(&user, &[], at(0)).is_ok());
    for bad in ["", "a b", "a/b", "-..", "a..b", "tls://a", &"x".repeat(64)] {
        let elsewhere = tempfile::tempdir().unwrap();
        let error = Store::create(elsewhere.path(), &new(&[bad.to_owned()]), NOW).unwrap_err().to_string();
        assert!(error.contains("expected a host name or an IP address"), "{bad:?}: {error}");
    }
}
