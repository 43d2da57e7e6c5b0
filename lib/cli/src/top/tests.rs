//! Tests of the page: its rendering on terminals of several sizes, and its keys.

use std::time::Duration;

use cli_base::output::RenderOptions;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use schemas::Timestamp;
use schemas::cluster::Leader;
use schemas::names::{CellId, ClusterId, ProcessGuid, ServiceId};
use schemas::query::{
    ClusterRow, Finding, FindingCode, Health, InstanceRow, InstanceState, LrpRow, QuarantinedEntries,
    Services, StatusRow,
};
use schemas::resources::Resources;
use uuid::Uuid;

use super::model::{EventLine, Input, Model, OpenedItem, Pane, PollResult, Request};
use super::*;
use crate::keys::Key;
use crate::rows::tests::{example_cell, process, rolling, running};

const LOOK: RenderOptions =
    RenderOptions { now: Timestamp::from_millis(10_000_000), full_ids: false, colour: false };

fn leader(id: &str) -> Option<Leader> {
    Some(Leader { id: ServiceId::new(id).unwrap(), term: 1, since: Timestamp(0) })
}

fn status() -> StatusRow {
    let instances =
        InstanceState::ALL.map(|state| (state, if state == InstanceState::Running { 5 } else { 1 }));
    let cluster = ClusterRow {
        cluster_id: ClusterId(Uuid::from_u128(0xc1)),
        shards: 32,
        format: 1,
        preemption: false,
        bbs: leader("bbs-1"),
        auctioneer: leader("auctioneer-1"),
        services: Services::default(),
        problems: vec![],
        cells: [].into(),
        zones: vec![],
        lrps: 3,
        instances: instances.into(),
        tasks: [].into(),
        found_by_convergence: 0,
        refused_transitions: 0,
        durability: String::new(),
        quarantined_entries: QuarantinedEntries::default(),
    };
    let crashed = Finding::new(FindingCode::InstancesCrashed, "1 instance crashed".to_owned());
    StatusRow {
        health: Health::Degraded,
        findings: vec![crashed],
        cluster,
        instances_desired: 7,
        instances_unplaced: 1,
        tasks_unplaced: 0,
        evaluations_blocked: 0,
        callbacks_retried: 0,
        worst: vec![InstanceRow { index: 2, ..running(2) }],
        starting: vec![],
        cells: vec![],
        log: None,
    }
}

fn lrp(name: &str, row: LrpRow) -> LrpRow {
    LrpRow { process_guid: ProcessGuid::new(name).unwrap(), ..row }
}

fn seen() -> Box<PollResult> {
    let half = Resources { memory_mb: 512, disk_mb: 0, containers: 125, ports: 0 };
    let total = Resources { memory_mb: 1_024, disk_mb: 2_048, containers: 250, ports: 100 };
    let mut one = example_cell();
    (one.presence.total, one.used) = (total, half);
    let mut two = one.clone();
    two.cell_id = CellId::new("c2").unwrap();
    two.used.memory_mb = 1_000;
    let well = LrpRow { instances: 3, running: 3, claimed: 0, unclaimed: 0, crashed: 0, ..process() };
    let bad = LrpRow { instances: 4, running: 2, crashed: 1, ..well.clone() };
    Box::new(PollResult {
        at: LOOK.now,
        position: schemas::Position(41),
        status: status(),
        cells: vec![one, two],
        lrps: vec![lrp("api", well), lrp("front", rolling("updating", &[1])), lrp("web", bad)],
        more: false,
        instances: None,
    })
}

/// Returns the page of a cluster with some events.
fn model() -> Model {
    let mut model = Model::default();
    assert_eq!(model.take(Input::Polled(seen())), None);
    for number in 1..=9 {
        let line = format!("12:00:0{number}  web/{number}: created, waiting for placement");
        model.events.push_back(EventLine { position: schemas::Position(number), line });
    }
    model
}

/// Returns the lines of the page on a terminal of this size.
fn rendered_lines(model: &mut Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, model, LOOK)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn type_keys(model: &mut Model, keys: &str) -> Option<Request> {
    keys.chars().filter_map(|char| model.take(Input::Key(Key::Char(char)))).last()
}

fn press(model: &mut Model, key: Key) -> Option<Request> {
    model.take(Input::Key(key))
}

#[test]
fn page_renders_on_80_by_24() {
    let page = rendered_lines(&mut model(), 80, 24);
    assert_eq!(page.join("\n"), include_str!("page_80x24.txt").trim_end());
}

#[test]
fn page_renders_active_pane_on_60_by_12() {
    let mut model = model();
    let line =
        "12:00:10  web/2: crashed on c1: Exited with status 3 (crash 1, container f261f6fc)".to_owned();
    model.events.push_back(EventLine { position: schemas::Position(10), line });
    let mut pages = rendered_lines(&mut model, 60, 12);
    for _ in 0..2 {
        press(&mut model, Key::Tab);
        pages.extend(rendered_lines(&mut model, 60, 12).into_iter().skip(4));
    }
    assert_eq!(pages.join("\n"), include_str!("page_60x12.txt").trim_end());
}

#[test]
fn page_renders_more_on_120_by_40() {
    let page = rendered_lines(&mut model(), 120, 40);
    assert_eq!(page.join("\n"), include_str!("page_120x40.txt").trim_end());
}

#[test]
fn page_renders_on_any_terminal_size() {
    let mut pages = [model(), model(), model(), Model::default(), model()];
    type_keys(&mut pages[1], "?");
    press(&mut pages[2], Key::Enter);
    let text = "a line that is longer than a small terminal is wide\n".repeat(50);
    pages[4].take(Input::Explained { title: "why web/0".into(), text });
    for model in &mut pages {
        for (width, height) in
            [(1, 1), (10, 3), (40, 10), (41, 11), (80, 24), (200, 60), (300, 10), (40, 100)]
        {
            let page = rendered_lines(model, width, height);
            assert!(page.iter().any(|line| !line.is_empty()), "{width} by {height}");
        }
    }
    assert!(rendered_lines(&mut model(), 30, 10)[0].starts_with("the terminal is too small"));
}

#[test]
fn keys_navigate_from_process_to_explanation() {
    let mut model = model();
    let (web, front) = (ProcessGuid::new("web").unwrap(), ProcessGuid::new("front").unwrap());
    assert_eq!(
        type_keys(&mut model, "w"),
        Some(Request::Why("web/2".into())),
        "a process with a problem is listed first"
    );
    press(&mut model, Key::Down);
    let opened = OpenedItem::Process(front);
    assert_eq!(press(&mut model, Key::Enter), Some(Request::Instances(Some(opened.clone()))));
    assert!(
        rendered_lines(&mut model, 80, 24).iter().any(|line| line.contains("process front: loading ..."))
    );
    let rows = |opened: &OpenedItem| {
        let crashed = InstanceRow { state: InstanceState::Crashed, ..running(1) };
        Box::new(PollResult {
            instances: Some((opened.clone(), vec![running(0), crashed, running(2)])),
            ..*seen()
        })
    };
    model.take(Input::Polled(rows(&OpenedItem::Process(web))));
    assert_eq!(model.instances, None, "the result is of an earlier poll");
    model.take(Input::Polled(rows(&opened)));
    let page = rendered_lines(&mut model, 80, 24);
    assert!(page.iter().any(|line| line.contains("process front: 3 instances")), "{page:#?}");
    assert_eq!(
        press(&mut model, Key::Enter),
        Some(Request::Why("web/1".into())),
        "a crashed instance is listed first"
    );
    model.take(Input::Explained { title: "why web/1".into(), text: "web/1 is CRASHED\n\nbecause".into() });
    let page = rendered_lines(&mut model, 80, 24);
    assert!(page[4].contains("why web/1") && page[5].contains("web/1 is CRASHED"), "{page:#?}");
    assert_eq!(type_keys(&mut model, "q"), None, "back from the text");
    assert_eq!(press(&mut model, Key::Escape), Some(Request::Instances(None)), "back from the process");
    assert_eq!(type_keys(&mut model, "q"), Some(Request::Quit));
    assert_eq!(press(&mut model, Key::Interrupt), Some(Request::Quit));
}

#[test]
fn every_pane_opens_its_selected_row() {
    let mut model = model();
    press(&mut model, Key::Tab);
    assert_eq!(model.pane, Pane::Events);
    press(&mut model, Key::Up);
    assert_eq!(press(&mut model, Key::Enter), None);
    assert_eq!(model.text.as_ref().unwrap().lines, ["12:00:08  web/8: created, waiting for placement"]);
    press(&mut model, Key::Escape);
    press(&mut model, Key::Tab);
    assert_eq!((model.pane, type_keys(&mut model, "w")), (Pane::Cells, None));
    let cell = OpenedItem::Cell(CellId::new("c2").unwrap());
    assert_eq!(type_keys(&mut model, "G"), None);
    assert_eq!(press(&mut model, Key::Enter), Some(Request::Instances(Some(cell))));
    press(&mut model, Key::Escape);
    press(&mut model, Key::BackTab);
    assert_eq!(model.pane, Pane::Events);
    assert_eq!(type_keys(&mut model, "?"), None);
    assert!(rendered_lines(&mut model, 80, 24).iter().any(|line| line.contains("explain an instance")));
    assert_eq!((type_keys(&mut model, "q"), model.help), (None, false), "any key closes the help");
}

#[test]
fn filter_shows_matching_rows_only() {
    let mut model = model();
    type_keys(&mut model, "/WEq");
    assert!(model.typing && rendered_lines(&mut model, 80, 24)[23].starts_with("/WEq_"));
    press(&mut model, Key::Backspace);
    press(&mut model, Key::Enter);
    let shown =
        |model: &Model| model.shown_processes().map(|row| row.process_guid.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (shown(&model), model.shown_events().count(), model.shown_cells().count()),
        (vec!["web".into()], 9, 0)
    );
    assert!(rendered_lines(&mut model, 80, 24)[23].starts_with("filter \"WE\""));
    assert_eq!(
        (press(&mut model, Key::Escape), shown(&model).len()),
        (None, 3),
        "the first Esc clears the filter"
    );
    type_keys(&mut model, "/x");
    press(&mut model, Key::Escape);
    assert_eq!((model.typing, model.filter.as_str()), (false, ""));
    assert_eq!(press(&mut model, Key::Escape), Some(Request::Quit));
}

#[test]
fn selection_stays_on_its_row_when_list_changes() {
    let mut model = model();
    type_keys(&mut model, "jj");
    let chosen =
        |model: &Model| model.shown_processes().nth(model.processes.at).unwrap().process_guid.to_string();
    assert_eq!(chosen(&model), "api");
    let mut more = seen();
    more.lrps.insert(0, lrp("aaa", more.lrps[0].clone()));
    model.take(Input::Polled(more));
    assert_eq!(chosen(&model), "api");
    let mut gone = seen();
    gone.lrps.retain(|row| row.process_guid.as_str() != "api");
    model.take(Input::Polled(gone));
    assert_eq!(chosen(&model), "front", "the selection stays at its index");
}

#[test]
fn unreachable_cluster_is_shown_until_it_answers() {
    let mut model = model();
    let lost = |seconds: u64| Input::Unreachable {
        at: LOOK.now + Duration::from_secs(seconds),
        error: "no answer within 3s".into(),
    };
    model.take(lost(0));
    model.take(lost(30));
    let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
    let later = RenderOptions { now: LOOK.now + Duration::from_secs(45), ..LOOK };
    terminal.draw(|frame| draw::draw(frame, &mut model, later)).unwrap();
    let page = format!("{}", terminal.backend());
    assert!(page.contains("no answer from the cluster for 45s: no answer within 3s; retrying"), "{page}");
    assert!(page.contains("processes: 3"), "the last result is still shown: {page}");
    model.take(Input::Polled(seen()));
    assert_eq!(model.outage, None);
}
