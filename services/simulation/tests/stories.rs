//! Every story, run on the simulator: what it expects is seen, and no promise is broken.
//!
//! `MUSTER_STORIES=crashes` runs only those whose names contain that.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use simulation::run_plan;
use simulation::story::{self, Story};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stories")
}

/// The names and the texts of all stories, in order.
fn texts() -> Vec<(String, String)> {
    let only = std::env::var("MUSTER_STORIES").unwrap_or_default();
    let mut texts = story::texts(&folder()).expect("the stories can be read");
    texts.retain(|(name, _)| name.contains(&only));
    texts
}

/// What is wrong with a story; nothing if all is well.
fn trouble(name: &str, text: &str) -> Option<String> {
    let story: Story = match text.parse() {
        Ok(story) => story,
        Err(bad) => return Some(format!("tests/stories/{name}.txt, {bad}")),
    };
    if story.about.len() < 2 {
        return Some(format!("tests/stories/{name}.txt names no section and no promise"));
    }
    let outcome = run_plan(&story.plan);
    let broken: Vec<String> = outcome.violations.iter().map(|broken| format!("  {broken}")).collect();
    let again = format!("see it with: cargo run -p muster -- simulate tests/stories/{name}.txt");
    (!broken.is_empty()).then(|| format!("{name}:\n{}\n{again}", broken.join("\n")))
}

#[test]
fn every_story_comes_out_as_it_says() {
    let texts = texts();
    assert!(!texts.is_empty(), "there are no stories in {}", folder().display());
    let next = AtomicUsize::new(0);
    let troubles = Mutex::new(vec![]);
    let work = || {
        while let Some((name, text)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            troubles.lock().expect("no thread panics").extend(trouble(name, text));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let mut troubles = troubles.into_inner().expect("no thread panics");
    troubles.sort();
    assert!(troubles.is_empty(), "{}", troubles.join("\n\n"));
}

/// Both diagrams of *Nomad evaluation states*, arrow by arrow: a story expects what each leads to.
#[test]
fn every_arrow_of_the_diagrams_of_evaluations_is_told() {
    const ARROWS: &str = include_str!("../../../tests/conformance/evaluation_arrows.csv");
    let all: Vec<(String, Story)> = story::texts(&folder())
        .expect("the stories can be read")
        .into_iter()
        .map(|(name, text)| (name, text.parse().expect("a story")))
        .collect();
    let told = |name: &str, what: &str| {
        let (_, story) = all.iter().find(|(known, _)| known == name)?;
        story.plan.expects.iter().find(|(_, expect)| expect.what.to_string() == what)
    };
    let mut untold = vec![];
    for line in ARROWS.lines().skip(1) {
        let fields: Vec<&str> = line.splitn(6, ',').collect();
        let [_, _, _, label, name, what] = fields[..] else { panic!("{line}: it has not six fields") };
        // A story can't make convergence find work: nothing does.
        if label != "scheduled" && told(name, what).is_none() {
            untold.push(line);
        }
    }
    assert!(untold.is_empty(), "no story tells of these arrows:\n{}", untold.join("\n"));
}

#[test]
fn a_story_that_expects_too_much_fails() {
    let text = "at 3s desire web x2\nat 10s expect web: 2 RUNNING\nat 11s expect web: 3 RUNNING within 5s\n\
                at 12s expect web gone until 14s\nat 13s remove other -> done\n";
    let outcome = run_plan(&text.parse().expect("a plan"));
    let broken: Vec<&str> = outcome.violations.iter().map(|violation| violation.detail.as_str()).collect();
    let wanted = [
        "at 12s expect web gone until 14s: at 12s 2 of web are desired",
        "remove other -> done: it is refused: ResourceNotFound",
        "at 11s expect web: 3 RUNNING within 5s: at 16s web/0 is RUNNING of web-64 on c1; web/1 is RUNNING of web-64 on c2",
    ];
    assert_eq!(broken, wanted);
}
