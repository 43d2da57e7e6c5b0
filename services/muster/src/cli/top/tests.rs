//! Tests of the page: its rendering on terminals of several sizes, and its keys.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use schemas::Timestamp;
use schemas::cluster::Leader;
use schemas::names::{CellId, ClusterId, ProcessGuid, ServiceId};
use schemas::query::{
    ClusterRow, Finding, FindingCode, Health, InstanceRow, InstanceState, LrpRow, MalformedEntries, Services,
    StatusRow,
};
use schemas::resources::Resources;
use uuid::Uuid;

use super::model::{Ask, Happened, Input, Model, Opened, Pane, Seen};
use super::*;
use crate::cli::keys::Key;
use crate::cli::output::Look;
use crate::cli::rows::tests::{a_cell, process, rolling, running};

const LOOK: Look = Look { now: Timestamp::from_millis(10_000_000), full_ids: false, colour: false };

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
        set_aside: MalformedEntries::default(),
    };
    let crashed = Finding::new(FindingCode::InstancesCrashed, "1 instance crashed".to_owned());
    StatusRow {
        health: Health::Degraded,
        findings: vec![crashed],
        cluster,
        instances_wanted: 7,
        instances_unplaced: 1,
        tasks_unplaced: 0,
        evaluations_blocked: 0,
        callbacks_repeated: 0,
        worst: vec![InstanceRow { index: 2, ..running(2) }],
        starting: vec![],
        cells: vec![],
        log: None,
    }
}

fn lrp(name: &str, row: LrpRow) -> LrpRow {
    LrpRow { process_guid: ProcessGuid::new(name).unwrap(), ..row }
}

fn seen() -> Box<Seen> {
    let half = Resources { memory_mb: 512, disk_mb: 0, containers: 125, ports: 0 };
    let total = Resources { memory_mb: 1_024, disk_mb: 2_048, containers: 250, ports: 100 };
    let mut one = a_cell();
    (one.presence.total, one.used) = (total, half);
    let mut two = one.clone();
    two.cell_id = CellId::new("c2").unwrap();
    two.used.memory_mb = 1_000;
    let well = LrpRow { instances: 3, running: 3, claimed: 0, unclaimed: 0, crashed: 0, ..process() };
    let bad = LrpRow { instances: 4, running: 2, crashed: 1, ..well.clone() };
    Box::new(Seen {
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
    assert_eq!(model.take(Input::Seen(seen())), None);
    for number in 1..=9 {
        let line = format!("12:00:0{number}  web/{number}: created, to be placed");
        model.events.push_back(Happened { position: schemas::Position(number), line });
    }
    model
}

/// Returns the lines of the page on a terminal of this size.
fn drawn(model: &mut Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, model, LOOK)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn types(model: &mut Model, keys: &str) -> Option<Ask> {
    keys.chars().filter_map(|char| model.take(Input::Key(Key::Char(char)))).last()
}

fn press(model: &mut Model, key: Key) -> Option<Ask> {
    model.take(Input::Key(key))
}

#[test]
fn a_page_fits_on_80_by_24() {
    let page = drawn(&mut model(), 80, 24);
    assert_eq!(page.join("\n"), include_str!("page_80x24.txt").trim_end());
}

#[test]
fn a_page_has_more_on_120_by_40() {
    let page = drawn(&mut model(), 120, 40);
    assert_eq!(page.join("\n"), include_str!("page_120x40.txt").trim_end());
}

#[test]
fn a_page_is_drawn_on_every_terminal() {
    let mut pages = [model(), model(), model(), Model::default(), model()];
    types(&mut pages[1], "?");
    press(&mut pages[2], Key::Enter);
    let text = "a line that is longer than a small terminal is wide\n".repeat(50);
    pages[4].take(Input::Told { title: "why web/0".into(), text });
    for model in &mut pages {
        for (width, height) in
            [(1, 1), (10, 3), (40, 10), (41, 11), (80, 24), (200, 60), (300, 10), (40, 100)]
        {
            let page = drawn(model, width, height);
            assert!(page.iter().any(|line| !line.is_empty()), "{width} by {height}");
        }
    }
    assert!(drawn(&mut model(), 30, 10)[0].starts_with("the terminal is too small"));
}

#[test]
fn keys_lead_from_a_process_to_why() {
    let mut model = model();
    let (web, front) = (ProcessGuid::new("web").unwrap(), ProcessGuid::new("front").unwrap());
    assert_eq!(types(&mut model, "w"), Some(Ask::Why("web/2".into())), "what is bad stands first");
    press(&mut model, Key::Down);
    let opened = Opened::Process(front);
    assert_eq!(press(&mut model, Key::Enter), Some(Ask::Instances(Some(opened.clone()))));
    assert!(drawn(&mut model, 80, 24).iter().any(|line| line.contains("process front: asking ...")));
    let rows = |opened: &Opened| {
        let crashed = InstanceRow { state: InstanceState::Crashed, ..running(1) };
        Box::new(Seen { instances: Some((opened.clone(), vec![running(0), crashed, running(2)])), ..*seen() })
    };
    model.take(Input::Seen(rows(&Opened::Process(web))));
    assert_eq!(model.instances, None, "that was asked before");
    model.take(Input::Seen(rows(&opened)));
    let page = drawn(&mut model, 80, 24);
    assert!(page.iter().any(|line| line.contains("process front: 3 instances")), "{page:#?}");
    assert_eq!(press(&mut model, Key::Enter), Some(Ask::Why("web/1".into())), "what crashed stands first");
    model.take(Input::Told { title: "why web/1".into(), text: "web/1 is CRASHED\n\nbecause".into() });
    let page = drawn(&mut model, 80, 24);
    assert!(page[4].contains("why web/1") && page[5].contains("web/1 is CRASHED"), "{page:#?}");
    assert_eq!(types(&mut model, "q"), None, "back from the text");
    assert_eq!(press(&mut model, Key::Back), Some(Ask::Instances(None)), "back from the process");
    assert_eq!(types(&mut model, "q"), Some(Ask::Quit));
    assert_eq!(press(&mut model, Key::Interrupt), Some(Ask::Quit));
}

#[test]
fn every_part_of_the_page_is_looked_into() {
    let mut model = model();
    press(&mut model, Key::Next);
    assert_eq!(model.pane, Pane::Events);
    press(&mut model, Key::Up);
    assert_eq!(press(&mut model, Key::Enter), None);
    assert_eq!(model.text.as_ref().unwrap().lines, ["12:00:08  web/8: created, to be placed"]);
    press(&mut model, Key::Back);
    press(&mut model, Key::Next);
    assert_eq!((model.pane, types(&mut model, "w")), (Pane::Cells, None));
    let cell = Opened::Cell(CellId::new("c2").unwrap());
    assert_eq!(types(&mut model, "G"), None);
    assert_eq!(press(&mut model, Key::Enter), Some(Ask::Instances(Some(cell))));
    press(&mut model, Key::Back);
    press(&mut model, Key::Previous);
    assert_eq!(model.pane, Pane::Events);
    assert_eq!(types(&mut model, "?"), None);
    assert!(drawn(&mut model, 80, 24).iter().any(|line| line.contains("look into a process, a cell")));
    assert_eq!((types(&mut model, "q"), model.help), (None, false), "any key ends the help");
}

#[test]
fn a_filter_shows_what_has_its_letters() {
    let mut model = model();
    types(&mut model, "/WEq");
    assert!(model.typing && drawn(&mut model, 80, 24)[23].starts_with("/WEq_"));
    press(&mut model, Key::Erase);
    press(&mut model, Key::Enter);
    let shown =
        |model: &Model| model.shown_processes().map(|row| row.process_guid.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (shown(&model), model.shown_events().count(), model.shown_cells().count()),
        (vec!["web".into()], 9, 0)
    );
    assert!(drawn(&mut model, 80, 24)[23].starts_with("only \"WE\""));
    assert_eq!(
        (press(&mut model, Key::Back), shown(&model).len()),
        (None, 3),
        "first back is out of the filter"
    );
    types(&mut model, "/x");
    press(&mut model, Key::Back);
    assert_eq!((model.typing, model.filter.as_str()), (false, ""));
    assert_eq!(press(&mut model, Key::Back), Some(Ask::Quit));
}

#[test]
fn what_is_chosen_stays_so_where_others_come_and_go() {
    let mut model = model();
    types(&mut model, "jj");
    let chosen =
        |model: &Model| model.shown_processes().nth(model.processes.at).unwrap().process_guid.to_string();
    assert_eq!(chosen(&model), "api");
    let mut more = seen();
    more.lrps.insert(0, lrp("aaa", more.lrps[0].clone()));
    model.take(Input::Seen(more));
    assert_eq!(chosen(&model), "api");
    let mut gone = seen();
    gone.lrps.retain(|row| row.process_guid.as_str() != "api");
    model.take(Input::Seen(gone));
    assert_eq!(chosen(&model), "front", "what is gone is followed by what is there");
}

#[test]
fn a_cluster_that_does_not_answer_is_told_until_it_does() {
    let mut model = model();
    let lost = |seconds: u64| Input::Lost {
        at: LOOK.now + Duration::from_secs(seconds),
        why: "no answer within 3s".into(),
    };
    model.take(lost(0));
    model.take(lost(30));
    let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
    let later = Look { now: LOOK.now + Duration::from_secs(45), ..LOOK };
    terminal.draw(|frame| draw::draw(frame, &mut model, later)).unwrap();
    let page = format!("{}", terminal.backend());
    assert!(
        page.contains("the cluster doesn't answer since 45s: no answer within 3s; trying again"),
        "{page}"
    );
    assert!(page.contains("processes: 3"), "what was known is still shown: {page}");
    model.take(Input::Seen(seen()));
    assert_eq!(model.lost, None);
}
