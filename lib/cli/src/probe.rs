//! `muster probe`: checks the readiness or liveness of a service. Used where no other HTTP client is
//! available, such as in a container.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use host::{http, telemetry_args};
use reqwest::StatusCode;
use reqwest::redirect::Policy;
use runtime::exit::Exit;
use serde::{Deserialize, Serialize};
use text::chain;

/// Timeout of a probe without `--timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of `muster probe`.
#[derive(Clone, Debug, Args)]
pub struct ProbeArgs {
    /// Metrics address of the service (its --metrics option), such as 127.0.0.1:9464; if it is 0.0.0.0 or ::,
    /// the loopback address is probed
    #[arg(long, value_name = "ADDR", value_parser = telemetry_args::parse_address, env = "MUSTER_METRICS")]
    metrics: SocketAddr,
    /// Check only whether the service is alive (/livez), not whether it is ready (/readyz)
    #[arg(long)]
    live: bool,
}

/// Reply of a service to a probe.
#[derive(Debug, Deserialize)]
struct Reply {
    /// `true` if the service has no problems.
    #[serde(alias = "live")]
    ready: bool,
    /// Problems by service.
    #[serde(default)]
    wrong: BTreeMap<String, Vec<String>>,
}

/// Output of `muster probe`.
#[derive(Debug, Serialize)]
struct ProbeResult {
    address: SocketAddr,
    probe: &'static str,
    ok: bool,
}

pub(crate) async fn run(args: &ProbeArgs, global: &Global) -> Result<(), Failure> {
    let (address, probe) = (probe_address(args.metrics), if args.live { "livez" } else { "readyz" });
    let (status, body) = send_probe(address, probe, global.timeout.unwrap_or(DEFAULT_TIMEOUT)).await?;
    check_reply(address, probe, status, &body)?;
    let shown = ProbeResult { address, probe, ok: true };
    Output::new(global).write_one(&shown, |_, _| if args.live { "alive" } else { "ready" }.to_owned())
}

/// Returns the address to connect to: the loopback address if the service listens on all addresses.
fn probe_address(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(all) if all.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(all) if all.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host @ (IpAddr::V4(_) | IpAddr::V6(_)) => host,
    };
    SocketAddr::new(host, address.port())
}

async fn send_probe(
    address: SocketAddr,
    probe: &str,
    limit: Duration,
) -> Result<(StatusCode, String), Failure> {
    let silent = |error: reqwest::Error| {
        Failure::new(Exit::Unreachable, "Unreachable", format!("{address} doesn't answer: {}", chain(&error)))
            .advise(format!("is the service started with --metrics {address}?"))
    };
    // Probes address this host, so a proxy from the environment must not be used.
    let client = http::builder(limit).redirect(Policy::none()).no_proxy().build().map_err(silent)?;
    let answer = client.get(format!("http://{address}/{probe}")).send().await.map_err(silent)?;
    let status = answer.status();
    Ok((status, answer.text().await.map_err(silent)?))
}

/// Fails unless the service reports success. The error lists the reported problems.
fn check_reply(address: SocketAddr, probe: &str, status: StatusCode, body: &str) -> Result<(), Failure> {
    let answer: Option<Reply> = serde_json::from_str(body).ok();
    let foreign = || {
        let why = format!("{address} is not a Muster service: it answered /{probe} with {status}");
        Failure::new(Exit::Failed, "Foreign", why)
    };
    match (status, answer) {
        (StatusCode::OK, Some(Reply { ready: true, .. })) => Ok(()),
        (StatusCode::SERVICE_UNAVAILABLE, Some(Reply { wrong, .. })) => {
            let each = wrong.iter().map(|(service, why)| format!("{service}: {}", why.join("; ")));
            let why = each.collect::<Vec<_>>().join("; ");
            Err(Failure::new(Exit::Failed, "NotReady", format!("{address}: {why}")))
        }
        (_, Some(_) | None) => Err(foreign()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn unspecified_address_is_probed_on_loopback() {
        for (told, asked) in
            [("0.0.0.0:9464", "127.0.0.1:9464"), ("[::]:9464", "[::1]:9464"), ("10.0.0.7:80", "10.0.0.7:80")]
        {
            assert_eq!(probe_address(address(told)), address(asked));
        }
    }

    #[test]
    fn only_ready_reply_passes_probe() {
        let at = address("127.0.0.1:9464");
        let says = |status, body: &str| {
            check_reply(at, "readyz", status, body).map_err(|failure| failure.text(false))
        };
        assert_eq!(says(StatusCode::OK, r#"{"ready":true}"#), Ok(()));
        let wrong = r#"{"ready":false,"wrong":{"rep c1":["no connection to a NATS server"]}}"#;
        let why = says(StatusCode::SERVICE_UNAVAILABLE, wrong).unwrap_err();
        assert_eq!(why, "error: 127.0.0.1:9464: rep c1: no connection to a NATS server (NotReady)");
        for (status, body) in [
            (StatusCode::OK, "hello"),
            (StatusCode::OK, "{}"),
            (StatusCode::NOT_FOUND, "{}"),
            (StatusCode::SERVICE_UNAVAILABLE, "<html>"),
        ] {
            assert!(says(status, body).unwrap_err().contains("is not a Muster service"), "{status} {body}");
        }
    }
}
