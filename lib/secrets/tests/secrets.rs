//! Keys, key files and sealed values.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::{any, proptest};
use schemas::Timestamp;
use schemas::action::{Sealed, Secret};
use schemas::names::{Domain, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::secret::{Binding, Owner, Purpose};
use secrets::{FileError, Key, Keys, OpenError, Ring, SealError};

const MARKER: &str = "a-very-secret-text";

fn key(byte: u8) -> Key {
    Key::new([byte; 32], Timestamp::from_seconds(u64::from(byte)))
}

fn process(guid: &str) -> Owner {
    Owner::Process(ProcessGuid::new(guid).unwrap())
}

fn place(domain: &str, owner: Owner, variable: &str) -> Binding {
    Binding { domain: Domain::new(domain).unwrap(), owner, purpose: Purpose::Variable(variable.to_owned()) }
}

fn web() -> Binding {
    place("shop", process("web"), "TOKEN")
}

/// Creates a file of one key in a temporary folder.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("muster.keys");
    Ring::from_key(key(1)).create(&path).unwrap();
    (folder, path)
}

fn change(path: &Path, change: impl FnOnce(&mut Ring)) {
    Ring::change(path, |ring| {
        change(ring);
        Ok::<_, FileError>(())
    })
    .unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

proptest! {
    #[test]
    fn sealed_text_opens_and_reports_its_length(bytes in any::<[u8; 32]>(), text in any::<String>()) {
        let key = Key::new(bytes, Timestamp(0));
        let sealed = key.seal(&web(), &text);
        assert_eq!(sealed.text_bytes(), text.len());
        assert_eq!(key.open(&web(), &sealed).unwrap(), text);
    }

    #[test]
    fn altered_value_is_not_opened(at in 0_usize..60, bit in 0_u8..8) {
        let sealed = key(1).seal(&web(), MARKER);
        let mut data = data_encoding::BASE64.decode(sealed.data.as_bytes()).unwrap();
        let at = at % data.len();
        data[at] ^= 1 << bit;
        let changed = Sealed { data: data_encoding::BASE64.encode(&data), ..sealed };
        assert!(key(1).open(&web(), &changed).is_err());
    }
}

#[test]
fn sealing_is_deterministic_per_place_text_and_key() {
    let (one, sealed) = (key(1), key(1).seal(&web(), MARKER));
    assert_eq!(one.seal(&web(), MARKER), sealed);
    assert_ne!(one.seal(&web(), "another").data, sealed.data);
    assert_ne!(key(2).seal(&web(), MARKER).key, sealed.key);
    let periodic = Owner::Periodic(PeriodicGuid::new("web").unwrap());
    let task = Owner::Task(TaskGuid::new("web").unwrap());
    let others = [
        place("shop2", process("web"), "TOKEN"),
        place("shop", process("web2"), "TOKEN"),
        place("shop", process("web"), "TOKEN2"),
        place("shop", periodic, "TOKEN"),
        place("shop", task, "TOKEN"),
        Binding { purpose: Purpose::CallbackUrl, ..web() },
    ];
    for other in others {
        assert_ne!(one.seal(&other, MARKER).data, sealed.data, "{other:?}");
        assert!(matches!(one.open(&other, &sealed), Err(OpenError::Foreign(_))), "{other:?}");
    }
    assert!(matches!(key(2).open(&web(), &sealed), Err(OpenError::Foreign(_))));
    let launched = Owner::of_task(&TaskGuid::new("web--now-17").unwrap());
    assert_eq!(launched, Owner::Periodic(PeriodicGuid::new("web").unwrap()));
}

/// The result of sealing must never change, because logs contain sealed values.
#[test]
fn sealed_format_is_stable() {
    let sealed =
        Sealed { key: "aa0edabc".into(), data: "AbOexYav5LS8jG+ghDG/wIZMzvWbYfoGL0R4CK4fSKRwomA=".into() };
    assert_eq!(key(1).seal(&web(), MARKER), sealed);
}

#[test]
fn value_of_another_format_is_refused_with_its_version() {
    let sealed = key(1).seal(&web(), MARKER);
    let mut data = data_encoding::BASE64.decode(sealed.data.as_bytes()).unwrap();
    data[0] = 0;
    let other = Sealed { data: data_encoding::BASE64.encode(&data), ..sealed.clone() };
    let refused = key(1).open(&web(), &other).unwrap_err();
    assert_eq!(
        refused.describe_for("this cell"),
        "is sealed with key aa0edabc in format 0: expected format 1; set the secret again"
    );
    let empty = Sealed { data: String::new(), ..sealed };
    assert!(matches!(key(1).open(&web(), &empty), Err(OpenError::Foreign(_))));
}

#[test]
fn key_file_is_reloaded_when_it_changes() {
    let (_folder, path) = file();
    let keys = Keys::from_file(&path).unwrap();
    let old = keys.seal(&web(), MARKER).unwrap();
    change(&path, |ring| ring.add(key(2)));
    assert_eq!(keys.seal(&web(), MARKER).unwrap(), old, "a new key only opens");
    let by_new = key(2).seal(&web(), MARKER);
    assert_eq!(keys.open(&web(), &by_new).unwrap(), MARKER);
    change(&path, |ring| assert!(ring.seal_with(key(2).id()) && !ring.seal_with("deadbeef")));
    let new = keys.seal(&web(), MARKER).unwrap();
    assert_eq!([&old.key, &new.key], [key(1).id(), key(2).id()]);
    for sealed in [&old, &new] {
        assert_eq!(keys.open(&web(), sealed).unwrap(), MARKER);
    }
    change(&path, |ring| assert!(ring.take(key(1).id()).is_some() && ring.take(key(1).id()).is_none()));
    let gone = keys.open(&web(), &old).unwrap_err();
    assert!(matches!(&gone, OpenError::UnknownKey(id) if id == key(1).id()));
    assert_eq!(
        gone.describe_for("this cell"),
        format!("is sealed with key {}, which this cell does not have", old.key)
    );
    assert_eq!(keys.text(&web(), &Secret::Sealed(new.clone().into())).unwrap(), MARKER);
    fs::remove_file(&path).unwrap();
    assert!(matches!(keys.open(&web(), &new), Err(OpenError::File { .. })));
    assert!(matches!(keys.seal(&web(), MARKER), Err(SealError::KeyFile(_))));
}

#[test]
fn without_keys_secrets_are_refused() {
    let none = Keys::default();
    let refused = none.seal(&web(), MARKER).unwrap_err().to_line();
    assert!(refused.contains("muster secrets init FILE"), "{refused}");
    let sealed = key(1).seal(&web(), MARKER);
    assert!(matches!(none.open(&web(), &sealed), Err(OpenError::UnknownKey(_))));
    assert_eq!(none.text(&web(), &Secret::Plain("plain".into())).unwrap(), "plain");
}

#[test]
fn key_file_is_private_and_created_once() {
    let (folder, path) = file();
    assert_eq!(mode(&path), 0o600);
    assert!(matches!(Ring::from_key(key(2)).create(&path), Err(FileError::Exists { .. })));
    assert_eq!(Ring::read(&path).unwrap().sealing_key().map(Key::id), Some(key(1).id()));
    for open in [0o640, 0o604, 0o622] {
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        let refused = Keys::from_file(&path).unwrap_err();
        assert!(matches!(refused, FileError::AccessibleToOthers { mode, .. } if mode == open));
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    change(&link, |ring| ring.add(key(2)));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!((Ring::read(&path).unwrap().keys().len(), mode(&path)), (2, 0o600));
}

#[test]
fn concurrent_change_is_refused_and_failed_change_is_discarded() {
    let (folder, path) = file();
    let draft = folder.path().join("muster.keys.new");
    let whole = fs::read(&path).unwrap();
    let busy = Ring::change(&path, |ring| {
        ring.add(key(2));
        let refused = Ring::change(&path, |_| Ok::<_, FileError>(())).unwrap_err();
        assert!(matches!(&refused, FileError::Busy { .. }), "{refused}");
        Err::<(), _>(refused)
    });
    assert!(busy.is_err());
    assert_eq!(
        (fs::read(&path).unwrap(), draft.exists()),
        (whole, false),
        "a failed change leaves the file \
        unchanged"
    );
    change(&path, |ring| ring.add(key(2)));
    assert_eq!((Ring::read(&path).unwrap().keys().len(), draft.exists()), (2, false));
}

/// A process that may change the owner of a file keeps the original owner.
#[test]
fn changed_file_keeps_its_owner() {
    let (_folder, path) = file();
    let nobody = 65_534;
    if std::os::unix::fs::chown(&path, Some(nobody), Some(nobody)).is_err() {
        // Only root may change the owner of a file.
        return;
    }
    change(&path, |ring| ring.add(key(2)));
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.uid(), meta.gid(), mode(&path)), (nobody, nobody, 0o600));
}

#[test]
fn malformed_file_is_refused_without_quoting_keys() {
    let (_folder, path) = file();
    let whole = fs::read_to_string(&path).unwrap();
    let bytes = whole.split("bytes = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let other = data_encoding::BASE64.encode(&[9; 32]);
    let spoiled = [
        (whole.replace("[[key]]", "[[key"), "line 4 is invalid"),
        (whole.replace("created_at = 1", "created_at = \"1\""), "line 6 is invalid"),
        (whole.replace(bytes, &bytes[..20]), "is damaged"),
        (whole.replace(bytes, &other), "is damaged"),
        (format!("{whole}{}", &whole[whole.find("[[key]]").unwrap()..]), "duplicate key"),
        (format!("{bytes}\n"), "line 1 is invalid"),
    ];
    for (text, problem) in spoiled {
        fs::write(&path, &text).unwrap();
        let refused = Ring::read(&path).unwrap_err();
        let shown = format!("{refused} {refused:?}");
        assert!(refused.to_string().contains(problem), "{text}\n{shown}");
        assert!(!shown.contains(bytes), "{shown}");
    }
}

#[test]
fn debug_output_contains_no_key() {
    let (_folder, path) = file();
    let keys = Keys::from_file(&path).unwrap();
    keys.seal(&web(), MARKER).unwrap();
    let shown = format!("{keys:?} {:?} {:?}", key(1), Secret::Open(MARKER.into()));
    assert!(shown.contains(key(1).id()), "{shown}");
    assert!(!shown.contains(MARKER) && !shown.contains("1, 1, 1"), "{shown}");
}
