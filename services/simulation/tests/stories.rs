//! Stories in the simulation: their expectations are met, and no invariant is violated.
//!
//! `MUSTER_STORIES=crashes` selects stories whose names contain this text.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use simulation::run_plan;
use simulation::story::{self, Story};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stories")
}

/// Returns the names and the texts of the selected stories.
fn texts() -> Vec<(String, String)> {
    let only = std::env::var("MUSTER_STORIES").unwrap_or_default();
    let mut texts = story::texts(&folder()).expect("the stories can be read");
    texts.retain(|(name, _)| name.contains(&only));
    texts
}

/// Returns the problem of a story, or `None`.
fn problem(name: &str, text: &str) -> Option<String> {
    let story: Story = match text.parse() {
        Ok(story) => story,
        Err(bad) => return Some(format!("tests/stories/{name}.txt, {bad}")),
    };
    if story.about.len() < 2 {
        return Some(format!("tests/stories/{name}.txt has no comment with a section and a sentence"));
    }
    let outcome = run_plan(&story.plan);
    let violations: Vec<String> =
        outcome.violations.iter().map(|violation| format!("  {violation}")).collect();
    let again = format!("run it again with: cargo run -p lab -- simulate tests/stories/{name}.txt");
    (!violations.is_empty()).then(|| format!("{name}:\n{}\n{again}", violations.join("\n")))
}

#[test]
fn stories_meet_their_expectations() {
    let texts = texts();
    assert!(!texts.is_empty(), "no stories in {}", folder().display());
    let next = AtomicUsize::new(0);
    let problems = Mutex::new(vec![]);
    let work = || {
        while let Some((name, text)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            problems.lock().expect("no thread panics").extend(problem(name, text));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let mut problems = problems.into_inner().expect("no thread panics");
    problems.sort();
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// Each arrow of the diagrams of *Nomad evaluation states* leads to a state that a story expects.
#[test]
fn stories_cover_every_arrow_of_evaluation_diagrams() {
    const ARROWS: &str = include_str!("../../../tests/conformance/evaluation_arrows.csv");
    let all: Vec<(String, Story)> = story::texts(&folder())
        .expect("the stories can be read")
        .into_iter()
        .map(|(name, text)| (name, text.parse().expect("a story")))
        .collect();
    let expected = |name: &str, what: &str| {
        let (_, story) = all.iter().find(|(known, _)| known == name)?;
        story.plan.expects.iter().find(|(_, expect)| expect.what.to_string() == what)
    };
    let mut uncovered = vec![];
    for line in ARROWS.lines().skip(1) {
        let fields: Vec<&str> = line.splitn(6, ',').collect();
        let [_, _, _, label, name, what] = fields[..] else { panic!("{line}: it has not six fields") };
        // No story makes convergence find work.
        if label != "scheduled" && expected(name, what).is_none() {
            uncovered.push(line);
        }
    }
    assert!(uncovered.is_empty(), "no story covers these arrows:\n{}", uncovered.join("\n"));
}

#[test]
fn unmet_expectations_are_reported() {
    let text = "at 3s desire web x2\nat 10s expect web: 2 RUNNING\nat 11s expect web: 3 RUNNING within 5s\n\
                at 12s expect web gone until 14s\nat 13s remove other -> done\n";
    let outcome = run_plan(&text.parse().expect("a plan"));
    let details: Vec<&str> = outcome.violations.iter().map(|violation| violation.detail.as_str()).collect();
    let wanted = [
        "at 12s expect web gone until 14s: at 12s 2 of web are desired",
        "remove other -> done: it is refused: ResourceNotFound",
        "at 11s expect web: 3 RUNNING within 5s: at 16s web/0 is RUNNING of web-64 on c1; web/1 is RUNNING of web-64 on c2",
    ];
    assert_eq!(details, wanted);
}
