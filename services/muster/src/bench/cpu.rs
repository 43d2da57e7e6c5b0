//! How much processor time was spent.

use std::time::Duration;

/// How long a tick of `/proc` is: Linux fixes it for programs, whatever its own is.
const TICK: Duration = Duration::from_millis(10);

/// The processor time of this process, and of the servers if they were named, since they began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// Of this process: the services, the cells, and the clients that load them.
    pub(super) own: Duration,
    /// Of all NATS servers together.
    pub(super) server: Option<Duration>,
}

impl Spent {
    /// Reads both. What can't be read counts as nothing.
    pub(super) fn read(servers: &[u32]) -> Self {
        let of = |process: &str| {
            let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            parse(&text)
        };
        Self {
            own: of("self").unwrap_or_default(),
            server: servers
                .iter()
                .map(|process| of(&process.to_string()))
                .reduce(|sum, one| Some(sum? + one?))
                .flatten(),
        }
    }

    /// What was spent since then.
    pub(super) fn since(self, before: Self) -> Self {
        let server = self.server.zip(before.server);
        Self {
            own: self.own.saturating_sub(before.own),
            server: server.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// The user and system time in a `stat` of `/proc`.
fn parse(stat: &str) -> Option<Duration> {
    // The name, in brackets, may hold anything; behind it the times are fields 12 and 13.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (ticks()?.saturating_add(ticks()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_times_count_and_a_name_may_hold_anything() {
        let stat = "42 (a) b 7 (c) S 1 42 42 0 -1 4194304 900 0 0 0 130 25 0 0 20 0 8 0";
        assert_eq!(parse(stat), Some(Duration::from_millis(1_550)));
        assert_eq!(parse("42 (a) S 1"), None);
        assert!(Spent::read(&[std::process::id(); 3]).server.is_some());
    }
}
