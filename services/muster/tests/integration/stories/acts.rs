//! Acts of a story: commands of users, and faults. Commands are sent by the command line, and faults are
//! caused by signals.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::Signal;
use schemas::names::Domain;
use schemas::process::RolloutControl;
use schemas::refusal::Code;
use schemas::spec::PeriodicAction;
use serde_json::json;
use simulation::act::{Act, Answer};
use simulation::story::newest;
use simulation::work::{self, Ask};
use simulation::{layout::cell_id, shape::Node};

use super::stage::{Delayed, Stage};
use super::work::spec;
use crate::support::containers::{kill_all, remove_groups, signal};
use crate::support::eventually;
use crate::support::program::CommandOutput;
use crate::support::test_dir::ensure;

/// Time between the exit of an evacuated cell's rep and its restart.
const REP_RESTART_DELAY: Duration = Duration::from_secs(12);
/// Duration of a power cut of the server.
const POWER_CUT: Duration = Duration::from_secs(2);

impl Stage {
    /// Carries out an act of a story.
    pub(super) fn act(&mut self, at: Duration, act: &Act) {
        self.cluster
            .place
            .print_event(&format!("[{}] {act}", std::thread::current().name().unwrap_or("a story")));
        match act {
            Act::Ask { domain, ask, answer, .. } => self.send_request(domain, ask, *answer, act),
            Act::Evacuate(cell) => {
                self.cluster.muster().ok(&format!("cell evacuate {}", cell_id(*cell)));
                self.evacuating.insert(*cell);
            }
            Act::Cordon(cell) => {
                self.cluster.muster().ok(&format!("cell cordon {}", cell_id(*cell)));
            }
            Act::Uncordon(cell) => {
                self.cluster.muster().ok(&format!("cell uncordon {}", cell_id(*cell)));
                self.evacuating.remove(cell);
            }
            Act::Forget(cell) => {
                self.cluster.muster().ok(&format!("cell delete {}", cell_id(*cell)));
            }
            Act::Preemption(on) => {
                let word = if *on { "on" } else { "off" };
                self.cluster.muster().ok(&format!("cluster preemption {word}"));
            }
            Act::Reshard(shards) => {
                self.cluster.muster().ok(&format!("cluster shards {shards}"));
            }
            Act::Retry(of, trigger) => {
                let seen = self.facts().unwrap().evaluations;
                let row =
                    newest(seen.iter(), of.as_str(), *trigger).unwrap_or_else(|| panic!("{act}: {seen:?}"));
                self.cluster.muster().ok(&format!("evaluation retry {}", row.evaluation.id));
            }
            Act::Kill { node, away } => {
                self.kill(*node);
                self.later.push((at + *away, Delayed::Start(*node)));
            }
            Act::Lose { cell, away } => {
                self.kill(Node::Rep(*cell));
                self.wipe(*cell);
                self.later.extend(away.map(|away| (at + away, Delayed::Start(Node::Rep(*cell)))));
            }
            Act::Pause { node, time } => {
                self.pause(*node, *time);
            }
            Act::Malformed => {
                let mut plain = self.cluster.plain("vandal");
                for subject in ["muster.event.lrp.0", "muster.event.task.1"] {
                    plain.try_publish(subject, b"malformed");
                }
                // When the server answers this later request, it has already received both messages.
                plain.request("muster.query.client.shop.me.cluster.show", b"{}");
            }
            Act::PowerCut { unsynced: 0 } => {
                self.cluster.server.kill9();
                self.later.push((at + POWER_CUT, Delayed::Power));
            }
            Act::CutOff { .. }
            | Act::Part { .. }
            | Act::Lag { .. }
            | Act::Dark(_)
            | Act::NoHeartbeats(_)
            | Act::Unheard { .. }
            | Act::Clock { .. }
            | Act::Slow { .. }
            | Act::Sick { .. }
            | Act::Full { .. }
            | Act::PowerCut { .. } => {
                panic!("`{act}` needs the simulator: add a line `only simulated: REASON` to the story")
            }
        }
    }

    /// Carries out the delayed consequences that are due.
    pub(super) fn apply_due(&mut self, now: Duration) {
        for (_, then) in self.later.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            match then {
                Delayed::Start(node) if self.cluster.services.contains_key(&node.to_string()) => {}
                Delayed::Start(node) => self.start(node),
                Delayed::Power => self.cluster.server.restart(),
            }
        }
        for cell in self.evacuating.clone() {
            let name = Node::Rep(cell).to_string();
            if self.cluster.services.get_mut(&name).is_none_or(|service| service.has_exited()) {
                self.cluster.services.remove(&name);
                self.evacuating.remove(&cell);
                self.later.push((now + REP_RESTART_DELAY, Delayed::Start(Node::Rep(cell))));
            }
        }
    }

    fn kill(&mut self, node: Node) {
        if self.cluster.services.contains_key(&node.to_string()) {
            self.cluster.kill9(&node.to_string());
        }
    }

    /// Suspends a service for `time` in real time. The suspension ends even if the story time stops.
    fn pause(&self, node: Node, time: Duration) {
        if let Some(service) = self.cluster.services.get(&node.to_string()) {
            let pid = service.pid();
            signal(pid, Signal::STOP);
            std::thread::spawn(move || {
                std::thread::sleep(time);
                signal(pid, Signal::CONT);
            });
        }
    }

    /// Kills everything that runs on a cell and deletes its folder, except for the rep's id. The machine then
    /// returns with the same identity.
    fn wipe(&self, cell: usize) {
        let folder = self.cluster.place.path().join(Node::Rep(cell).to_string());
        eventually("every process of the lost machine has ended", || {
            ensure(kill_all(&folder), || "processes are left".into())
        });
        remove_groups(&folder);
        let id = std::fs::read(folder.join("rep-id"));
        std::fs::remove_dir_all(&folder).unwrap();
        if let Ok(id) = id {
            std::fs::create_dir(&folder).unwrap();
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
            std::fs::write(folder.join("rep-id"), id).unwrap();
        }
    }

    /// Sends a client's request and checks the answer. Requests of the workload's domain use the command
    /// line. Requests of other domains use a plain NATS client.
    fn send_request(&self, domain: &Domain, ask: &Ask, answer: Option<Answer>, act: &Act) {
        // A desire of an existing process must be refused, but `muster apply` would update the process.
        let is_refused_desire =
            answer.is_some() && matches!(ask, Ask::Desire { .. } | Ask::DesireGlobal { .. });
        let by_command_line = *domain == work::domain() && !is_refused_desire;
        let (told, said) =
            if by_command_line { self.command(domain, ask) } else { self.request(domain, ask) };
        assert_eq!(told, Some(answer.unwrap_or(Answer::Done)), "{act}: {said}");
    }

    /// Sends a request in the same way as any NATS client.
    fn request(&self, domain: &Domain, ask: &Ask) -> (Option<Answer>, String) {
        let (noun, verb) = ask.command(domain).noun_and_verb();
        let subject = format!("muster.client.{domain}.stranger.{noun}.{verb}");
        let body = json!({"body": spec(ask, domain, &self.owner.url)});
        let told = self.cluster.plain("stranger").request_json(&subject, &body);
        let refused = serde_json::from_value(told["refused"]["code"].clone()).map(Answer::Refused);
        let answer = refused.ok().or((!told["ok"].is_null()).then_some(Answer::Done));
        (answer, told.to_string())
    }

    fn command(&self, domain: &Domain, ask: &Ask) -> (Option<Answer>, String) {
        let file = || {
            let text = super::work::file(ask, domain, &self.owner.url).to_string();
            self.cluster.place.write_file("desired.json", text).display().to_string()
        };
        let line = match ask {
            Ask::Desire { .. } | Ask::DesireGlobal { .. } => format!("apply {} --detach", file()),
            Ask::Scale { process, instances } => format!("lrp scale {process}={instances} --detach"),
            Ask::Rank { process, priority } => format!("lrp update {process} --priority {priority} --detach"),
            Ask::Describe { process, text } => format!("lrp update {process} --annotation {text} --detach"),
            // To change definitions and policies, the command line needs a file that specifies the whole
            // process.
            Ask::Deploy { .. } | Ask::Policy { .. } => return self.request(domain, ask),
            Ask::Activate(process, definition) => format!("lrp activate {process} {definition} --detach"),
            Ask::Restart(process) => format!("lrp restart {process} --detach"),
            Ask::Steer(process, RolloutControl::Pause) => format!("lrp rollout pause {process}"),
            Ask::Steer(process, RolloutControl::Resume) => format!("lrp rollout resume {process} --detach"),
            Ask::Steer(process, RolloutControl::RollBack) => {
                format!("lrp rollback {process} --detach")
            }
            Ask::Remove(process) => format!("lrp delete {process} --detach"),
            Ask::Retire(process, index) => format!("instance stop {process}/{index}"),
            Ask::Enter(process, index) => format!("instance exec --no-stdin {process}/{index} -- true"),
            Ask::Run { .. } => format!("run --detach {}", file()),
            Ask::Cancel(task) => format!("task cancel {task}"),
            Ask::Resolve(task) => format!("task resolve {task}"),
            Ask::Periodic { .. } => format!("apply {}", file()),
            Ask::OfPeriodic(periodic, PeriodicAction::Pause) => format!("periodic pause {periodic}"),
            Ask::OfPeriodic(periodic, PeriodicAction::Resume) => format!("periodic resume {periodic}"),
            Ask::OfPeriodic(periodic, PeriodicAction::Launch) => format!("periodic launch {periodic}"),
            Ask::OfPeriodic(periodic, PeriodicAction::Remove) => format!("periodic delete {periodic}"),
            Ask::Parameterised { .. } => format!("apply {}", file()),
            Ask::Dispatch { parameterised, key, payload, colour, priority } => {
                let option = |name: &str, value: Option<String>| {
                    value.map(|value| format!(" --{name} {value}")).unwrap_or_default()
                };
                let payload = payload
                    .as_ref()
                    .map(|text| self.cluster.place.write_file("payload", text.clone()).display().to_string());
                format!(
                    "parameterised dispatch {parameterised}{}{}{}{}",
                    option("key", key.as_ref().map(ToString::to_string)),
                    option("payload", payload),
                    option("param", colour.as_ref().map(|colour| format!("colour={colour}"))),
                    option("priority", priority.map(|priority| priority.to_string())),
                )
            }
            Ask::Withdraw(parameterised, number) => {
                format!("parameterised cancel {parameterised} {number}")
            }
            Ask::RemoveParameterised(parameterised) => format!("parameterised delete {parameterised}"),
            Ask::Fresh(None) => format!("domain refresh {domain}"),
            Ask::Fresh(Some(time)) => format!("domain refresh {domain} --ttl {}s", time.as_secs().max(1)),
        };
        let line = format!("{line} --domain {domain} --timeout 30s -o json");
        let said = self.cluster.muster().run(&line.split_whitespace().collect::<Vec<_>>());
        let answer = if said.code == 0 { Some(Answer::Done) } else { refused(&said).map(Answer::Refused) };
        (answer, format!("{said:?}"))
    }
}

/// Returns the code of the refusal in the JSON output.
fn refused(said: &CommandOutput) -> Option<Code> {
    let line = said.err.lines().last()?;
    let told: serde_json::Value = serde_json::from_str(line).ok()?;
    serde_json::from_value(told["code"].clone()).ok()
}
