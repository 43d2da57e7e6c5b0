//! `muster-lab simulate`: runs a story (a list of acts and expectations) on the simulator and prints its events.
//! The story comes from a file or is generated from a seed. The simulator uses virtual time and needs no
//! server.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use cli::rows;
use cli_base::failure::Failure;
use cli_base::file;
use cli_base::options::Global;
use cli_base::output::{self, Output, RenderOptions};
use cli_base::table::Table;
use runtime::exit::Exit;
use schemas::entry::Event;
use schemas::{Decision, Entry};
use serde_json::{Value, json};
use simulation::requests::Response;
use simulation::shape::START;
use simulation::story::{Facts, RunEvent, Story, Time};
use simulation::{Outcome, Plan, run_with};
use text::describe::sentence;
use text::words::{number, one_line};

/// Simulate a whole cluster: run a story from a file, or a story generated from a seed, and print its events
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("plan").required(true))]
pub(crate) struct SimulateArgs {
    /// Story file, such as those in tests/stories; - is standard input
    #[arg(group = "plan")]
    story: Option<PathBuf>,
    /// Run a minute of requests and faults that are generated from this seed
    #[arg(long, group = "plan", value_name = "N", value_parser = number(0..=u64::MAX))]
    seed: Option<u64>,
    /// Show only the last lines of the output
    #[arg(long, value_name = "N", value_parser = number(0..=usize::MAX))]
    last: Option<usize>,
    /// Print the story instead of running it
    #[arg(long)]
    print: bool,
}

/// Runs the simulation. Returns [`Exit::Done`] if all expectations and invariants held.
pub(crate) fn run(args: &SimulateArgs, global: &Global) -> Result<Exit, Failure> {
    simulate(args, Output::new(global)).map(|held| if held { Exit::Done } else { Exit::Failed })
}

fn simulate(args: &SimulateArgs, output: Output) -> Result<bool, Failure> {
    let story = match (&args.story, args.seed) {
        (Some(path), _) => read_story(path)?,
        (None, seed) => {
            let seed = seed.unwrap_or_default();
            let about = vec![format!("Generated from seed {seed}")];
            Story { about, only_simulated: None, plan: Plan::drawn(seed) }
        }
    };
    if args.print {
        return output::write_text(&story.to_string()).map(|()| true);
    }
    if output.is_human_readable() {
        output::write_line(&story.about.join("\n"))?;
    }
    let mut shown = Display { output, last: args.last, lines: VecDeque::new(), trouble: None, end: None };
    let outcome = run_with(&story.plan, &mut |at, seen| shown.observe(at, seen));
    shown.finish(&story.plan, &outcome)?;
    Ok(outcome.violations.is_empty())
}

fn read_story(path: &Path) -> Result<Story, Failure> {
    let text = file::read_text(path).map_err(|failure| Failure { exit: Exit::Usage, ..failure })?;
    text.parse().map_err(|bad| {
        Failure::usage(format!("{}, {bad}", path.display()))
            .advise("format: tests/stories/README.md; example: muster-lab simulate --seed 1 --print")
    })
}

/// Output of a simulation so far.
struct Display {
    output: Output,
    last: Option<usize>,
    /// Last lines of the output. Used if only the last lines are shown.
    lines: VecDeque<String>,
    /// Reason why no more output can be written.
    trouble: Option<Failure>,
    /// State at the start of the final period without faults.
    end: Option<Facts>,
}

impl Display {
    fn observe(&mut self, at: Duration, seen: RunEvent<'_>) {
        if let RunEvent::Peace(facts) = seen {
            self.end = Some(facts.clone());
        }
        let lines = if self.output.is_human_readable() {
            text_lines(seen).into_iter().map(|line| format!("{:>9.3}s  {line}", at.as_secs_f64())).collect()
        } else {
            json_values(at, seen).iter().map(Value::to_string).collect::<Vec<_>>()
        };
        for line in lines {
            self.show(line);
        }
    }

    fn show(&mut self, line: String) {
        match self.last {
            Some(last) => {
                self.lines.push_back(line);
                self.lines.drain(..self.lines.len().saturating_sub(last));
            }
            None if self.trouble.is_none() => self.trouble = output::write_line(&line).err(),
            None => {}
        }
    }

    /// Prints the final state and the result of the simulation.
    fn finish(self, plan: &Plan, outcome: &Outcome) -> Result<(), Failure> {
        self.trouble.map_or(Ok(()), Err)?;
        self.lines.iter().try_for_each(|line| output::write_line(line))?;
        let violations = outcome.violations.iter().map(|violation| format!("VIOLATED  {violation}"));
        let violations: Vec<String> = violations.map(|line| one_line(&line)).collect();
        if !self.output.is_human_readable() {
            let how = outcome.violations.iter().map(ToString::to_string).collect::<Vec<_>>();
            let end = json!({"violations": how, "steps": outcome.steps, "entries": outcome.entries});
            return output::write_line(&json!({ "end": end }).to_string());
        }
        let look = RenderOptions { now: START + plan.peace_at, ..self.output.look() };
        let facts = self.end.unwrap_or_default();
        let render = |title: &str, table: Table, empty: bool| {
            if empty { String::new() } else { format!("\n{title}\n{}", table.render(look.colour)) }
        };
        output::write_line(&render(
            "Instances",
            rows::instances(&facts.instances, look),
            facts.instances.is_empty(),
        ))?;
        output::write_line(&render("Tasks", rows::tasks(&facts.tasks, look), facts.tasks.is_empty()))?;
        output::write_line(&render("Cells", rows::cells(&facts.cells, look), facts.cells.is_empty()))?;
        let (steps, entries) = (outcome.steps, outcome.entries);
        let whole = Time(Duration::from_secs(outcome.simulated.as_secs()));
        output::write_line(&format!(
            "\n{steps} steps, {entries} entries, {whole} including the final period without faults"
        ))?;
        let end =
            if violations.is_empty() { "All invariants held.".to_owned() } else { violations.join("\n") };
        output::write_line(&end)
    }
}

/// Formats an observation as text.
fn text_lines(seen: RunEvent<'_>) -> Vec<String> {
    match seen {
        RunEvent::Act(act) => vec![format!("-- {act}")],
        RunEvent::Answered(act, Response::Refused(code)) => vec![format!("   {act}: refused: {code}")],
        RunEvent::Answered(_, Response::Done(_) | Response::Unanswered) => vec![],
        RunEvent::Stored(position, bytes) => match Entry::decode(bytes) {
            Ok(entry) => {
                let told = entry.decisions.iter().flat_map(describe_decision);
                told.map(|what| format!("{position:>5}  {what}")).collect()
            }
            Err(error) => vec![format!("{position:>5}  unknown entry: {}", one_line(&error.to_string()))],
        },
        RunEvent::Met(expect) => vec![format!("ok {expect}")],
        RunEvent::Violation(violation) => vec![format!("VIOLATED {}", one_line(&violation.detail))],
        RunEvent::Peace(_) => vec!["-- faults end".into()],
    }
}

/// Formats the events of a decision, except those of evaluations.
fn describe_decision(decision: &Decision) -> Vec<String> {
    let matters = |event: &&Event| !matches!(event, Event::Evaluation(_));
    decision.events.iter().filter(matters).map(|event| sentence(decision, event, false)).collect()
}

/// Formats an observation as JSON.
fn json_values(at: Duration, seen: RunEvent<'_>) -> Vec<Value> {
    let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    let value = match seen {
        RunEvent::Act(act) => json!({"at_ms": at, "act": act.to_string()}),
        RunEvent::Answered(act, told) => {
            let answer = match told {
                Response::Done(_) => "done".to_owned(),
                Response::Refused(code) => code.to_string(),
                Response::Unanswered => "nothing".to_owned(),
            };
            json!({"at_ms": at, "act": act.to_string(), "answer": answer})
        }
        RunEvent::Stored(position, bytes) => {
            let entry: Value = serde_json::from_slice(bytes).unwrap_or_default();
            json!({"at_ms": at, "position": position, "entry": entry})
        }
        RunEvent::Met(expect) => json!({"at_ms": at, "kept": expect.to_string()}),
        RunEvent::Violation(violation) => json!({"at_ms": at, "violation": violation.to_string()}),
        RunEvent::Peace(facts) => {
            json!({"at_ms": at, "instances": facts.instances, "tasks": facts.tasks, "cells": facts.cells})
        }
    };
    vec![value]
}
