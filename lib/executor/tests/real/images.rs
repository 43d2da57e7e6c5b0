//! Tests of containers with their own file system, from images and folders, and with an isolated network.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use executor::process::{FIRST_ID, IsolationPolicy, RANGE_LEN, Settings};
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use schemas::action::{Action, Run};
use schemas::container::{Recipe, RunResult};
use schemas::definition::{Network, Sandbox};
use schemas::isolation::IsolationLayer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::support::{Cell, eventually, program, sh, task};

/// Layer that is being built.
struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(Builder::new(vec![]))
    }

    fn add(mut self, kind: EntryType, path: &str, link: &str, content: &[u8], mode: u32) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(u64::try_from(content.len()).unwrap());
        header.set_mode(mode);
        header.set_uid(1000);
        header.set_gid(1000);
        // Write the raw field, because the builder rejects the path of a hostile archive.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.add(EntryType::Regular, path, "", content.as_bytes(), 0o644)
    }

    fn link(self, path: &str, to: &str) -> Self {
        self.add(EntryType::Symlink, path, to, b"", 0o777)
    }

    /// Adds a program of the host, with the libraries of the program.
    fn program(self, path: &str) -> Self {
        let said = Command::new("ldd").arg(path).output().unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        let libraries = said.split_whitespace().filter(|word| word.starts_with('/'));
        libraries.chain([path]).fold(self, |layer, file| {
            layer.add(EntryType::Regular, &file[1..], "", &fs::read(file).unwrap(), 0o755)
        })
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// Image in a folder.
struct Image(PathBuf);

impl Image {
    fn new(folder: PathBuf, layers: Vec<Layer>, config: &Value) -> Self {
        fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
        let image = Self(folder);
        let layer = |(at, layer): (usize, Layer)| {
            let bytes = layer.bytes();
            if at == 0 {
                return image.blob("application/vnd.oci.image.layer.v1.tar", &bytes);
            }
            if at == 2 {
                let packed = compress_to_vec(&*bytes, CompressionLevel::Fastest);
                return image.blob("application/vnd.oci.image.layer.v1.tar+zstd", &packed);
            }
            let mut packed = GzEncoder::new(vec![], Compression::fast());
            packed.write_all(&bytes).unwrap();
            image.blob("application/vnd.oci.image.layer.v1.tar+gzip", &packed.finish().unwrap())
        };
        let layers: Vec<Value> = layers.into_iter().enumerate().map(layer).collect();
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": []},
        });
        let config = image.blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        let mut manifest =
            image.blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes());
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": "1.2"});
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        fs::write(image.0.join("index.json"), index.to_string()).unwrap();
        image
    }

    fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
        let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
        fs::write(self.0.join("blobs/sha256").join(&digest), bytes).unwrap();
        json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len()})
    }
}

async fn cell(images: &Path) -> Cell {
    let images = vec![images.to_owned()];
    let isolate = IsolationPolicy::BestEffort { first_id: FIRST_ID };
    let cell = Cell::with(|settings| Settings { isolate, images, ..settings }).await;
    assert!(cell.executor.isolation().has(IsolationLayer::Files), "run these tests as root");
    cell
}

fn with_root_fs(root_fs: String, recipe: Recipe) -> Recipe {
    Recipe { sandbox: Some(Arc::new(Sandbox { root_fs, ..Sandbox::default() })), ..recipe }
}

fn layers() -> Vec<Layer> {
    let lower = Layer::new()
        .program("/bin/sh")
        .program("/bin/cat")
        .program("/bin/ls")
        .file("etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/srv:/bin/sh\n")
        .file("gone", "old")
        .file("all/old", "old")
        .file("kept", "old")
        .link("alias", "/etc");
    let upper = Layer::new()
        .file(".wh.gone", "")
        .file("all/new", "new")
        .file("all/.wh..wh..opq", "")
        .file("kept", "new")
        // If this link were resolved outside of the image, the link would lead to a folder of the host.
        .file("alias/marker", "of the image");
    vec![lower, upper, Layer::new().file("packed", "otherwise")]
}

#[tokio::test]
async fn container_runs_in_an_image() {
    let images = tempfile::tempdir().unwrap();
    let config = json!({"User": "app", "Env": ["GREETING=hello", "PATH=/bin:/usr/bin"]});
    let image = Image::new(images.path().join("web"), layers(), &config);
    let mut cell = cell(images.path()).await;
    let root_fs = format!("oci:{}:1.2", image.0.display());
    let script = "cat kept 2>/dev/null; cat /kept; echo; cat /packed; echo; ls /all; ls /gone 2>/dev/null; cat /etc/marker; echo; \
                  echo $GREETING; echo mine > mine; cat mine; (echo x > /kept); exit 0";
    let guid = cell.run(with_root_fs(root_fs.clone(), task(sh(script))));
    let end = cell.wait_until_completed(guid).await;
    let log = cell.log(guid).await;
    assert!(matches!(end, RunResult::Succeeded { .. }), "{end:?} {log:#?}");
    let out: Vec<&str> = log.iter().filter_map(|line| line.strip_prefix("OUT ")).collect();
    assert_eq!(out, ["new", "otherwise", "new", "of the image", "hello", "mine"], "{log:#?}");
    assert!(log.iter().any(|line| line.contains("Read-only file system")), "{log:#?}");
    // The root user of the image has an unprivileged id on the host.
    let unpacked = fs::read_dir(cell.root.path().join("data/images")).unwrap().next().unwrap().unwrap();
    let owner = fs::metadata(unpacked.path().join("tree/kept")).unwrap().uid();
    assert!(owner >= FIRST_ID && (owner - FIRST_ID) % RANGE_LEN == 1000, "{owner}");

    let as_root = Run {
        path: "sh".into(),
        args: vec!["-c".into(), "cat /proc/self/status".into()],
        user: "0".into(),
        ..Run::default()
    };
    let guid = cell.run(with_root_fs(root_fs.clone(), task(Action::Run(as_root))));
    cell.wait_until_completed(guid).await;
    let log = cell.log(guid).await;
    assert!(log.iter().any(|line| line == "OUT Uid:\t0\t0\t0\t0"), "{log:#?}");
    assert!(log.iter().any(|line| line == "OUT CapEff:\t0000000000000000"), "{log:#?}");
    let unknown = Run { path: "sh".into(), user: "absent-user".into(), ..Run::default() };
    let why = cell.run_to_failure(with_root_fs(root_fs, task(Action::Run(unknown)))).await;
    assert_eq!(why, "cannot start sh: unknown user absent-user: not in /etc/passwd of the container");
    cell.delete_all().await;
}

#[tokio::test]
async fn image_is_kept_while_a_container_uses_it() {
    let images = tempfile::tempdir().unwrap();
    let image = |name: &str, text: &str| {
        let layers =
            layers().into_iter().chain([Layer::new().program("/bin/sleep").file("name", text)]).collect();
        format!("oci:{}", Image::new(images.path().join(name), layers, &json!({})).0.display())
    };
    let (first, second, third) = (image("a", "a\n"), image("b", "b\n"), image("c", "c\n"));
    let mut cell = cell(images.path()).await;
    let unpacked = cell.root.path().join("data/images");
    let forget = || {
        for home in fs::read_dir(&unpacked).unwrap() {
            let config = File::options().append(true).open(home.unwrap().path().join("config.json")).unwrap();
            config.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    };
    let count = || fs::read_dir(&unpacked).unwrap().count();

    let guid = cell
        .run(with_root_fs(first, task(sh("cat /name; while [ ! -e go ]; do sleep 0.05; done; cat /name"))));
    cell.wait_until_running(guid).await;
    let other = cell.run(with_root_fs(second, task(sh("cat /name"))));
    cell.wait_until_completed(other).await;
    cell.executor.delete(other);
    eventually(async || cell.get(other).is_none()).await;
    assert_eq!(count(), 2, "the unused image is kept for a while");
    forget();
    let other = cell.run(with_root_fs(third, task(sh("cat /name"))));
    cell.wait_until_completed(other).await;
    assert_eq!(count(), 2, "the second image was removed");
    let work = cell.root.path().join(format!("data/containers/{guid}/work"));
    fs::write(work.join("go"), "").unwrap();
    assert!(matches!(cell.wait_until_completed(guid).await, RunResult::Succeeded { .. }));
    assert_eq!(cell.log(guid).await, ["OUT a", "OUT a"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn invalid_or_forbidden_image_fails_with_reason() {
    let images = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut cell = cell(images.path()).await;
    let mut why = async |root_fs: String| {
        let why = cell.run_to_failure(with_root_fs(root_fs, task(program("sh", &[])))).await;
        why.strip_prefix("failed to create container: ").unwrap_or_else(|| panic!("{why}")).to_owned()
    };
    let image = |name: &str, layer: Layer| Image::new(images.path().join(name), vec![layer], &json!({})).0;

    let outside = Image::new(elsewhere.path().join("web"), layers(), &json!({})).0;
    let said = why(format!("oci:{}", outside.display())).await;
    assert!(said.ends_with("is not allowed: expected a folder below --images of this cell"), "{said}");
    std::os::unix::fs::symlink(elsewhere.path(), images.path().join("link")).unwrap();
    let said = why(format!("oci:{}/link/web", images.path().display())).await;
    assert!(said.ends_with("is not allowed: expected a folder below --images of this cell"), "{said}");

    let web = image("web", Layer::new().file("a", "a"));
    let said = why(format!("oci:{}:2.0", web.display())).await;
    assert!(said.ends_with("no image \"2.0\": expected one of 1.2"), "{said}");
    for escape in ["../../escaped", "a/../../escaped"] {
        let bad = image(&format!("bad{}", escape.len()), Layer::new().file(escape, "x"));
        let said = why(format!("oci:{}", bad.display())).await;
        assert!(said.ends_with(&format!("invalid path {escape}: .. is not allowed")), "{said}");
    }
    let bad = image("hard", Layer::new().add(EntryType::Link, "hard", "../../../../etc/passwd", b"", 0o644));
    let said = why(format!("oci:{}", bad.display())).await;
    assert!(said.ends_with("invalid path ../../../../etc/passwd: .. is not allowed"), "{said}");

    let damaged = image("damaged", Layer::new().file("a", "a"));
    let blob = fs::read_dir(damaged.join("blobs/sha256"))
        .unwrap()
        .flatten()
        .max_by_key(|blob| blob.metadata().unwrap().len());
    File::options().append(true).open(blob.unwrap().path()).unwrap().write_all(b"x").unwrap();
    let said = why(format!("oci:{}", damaged.display())).await;
    assert!(said.contains("is damaged: its digest is sha256:"), "{said}");
    assert_eq!(
        fs::read_dir(images.path()).unwrap().flatten().filter(|at| at.file_name() == "escaped").count(),
        0
    );
    cell.delete_all().await;
}

#[tokio::test]
async fn isolated_network_reaches_only_its_own_loopback() {
    let images = tempfile::tempdir().unwrap();
    let mut cell = cell(images.path()).await;
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listening.local_addr().unwrap().port();
    let script = format!(
        "use IO::Socket::INET; $s = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => 8080) or die $!;
         print IO::Socket::INET->new('127.0.0.1:8080') ? 'in' : 'out', \"\\n\";
         print IO::Socket::INET->new('127.0.0.1:{port}') ? 'in' : 'out', \"\\n\";"
    );
    let recipe = task(program("perl", &["-e", &script]));
    let sandbox = Sandbox { network: Network::None, ..Sandbox::default() };
    let guid = cell.run(Recipe { sandbox: Some(Arc::new(sandbox)), ..recipe });
    cell.wait_until_completed(guid).await;
    assert_eq!(cell.log(guid).await, ["OUT in", "OUT out"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn root_fs_is_refused_on_a_cell_without_isolation() {
    let mut cell = Cell::new().await;
    let why = cell.run_to_failure(with_root_fs("/srv".into(), task(sh("true")))).await;
    assert_eq!(
        why,
        "failed to create container: this cell does not isolate containers, so root_fs and an isolated \
         network are not available"
    );
    cell.delete_all().await;
}
