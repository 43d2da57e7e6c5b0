//! `--metrics`: HTTP endpoint for metrics and probes of a service.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use metrics::catalogue::CERTIFICATE_EXPIRY;
use metrics::page::Page;
use metrics::server;
use text::words::InvalidValue;

use crate::error::ServiceError;
use crate::monitoring::MetricsRegistry;
use crate::otlp::Collector;

/// Option for the metrics endpoint.
#[derive(Clone, Debug, Default, Args)]
pub struct MetricsArgs {
    /// Address to serve /metrics, /livez and /readyz at, such as 127.0.0.1:9464
    #[arg(long = "metrics", value_name = "ADDR", value_parser = parse_address, env = "MUSTER_METRICS")]
    metrics: Option<SocketAddr>,
}

/// Option for a trace collector.
#[derive(Clone, Debug, Default, Args)]
pub struct TracesArgs {
    #[arg(
        help = "Send a span of each decision to this OpenTelemetry trace collector while leading, such as http://127.0.0.1:4318",
        long, value_name = "URL", value_parser = Collector::parse, env = "MUSTER_OTLP")]
    pub otlp: Option<Collector>,
}

/// Parses the address of the metrics endpoint.
pub fn parse_address(text: &str) -> Result<SocketAddr, InvalidValue> {
    text.parse().map_err(|_| {
        InvalidValue::new(
            "address",
            text,
            "IP:PORT, such as 127.0.0.1:9464, [::1]:9464, or 0.0.0.0:9464 for all interfaces",
        )
    })
}

impl MetricsArgs {
    /// Starts the endpoint if the option is set. The metrics include the expiry of the client certificate for
    /// the NATS server, if there is one.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn open(&self, certificate: Option<PathBuf>) -> Result<MetricsRegistry, ServiceError> {
        let Some(address) = self.metrics else { return Ok(MetricsRegistry::default()) };
        // The file is read for each request, because a certificate may be renewed while the program runs.
        let expires_in = move || {
            let pem = std::fs::read(certificate.as_ref()?).ok()?;
            let left = access::certificates::expiry(&pem).ok()?.since(clock::now());
            Some(CERTIFICATE_EXPIRY.value_sample(left.as_secs_f64()))
        };
        let page = Page::new(env!("CARGO_PKG_VERSION"))
            .with_program_samples(move || expires_in().into_iter().collect());
        let bound = server::serve(page.clone(), address).await?;
        tracing::info!("serving metrics at http://{bound}/metrics");
        Ok(MetricsRegistry::with_page(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_address_is_an_ip_and_a_port() {
        for fine in ["127.0.0.1:9464", "[::1]:9464", "0.0.0.0:0"] {
            assert!(parse_address(fine).is_ok(), "{fine}");
        }
        for bad in ["9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:99999", ""] {
            let said = parse_address(bad).unwrap_err().to_string();
            assert!(said.contains("IP:PORT, such as 127.0.0.1:9464"), "{said}");
        }
    }
}
