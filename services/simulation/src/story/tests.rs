use crate::plan::Plan;
use crate::story::Story;

#[test]
fn plan_round_trips_through_text() {
    for seed in 0..500 {
        let mut plan = Plan::drawn(seed);
        plan.shape.synced = seed % 3 != 0;
        let text = plan.to_string();
        let read: Plan = text.parse().unwrap_or_else(|bad| panic!("seed {seed}: {bad}\n{text}"));
        assert_eq!(read, plan, "seed {seed}\n{text}");
    }
}

const EVERYTHING: &str = r#"# Crashes
# Everything that can be written.
only simulated: because
seed 7
cells 4
bbss 3
auctioneers 1
tagged
narrow
evacuation 10s
self-test 1m
journal of three
journal without sync
faults dropped 20, delay_ms 300
at 0s desire web x3 create=2s start=0s run=3s exit=1 memory=900 stack=linux tag priority=80 timeout=2.4s
at 0s desire web x1 ignores-term hangs fails domain=strangers -> refused Forbidden
at 200ms run task job1 result="a \"b\"\n\\" owner=moody queue=30s -> done
at 1s scale web x0
at 1s priority web 100
at 1s desire agent everywhere stack=linux asks=rack
at 1s expect web: 3 RUNNING
at 1s expect web: 2 RUNNING, 1 CRASHED on c4 until 2m
at 1s deploy web v2 memory=128
at 1s deploy web v3 run=1s exit=1 rolls parallelism=2 delay=500ms monitor=2s deadline=20s order=stop-first on-failure=rollback ratio=0.5 pause-after=1 min-running=2 timeout=5s
at 1s deploy web v4 rolls parallelism=25%
at 1s activate web v2
at 1s restart web
at 1s rollout pause web
at 1s rollout resume web
at 1s rollout back web -> refused InvalidStateTransition
at 1s remove web domain=strangers
at 1s retire web/1
at 1s exec web/0
at 1s cancel job1 -> refused ResourceNotFound
at 1s resolve job1
at 1s domain apps fresh for ever
at 1s domain strangers fresh for 20s
at 2s evacuate c1
at 2s kill bbs-1 for 2s
at 2s lose cell c2
at 2s lose cell c2 for 1ms
at 2s cut off rep-c1 for 10s
at 2s cut off auctioneer-1 for 10s entirely unnoticed
at 2s part bbs-1 rep-c1 from bbs-2 for 10s
at 2s part nobody from bbs-2 for 10s one way
at 2s pause bbs-3 for 1s
at 2s lag bbs-3 for 1s
at 2s journal dark for 6s
at 2s no heartbeats for 20s
at 2s c1 unheard for 20s
at 2s clock of bbs-1 +30s
at 2s clock of rep-c4 -1.5s
at 2s slow c1 for 30s
at 2s sick c1 for 1m
at 2s full c1 for 1m
at 2s malformed entry
at 2s power cut
at 2s power cut losing 3
at 3s expect web/0 RUNNING on c1 crashes 2 within 10s
at 3s expect web/0 CLAIMED not on c1
at 3s expect web/0 RUNNING of v2 on c1 crashes 2 within 10s
at 3s expect web/0 CRASHED of v2 "Exited with status 1"
at 3s expect web: 2 RUNNING of v2 on c1
at 3s expect web healthy v2
at 3s expect web healthy none
at 3s expect web definitions v1, v2
at 3s expect web rollout rollback_completed within 5s
at 3s expect web/0 UNCLAIMED "insufficient resources"
at 3s expect web/0 CRASHED "Exited with status 1" crashes 3
at 3s expect web/0 ended crashed
at 3s expect web/0 ended 2 times until 8s
at 3s expect web/0 ended stopped for rollout-failed within 1m
at 3s expect web/0 gone
at 3s expect web gone
at 3s expect web/0 evacuating on c1
at 3s expect web/0 not evacuating
at 3s expect job1 PENDING "found no compatible cells"
at 3s expect job1 RUNNING on c1
at 3s expect job1 COMPLETED failed "cancelled" on c1
at 3s expect job1 COMPLETED ""
at 3s expect job1 RESOLVING
at 3s expect cell c1 absent
at 3s expect owner of job1 told
at 3s expect owner of job1 not told
peace at 2m
"#;

#[test]
fn story_round_trips_through_text() {
    let story: Story = EVERYTHING.parse().unwrap_or_else(|bad| panic!("{bad}"));
    // At one time, acts come before expectations.
    let again: Story = story.to_string().parse().unwrap();
    assert_eq!(again, story);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&story.to_string()), sorted(EVERYTHING));
    assert_eq!(story.about, ["Crashes", "Everything that can be written."]);
}

#[test]
fn bad_line_error_names_expected_words() {
    let cases = [
        ("at 1s destroy web", ", expected something that happens"),
        (
            "\n\nat soon desire web x1",
            "line 3: found `soon` behind `at`, expected a time, as 200ms, 12s or 5m",
        ),
        ("at 1s desire web", "line 1: found the end of the line behind `web`, expected how many, as x3"),
        ("at 1s desire web x1 colour=red", "line 1: found `colour=red` behind `x1`, expected nothing more"),
        ("at 1s lose cell c4", "line 1: found `c4` behind `cell`, expected a cell, c1 to c3"),
        ("at 1s kill bbs-9 for 1s", ", expected a service, bbs-1 to bbs-2"),
        ("at 1s kill bbs-1", "line 1: found the end of the line behind `bbs-1`, expected `for`"),
        ("at 2s malformed entry\nat 1s malformed entry", "line 2: 1s is earlier than the line before, 2s"),
        ("at 1s malformed entry\ncells 3", ", expected `at` and a time: the head of a story is over"),
        ("at 5s expect web gone until 2s", "line 1: until 2s is earlier than at 5s"),
        (
            "at 5s expect web gone within 9s\npeace at 6s",
            "line 1: this line lasts beyond the time of peace, 6s",
        ),
        ("at 5s expect web/0 HAPPY", ", expected a state: UNCLAIMED, CLAIMED, RUNNING, CRASHED"),
        (
            "at 5s expect web/0 RUNNING \"why\"",
            "line 1: found `\"why\"` behind `RUNNING`, expected nothing more",
        ),
        ("at 5s remove web -> refused Nonsense", ", expected the code of a refusal"),
        ("at 5s remove web domain=other", "line 1: found `other`, expected a domain, apps or strangers"),
        ("faults dropped 3, lost 4", ", expected a kind of fault: dropped, doubled"),
        ("cells 0", ", expected a number from 1 to 64"),
        ("cell 3", ", expected `at` and a time, or a word of the head"),
        ("at 1s run task job1 result=\"x", "line 1: a text in quotes has no end"),
    ];
    for (text, wanted) in cases {
        let bad = text.parse::<Story>().expect_err(text).to_string();
        assert!(bad.contains(wanted), "{text}\n  {bad}\n  {wanted}");
    }
}
