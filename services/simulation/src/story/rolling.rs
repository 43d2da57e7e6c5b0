//! Rollout and restart policies as text.

use std::fmt;
use std::time::Duration;

use schemas::policy::{
    FailureAction, Parallelism, Ratio, RestartCondition, RestartPolicy, UpdateOrder, UpdatePolicy,
};
use schemas::process::RolloutControl;

use scenario::words::{Bad, Time, Words};

use crate::work::Rolls;

const STEERS: [(&str, RolloutControl); 3] = [
    ("pause", RolloutControl::Pause),
    ("resume", RolloutControl::Resume),
    ("back", RolloutControl::RollBack),
];

const ORDERS: [(&str, UpdateOrder); 2] =
    [("start-first", UpdateOrder::StartFirst), ("stop-first", UpdateOrder::StopFirst)];

const FAILURES: [(&str, FailureAction); 4] = [
    ("hold", FailureAction::Hold),
    ("pause", FailureAction::Pause),
    ("continue", FailureAction::Continue),
    ("rollback", FailureAction::Rollback),
];

const CONDITIONS: [(&str, RestartCondition); 3] = [
    ("any", RestartCondition::Any),
    ("on-failure", RestartCondition::OnFailure),
    ("none", RestartCondition::None),
];

/// Returns the name of a value.
pub(super) fn name_in<T: PartialEq>(known: &[(&'static str, T)], one: &T) -> &'static str {
    known.iter().find(|(_, other)| other == one).map_or("", |(name, _)| name)
}

/// Parses one of several names.
pub(super) fn named<T: Copy>(known: &[(&str, T)], words: &mut Words) -> Result<T, Bad> {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let expected = format!("one of {}", names.join(", "));
    words.read(&expected, |word| known.iter().find(|(name, _)| *name == word).map(|(_, one)| *one))
}

/// Returns the name of a rollout command.
pub(super) fn name(steer: RolloutControl) -> &'static str {
    name_in(&STEERS, &steer)
}

/// Parses a rollout command.
pub(super) fn steer(words: &mut Words) -> Result<RolloutControl, Bad> {
    named(&STEERS, words)
}

/// Writes the parts of a policy that differ from the default.
pub(super) fn write(f: &mut fmt::Formatter<'_>, rolls: &Rolls) -> fmt::Result {
    let basic = UpdatePolicy::default_update();
    let Rolls { update, min_running, history } = rolls;
    f.write_str(" rolls")?;
    if update.parallelism != basic.parallelism {
        match update.parallelism {
            Parallelism::Count(count) => write!(f, " parallelism={count}")?,
            Parallelism::Percent(percent) => write!(f, " parallelism={percent}%")?,
        }
    }
    let mut time = |name: &str, millis: u64, basic: u64| {
        if millis == basic { Ok(()) } else { write!(f, " {name}={}", Time(Duration::from_millis(millis))) }
    };
    time("delay", update.delay_ms, basic.delay_ms)?;
    time("monitor", update.monitor_ms, basic.monitor_ms)?;
    time("deadline", update.index_deadline_ms, basic.index_deadline_ms)?;
    if update.order != basic.order {
        write!(f, " order={}", name_in(&ORDERS, &update.order))?;
    }
    if update.failure_action != basic.failure_action {
        write!(f, " on-failure={}", name_in(&FAILURES, &update.failure_action))?;
    }
    if update.max_failure_ratio != basic.max_failure_ratio {
        write!(f, " ratio={}", f64::from(update.max_failure_ratio))?;
    }
    update.pause_after.map_or(Ok(()), |after| write!(f, " pause-after={after}"))?;
    min_running.map_or(Ok(()), |least| write!(f, " min-running={least}"))?;
    history.map_or(Ok(()), |limit| write!(f, " history={limit}"))
}

/// Parses `rolls`, or an option after it.
pub(super) fn read(rolls: &mut Option<Box<Rolls>>, words: &mut Words) -> Result<bool, Bad> {
    let Some(rolls) = rolls else {
        let begins = words.take("rolls");
        *rolls = begins.then(|| Box::new(Rolls::basic()));
        return Ok(begins);
    };
    let update = &mut rolls.update;
    let times = [
        ("delay", &mut update.delay_ms),
        ("monitor", &mut update.monitor_ms),
        ("deadline", &mut update.index_deadline_ms),
    ];
    for (name, millis) in times {
        if let Some(mut value) = words.take_option(name) {
            *millis = u64::try_from(value.duration()?.as_millis()).unwrap_or(u64::MAX);
            return Ok(true);
        }
    }
    if let Some(mut value) = words.take_option("parallelism") {
        update.parallelism = value.read("how many, as 2 or 25%", |word| match word.strip_suffix('%') {
            Some(_) => Parallelism::percentage(word),
            None => word.parse().ok().map(Parallelism::Count),
        })?;
    } else if let Some(mut value) = words.take_option("order") {
        update.order = named(&ORDERS, &mut value)?;
    } else if let Some(mut value) = words.take_option("on-failure") {
        update.failure_action = named(&FAILURES, &mut value)?;
    } else if let Some(mut value) = words.take_option("ratio") {
        let ratio = |word: &str| Ratio::try_from(word.parse::<f64>().ok()?).ok();
        update.max_failure_ratio = value.read("a number from 0 to 1", ratio)?;
    } else if let Some(mut value) = words.take_option("pause-after") {
        update.pause_after = Some(value.number()?);
    } else if let Some(mut value) = words.take_option("min-running") {
        rolls.min_running = Some(value.number()?);
    } else if let Some(mut value) = words.take_option("history") {
        rolls.history = Some(value.number()?);
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Writes the parts of a restart policy that differ from the default.
pub(super) fn write_restart(f: &mut fmt::Formatter<'_>, restart: &RestartPolicy) -> fmt::Result {
    let RestartPolicy { condition, delay_ms, max_attempts, window_ms } = restart;
    let time = |millis: u32| Time(Duration::from_millis(millis.into()));
    if *condition != RestartCondition::default() {
        write!(f, " condition={}", name_in(&CONDITIONS, condition))?;
    }
    delay_ms.map_or(Ok(()), |delay| write!(f, " delay={}", time(delay)))?;
    max_attempts.map_or(Ok(()), |most| write!(f, " attempts={most}"))?;
    if *window_ms == 0 { Ok(()) } else { write!(f, " window={}", time(*window_ms)) }
}

/// Parses an option of a restart policy.
pub(super) fn read_restart(restart: &mut RestartPolicy, words: &mut Words) -> Result<bool, Bad> {
    let millis = |value: &mut Words| -> Result<u32, Bad> {
        Ok(u32::try_from(value.duration()?.as_millis()).unwrap_or(u32::MAX))
    };
    if let Some(mut value) = words.take_option("condition") {
        restart.condition = named(&CONDITIONS, &mut value)?;
    } else if let Some(mut value) = words.take_option("delay") {
        restart.delay_ms = Some(millis(&mut value)?);
    } else if let Some(mut value) = words.take_option("attempts") {
        restart.max_attempts = Some(value.number()?);
    } else if let Some(mut value) = words.take_option("window") {
        restart.window_ms = millis(&mut value)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}
