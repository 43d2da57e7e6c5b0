//! Collects the permission violations of services from their metrics pages.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use host::http;
use metrics::catalogue::VIOLATIONS;
use reqwest::{Client, Url};
use text::chain;
use text::words::InvalidValue;

use explain::doctor::facts::ServiceMetrics;

/// Timeout of each metrics request.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// URL of a service's metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Endpoint(Url);

impl Endpoint {
    /// Parses `HOST:PORT` or the URL of a metrics page.
    ///
    /// # Errors
    /// The text has neither of the two forms.
    pub(in super::super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let expected = "HOST:PORT or a URL, such as 127.0.0.1:9464 or http://127.0.0.1:9464/metrics";
        let invalid = || InvalidValue::new("metrics address", text, expected);
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let mut url = Url::parse(&whole).map_err(|_| invalid())?;
        if !matches!(url.scheme(), "http" | "https")
            || url.host().is_none()
            || url.port_or_known_default().is_none()
        {
            return Err(invalid());
        }
        if !text.contains("://") && url.port().is_none() && !text.ends_with(":80") {
            return Err(invalid());
        }
        if url.path() == "/" {
            url.set_path("/metrics");
        }
        Ok(Self(url))
    }
}

pub(super) async fn collect(endpoints: &[Endpoint]) -> Vec<ServiceMetrics> {
    let http = http::client(HTTP_TIMEOUT);
    let all = endpoints.iter().map(async |Endpoint(url)| {
        let refused = match &http {
            Ok(http) => fetch_violations(http, url).await,
            Err(error) => Err(chain(error)),
        };
        ServiceMetrics { url: url.to_string(), refused }
    });
    join_all(all).await
}

async fn fetch_violations(http: &Client, url: &Url) -> Result<BTreeMap<String, u64>, String> {
    let failed = |error: reqwest::Error| chain(&error.without_url());
    let answer = http.get(url.clone()).send().await.map_err(failed)?;
    let answer = answer.error_for_status().map_err(failed)?;
    parse_page(&answer.text().await.map_err(failed)?)
}

/// Parses a metrics page. Returns the number of permission violations by service.
fn parse_page(page: &str) -> Result<BTreeMap<String, u64>, String> {
    let name = format!("{}_total{{", VIOLATIONS.full_name());
    let mut refused = BTreeMap::new();
    for line in page.lines().filter_map(|line| line.strip_prefix(&name)) {
        let (labels, value) = line.split_once("} ").ok_or("not a metrics page")?;
        let label = |wanted: &str| {
            labels
                .split("\",")
                .find_map(|label| label.strip_prefix(wanted))
                .map(|value| value.trim_end_matches('"'))
        };
        let service = label("service=\"").ok_or("the metrics have no service label")?;
        let who = label("cell=\"").map_or_else(|| service.to_owned(), |cell| format!("{service} {cell}"));
        let count: Option<u64> = value.split(' ').next().and_then(|text| text.parse().ok());
        *refused.entry(who).or_default() += count.ok_or("not a metrics page")?;
    }
    if refused.is_empty() { Err(format!("the page has no {}", VIOLATIONS.name)) } else { Ok(refused) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_a_host_with_port_or_a_url() {
        let read = |text: &str| Endpoint::parse(text).map(|Endpoint(url)| url.to_string());
        assert_eq!(read("127.0.0.1:9464").unwrap(), "http://127.0.0.1:9464/metrics");
        assert_eq!(read("[::1]:1").unwrap(), "http://[::1]:1/metrics");
        assert_eq!(read("https://bbs.example/m").unwrap(), "https://bbs.example/m");
        for bad in ["", "9464", "bbs.example", "ftp://a", "a b:1"] {
            assert!(read(bad).unwrap_err().to_string().contains("HOST:PORT or a URL"), "{bad}");
        }
    }

    #[test]
    fn metrics_page_gives_violations_per_service() {
        let page = "# TYPE muster_permission_violations counter\n\
                    muster_permission_violations_total{service=\"rep\",cell=\"c1\"} 3\n\
                    muster_permission_violations_total{service=\"bbs\"} 0\n# EOF\n";
        assert_eq!(
            parse_page(page).unwrap(),
            BTreeMap::from([("bbs".to_owned(), 0), ("rep c1".to_owned(), 3)])
        );
        assert!(parse_page("hello").unwrap_err().contains("the page has no muster_permission_violations"));
    }
}
