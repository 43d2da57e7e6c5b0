//! Processor time of the benchmark and of the NATS servers.

use std::time::Duration;

/// Length of a tick in `/proc`. Linux reports times to programs in this unit, independently of the kernel's
/// own tick.
const TICK: Duration = Duration::from_millis(10);

/// Processor time of this process and of the specified servers, since the start of each of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuTime {
    /// Processor time of this process: the services, the cells, and the clients that generate the load.
    pub(super) own: Duration,
    /// Processor time of all NATS servers together. `None` if no servers were specified or one of them cannot
    /// be read.
    pub(super) server: Option<Duration>,
}

impl CpuTime {
    /// Reads the current processor times. If the time of this process cannot be read, it counts as zero.
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

    /// Returns the time spent since an earlier reading.
    pub(super) fn since(self, before: Self) -> Self {
        let server = self.server.zip(before.server);
        Self {
            own: self.own.saturating_sub(before.own),
            server: server.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// Returns the sum of the user and system time in a `stat` file of `/proc`.
fn parse(stat: &str) -> Option<Duration> {
    // The name, in parentheses, may contain any character. The times are fields 12 and 13 after the name.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (ticks()?.saturating_add(ticks()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_sums_both_times_and_accepts_any_process_name() {
        let stat = "42 (a) b 7 (c) S 1 42 42 0 -1 4194304 900 0 0 0 130 25 0 0 20 0 8 0";
        assert_eq!(parse(stat), Some(Duration::from_millis(1_550)));
        assert_eq!(parse("42 (a) S 1"), None);
        assert!(CpuTime::read(&[std::process::id(); 3]).server.is_some());
    }
}
