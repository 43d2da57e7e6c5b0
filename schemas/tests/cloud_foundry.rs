//! Tests with specs in the form that Cloud Foundry creates. Supported fields work unchanged, and refusals
//! name the reason (docs/guides/cloud-foundry-specs.md, "Use specs of Cloud Foundry").

use schemas::action::{Action, Secret};
use schemas::definition::{Network, Sandbox};
use schemas::isolation::IsolationLayer;
use schemas::spec::{lrp, task, task_to_json, to_json};
use serde_json::{Value, json};

/// Returns the spec of an application with a buildpack. The droplet is downloaded into the home folder of
/// vcap, a launcher starts the application, and a sidecar provides SSH access.
fn application() -> Value {
    let launcher = json!({"run": {
        "path": "/tmp/lifecycle/launcher",
        "args": ["app", "", "{\"start_command\":\"node server.js\"}"],
        "env": [{"name": "VCAP_APP_PORT", "value": "8080"}, {"name": "PORT", "value": "8080"}],
        "resource_limits": {"nofile": 16384},
        "user": "vcap",
        "log_source": "APP/PROC/WEB",
    }});
    let shell = json!({"run": {
        "path": "/tmp/lifecycle/diego-sshd",
        "args": ["-address=0.0.0.0:2222", "-inheritDaemonEnv"],
        "resource_limits": {"nofile": 16384},
        "user": "vcap",
        "suppress_log_output": true,
    }});
    let check = json!({"run": {"path": "/tmp/lifecycle/healthcheck", "args": ["-port=8080"], "user": "vcap",
                               "resource_limits": {"nofile": 1024}, "suppress_log_output": true}});
    json!({
        "process_guid": "6d6ec1a0-b7bf-4b6b-9c9a-5b0f1c6c2f11-0b6f9c1e-3e6e-4b0a-8f9f-0a1b2c3d4e5f",
        "domain": "cf-apps",
        "rootfs": "preloaded:cflinuxfs4",
        "instances": 2,
        "environment_variables": [{"name": "LANG", "value": "en_US.UTF-8"}],
        "cached_dependencies": [{
            "name": "",
            "from": "http://file-server.service.cf.internal:8080/v1/static/buildpack_app_lifecycle.tgz",
            "to": "/tmp/lifecycle",
            "cache_key": "buildpack-cflinuxfs4-lifecycle",
        }],
        "legacy_download_user": "vcap",
        "setup": {"serial": {"actions": [{"download": {
            "artifact": "",
            "from": "https://user:password@blobstore.service.cf.internal/cc-droplets/6d/6e/droplet",
            "to": ".",
            "cache_key": "droplets-6d6ec1a0",
            "user": "vcap",
            "checksum_algorithm": "sha1",
            "checksum_value": "DA39A3EE5E6B4B0D3255BFEF95601890AFD80709",
        }}], "log_source": "CELL"}},
        "action": {"codependent": {"actions": [launcher, shell]}},
        "monitor": {"timeout": {"action": {"parallel": {"actions": [check]}}, "timeout_ms": 600_000, "log_source": "HEALTH"}},
        "start_timeout_ms": 60_000,
        "disk_mb": 1024,
        "memory_mb": 256,
        "cpu_weight": 100,
        "privileged": false,
        "ports": [8080, 2222],
        "routes": {"cf-router": [{"hostnames": ["app.example.com"], "port": 8080}]},
        "log_source": "CELL",
        "log_guid": "6d6ec1a0-b7bf-4b6b-9c9a-5b0f1c6c2f11",
        "metrics_guid": "6d6ec1a0-b7bf-4b6b-9c9a-5b0f1c6c2f11",
        "annotation": "1431000000.0",
        "egress_rules": [],
        "volume_mounts": [],
        "network": {"properties": {}},
        "max_pids": 0,
        "image_username": "",
        "image_password": "",
        "placement_tags": [],
        "check_definition": null,
        "image_layers": [],
    })
}

/// Returns the spec of a staging task. The task downloads the source and the caches, runs a builder, and
/// uploads the results.
fn staging() -> Value {
    let file_server = "http://file-server.service.cf.internal:8080/v1";
    let fetch = |name: &str, to: &str| {
        json!({"download": {
            "artifact": name, "from": format!("{file_server}{to}"), "to": to, "user": "vcap", "cache_key": "",
        }})
    };
    let send = |from: &str, to: &str| {
        json!({"upload": {
            "artifact": from, "from": from, "to": format!("{file_server}/{to}?timeout=900"), "user": "vcap",
        }})
    };
    let build = json!({"run": {
        "path": "/tmp/lifecycle/builder",
        "args": ["-buildpackOrder=nodejs", "-outputDroplet=/tmp/droplet"],
        "user": "vcap",
        "resource_limits": {"nofile": 16384, "nproc": 0},
        "env": [{"name": "CF_STACK", "value": "cflinuxfs4"}],
    }});
    let sent = json!({"parallel": {"actions": [
        send("/tmp/droplet", "droplet/7"),
        {"try": {"action": send("/tmp/output-cache", "build_artifacts/7")}},
    ]}});
    let fetched = json!({"parallel": {"actions": [
        fetch("app package", "/tmp/app"),
        {"try": {"action": fetch("build artifacts cache", "/tmp/cache")}},
    ]}});
    let told = json!({"emit_progress": {
        "action": build, "start_message": "", "success_message": "Staging complete",
        "failure_message_prefix": "Staging failed",
    }});
    json!({
        "task_guid": "7b0b7ffb-2d5e-4d6b-8a4c-1f0e9a5a7c11",
        "domain": "cf-app-staging",
        "rootfs": "preloaded:cflinuxfs4",
        "action": {"timeout": {
            "action": {"serial": {"actions": [fetched, told, sent]}}, "timeout_ms": 900_000, "log_source": "STG",
        }},
        "cached_dependencies": [
            {"name": "nodejs", "from": format!("{file_server}/nodejs.zip"), "to": "/tmp/buildpacks/nodejs",
             "cache_key": "nodejs-1", "checksum_algorithm": "sha256", "checksum_value": "a".repeat(64)},
        ],
        "legacy_download_user": "vcap",
        "memory_mb": 1024,
        "disk_mb": 4096,
        "cpu_weight": 50,
        "privileged": false,
        "log_guid": "6d6ec1a0-b7bf-4b6b-9c9a-5b0f1c6c2f11",
        "log_source": "STG",
        "result_file": "/tmp/result.json",
        "completion_callback_url": "https://api.example.com/internal/v3/staging/7/build_completed?start=1",
        "annotation": "{\"lifecycle\":\"buildpack\"}",
        "egress_rules": [],
        "max_pids": 0,
        "metric_tags": {},
    })
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

fn problems(spec: Value) -> Vec<String> {
    let read = if spec.get("task_guid").is_some() { task(spec).map(drop) } else { lrp(spec).map(drop) };
    let bad = read.map_or_else(|refusal| refusal.fields, |()| vec![]);
    bad.into_iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect()
}

#[test]
fn application_spec_of_cloud_foundry_is_accepted() {
    let read = lrp(application()).unwrap();
    let definition = &read.definition;
    let sandbox: &Sandbox = definition.sandbox.as_deref().unwrap();
    assert_eq!((sandbox.network, sandbox.log_source.as_str()), (Network::Host, "CELL"));
    assert_eq!(sandbox.cached_dependencies[0].user, "vcap");
    assert_eq!(definition.constraint.stack.as_ref().unwrap().as_str(), "cflinuxfs4");
    assert!(
        definition.constraint.isolation.contains(&IsolationLayer::Files),
        "absolute paths require file \
        isolation"
    );
    let Some(Action::Serial(setup)) = definition.setup.as_deref() else { panic!("{:?}", definition.setup) };
    let Action::Download(droplet) = &setup.actions[0] else { panic!("{setup:?}") };
    assert!(matches!(droplet.from, Secret::Open(_)), "a URL with a password is a secret");
    assert_eq!(
        (droplet.log_source.as_str(), droplet.checksum_value.as_str()),
        ("CELL", "da39a3ee5e6b4b0d3255bfef95601890afd80709")
    );
    let Action::Codependent(group) = &*definition.action else { panic!("{:?}", definition.action) };
    let Action::Run(launcher) = &group.actions[0] else { panic!("{group:?}") };
    assert_eq!(
        (launcher.log_source.as_str(), launcher.resource_limits.nofile),
        ("APP/PROC/WEB", Some(16_384))
    );
    assert_eq!(lrp(to_json(&read)).unwrap(), read);
}

#[test]
fn staging_spec_of_cloud_foundry_is_accepted() {
    let read = task(staging()).unwrap();
    let Action::Timeout(limited) = &read.definition.action else { panic!("{:?}", read.definition.action) };
    let mut sources = vec![];
    limited.action.for_each_transfer(&mut |transfer| {
        sources.push(match transfer {
            schemas::action::Transfer::Download(download) => download.log_source.clone(),
            schemas::action::Transfer::Upload(upload) => upload.log_source.clone(),
        });
    });
    assert_eq!(sources, ["STG"; 4], "nested actions inherit the log source");
    assert!(read.definition.constraint.isolation.contains(&IsolationLayer::Files));
    assert_eq!(task(task_to_json(&read)).unwrap(), read);
}

#[test]
fn unsupported_field_is_refused_with_reason() {
    let rule = json!([{"protocol": "tcp", "destinations": ["0.0.0.0/0"], "ports": [443]}]);
    let shared = "egress_rules: is not supported, because containers share the network of their host: \
                  remove the rules, or use network none for no network access";
    let closed = "egress_rules: is not supported with network none: remove the rules";
    let image = "is not supported: images come from folders of the cell, not from a registry";
    for (spec, problem) in [
        (with(application(), "egress_rules", rule.clone()), shared.to_owned()),
        (with(staging(), "egress_rules", rule.clone()), shared.to_owned()),
        (with(with(application(), "network", json!("none")), "egress_rules", rule), closed.to_owned()),
        (
            with(application(), "network", json!({"properties": {"policy_group_id": "6d6ec1a0"}})),
            "network: has properties of a container network, which cells do not support: use host, or none \
             for no network access"
                .to_owned(),
        ),
        (
            with(application(), "rootfs", json!("docker:///cloudfoundry/diego-docker-app#latest")),
            "rootfs: must be preloaded:STACK, oci:FOLDER, oci:FOLDER:TAG, or the path of a folder on \
             the cell".to_owned(),
        ),
        (with(application(), "image_username", json!("u")), format!("image_username: {image}")),
        (with(application(), "image_password", json!("p")), format!("image_password: {image}")),
        (with(application(), "privileged", json!(true)), "privileged: is not supported: containers have no \
            rights on their host".to_owned()),
        (with(application(), "max_pids", json!(1024)), "max_pids: is not supported: a cell limits the \
            processes of each container".to_owned()),
        (
            with(application(), "trusted_system_certificates_path", json!("/etc/cf-system-certificates")),
            "trusted_system_certificates_path: is not supported: a container uses those of its \
             file system".to_owned(),
        ),
        (
            with(application(), "certificate_properties", json!({"organizational_unit": ["organization:1"]})),
            "certificate_properties: is not supported: containers get no certificates".to_owned(),
        ),
        (
            with(application(), "check_definition", json!({"checks": [{"tcp_check": {"port": 8080}}]})),
            "check_definition: is not supported: use monitor".to_owned(),
        ),
        (
            with(application(), "volume_mounts", json!([{"driver": "nfsv3driver"}])),
            "volume_mounts: is not supported: containers have no volumes".to_owned(),
        ),
        (
            with(staging(), "result_file", json!("/etc/passwd")),
            "result_file: must be relative to the work directory, or in /tmp or /home/vcap, and not lead out of it".to_owned(),
        ),
    ] {
        assert_eq!(problems(spec), [problem]);
    }
}

#[test]
fn transfer_with_bad_path_url_or_checksum_is_refused() {
    let download = |field: &str, value: Value| {
        let mut body = json!({"from": "http://a/b", "to": "app", "checksum_algorithm": "md5", "checksum_value": "a".repeat(32)});
        body[field] = value;
        with(application(), "setup", json!({"download": body}))
    };
    assert!(problems(download("user", json!("vcap"))).is_empty());
    for (field, value, problem) in [
        ("to", json!(""), "must name a path"),
        ("to", json!("a/../../b"), "must not contain .."),
        ("to", json!("/tmp/.."), "must not contain .."),
        ("from", json!("ftp://a/b"), "must be a URL that starts with http:// or https://"),
        ("checksum_algorithm", json!("crc32"), "must be one of md5, sha1, sha256"),
        ("checksum_algorithm", json!(null), "is missing: checksum_value requires it"),
        ("checksum_value", json!("abc"), "must be 32 hexadecimal digits"),
        ("checksum_value", json!("g".repeat(32)), "must be 32 hexadecimal digits"),
        ("colour", json!(1), "is unknown"),
    ] {
        let found = problems(download(field, value));
        assert_eq!(found, [format!("setup.download.{field}: {problem}")]);
    }
    let upload = with(application(), "setup", json!({"upload": {"from": "a"}}));
    assert_eq!(problems(upload), ["setup.upload.to: is missing"]);
}

#[test]
fn absolute_path_requires_file_isolation() {
    let plain = json!({
        "process_guid": "web", "domain": "d",
        "action": {"download": {"from": "http://a/b", "to": "app"}},
        "log_guid": "g", "cached_dependencies": [{"from": "http://a/b", "to": "dep"}],
    });
    let walls = |spec: Value| lrp(spec).unwrap().definition.constraint.isolation.clone();
    assert!(walls(plain.clone()).is_empty());
    let upload = json!({"try": {"action": {"upload": {"from": "/tmp/a", "to": "http://a/b"}}}});
    for (field, value) in [
        ("action", upload.clone()),
        ("monitor", upload),
        ("cached_dependencies", json!([{"from": "http://a/b", "to": "/tmp/dep"}])),
    ] {
        assert_eq!(walls(with(plain.clone(), field, value)), [IsolationLayer::Files].into());
    }
}
