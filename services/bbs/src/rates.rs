//! Rates of the commands of domains, limited by the quota `commands_per_second`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::names::Domain;
use schemas::quota::COMMANDS_PER_SECOND;
use schemas::{Code, Refusal, Timestamp};

/// Duration of a burst. A domain may send at once as many commands as its quota allows for this duration.
const BURST: Duration = Duration::from_secs(10);
/// Maximum number of remembered domains. Above this number, domains with their full allowance are dropped.
const MAX_DOMAINS: usize = 1_024;

/// Time at which each domain has its full allowance again. The full allowance is the number of commands of
/// one [`BURST`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates(BTreeMap<Domain, Timestamp>);

impl Rates {
    /// Counts a command of a domain whose quota is `limit` commands per second.
    ///
    /// # Errors
    /// `Overloaded` if the domain has used up its allowance.
    pub(crate) fn admit(&mut self, domain: &Domain, limit: u32, now: Timestamp) -> Result<(), Refusal> {
        let one = Duration::from_secs(1) / limit.max(1);
        let whole = self.0.get(domain).map_or(now, |whole| now.max(*whole)) + one;
        if whole > now + BURST {
            let why = COMMANDS_PER_SECOND.exceeded(domain, limit, "its clients send more; send more slowly");
            return Err(Refusal::new(Code::Overloaded, why));
        }
        if self.0.len() >= MAX_DOMAINS && !self.0.contains_key(domain) {
            self.0.retain(|_, whole| *whole > now);
        }
        self.0.insert(domain.clone(), whole);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_is_limited_to_burst_and_quota_independently_of_others() {
        let (mut rates, start) = (Rates::default(), Timestamp::from_millis(1_000));
        let domain = |name: &str| Domain::new(name).unwrap();
        let admitted = |rates: &mut Rates, name: &str, now| {
            (0..5_000).filter(|_| rates.admit(&domain(name), 200, now).is_ok()).count()
        };
        assert_eq!(admitted(&mut rates, "loud", start), 2_000);
        assert_eq!(admitted(&mut rates, "quiet", start), 2_000);
        let refusal = rates.admit(&domain("loud"), 200, start).unwrap_err();
        assert!(
            refusal.code == Code::Overloaded
                && refusal.message.contains("quota commands_per_second of domain loud is 200")
        );
        assert_eq!(admitted(&mut rates, "loud", start + Duration::from_secs(1)), 200);
        assert_eq!(admitted(&mut rates, "loud", start + Duration::from_secs(60)), 2_000);
        (0..2 * MAX_DOMAINS).for_each(|number| {
            rates.admit(&domain(&format!("d{number}")), 200, start + Duration::from_secs(600)).unwrap();
        });
        assert!(!rates.0.contains_key(&domain("loud")), "a domain with its full allowance is dropped");
    }
}
