//! Tests of reading a log by offset, including reads after the rotation has removed older files.

use executor::process::{LogError, Settings};
use schemas::container::{Container, ContainerState, Recipe};
use schemas::names::InstanceGuid;

use crate::support::{Cell, eventually, lrp, sh, task};

/// Returns the names of the files in a folder of the cell's data.
fn file_names(cell: &Cell, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(cell.root.path().join("data").join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn every_line_is_read_once_with_any_limit() {
    let mut cell = Cell::new().await;
    let guid =
        cell.run(task(sh("i=0; while [ $i -lt 200 ]; do echo line $i ä; i=$((i+1)); done; printf end")));
    cell.wait_until_completed(guid).await;
    for limit in [0, 1, 7, 64, 1000, usize::MAX] {
        let (mut text, mut from) = (String::new(), 0);
        loop {
            let chunk = cell.executor.logs(guid, from, limit).await.unwrap();
            assert!(chunk.text.len() <= limit.max(4));
            text.push_str(&chunk.text);
            from = chunk.next;
            if chunk.ended {
                break;
            }
        }
        let lines: Vec<_> = text.lines().map(|line| line.split_once(" OUT ").unwrap().1.to_owned()).collect();
        let mut wanted: Vec<_> = (0..200).map(|number| format!("line {number} ä")).collect();
        wanted.push("end".to_owned());
        assert_eq!(lines, wanted, "read in chunks of {limit}");
    }
    cell.delete_all().await;
}

#[tokio::test]
async fn offsets_stay_valid_after_rotation() {
    let mut cell = Cell::with(|settings| Settings { log_bytes: 2_000, ..settings }).await;
    let guid = cell.run(task(sh("i=0; while [ $i -lt 500 ]; do echo line $i; i=$((i+1)); done")));
    cell.wait_until_completed(guid).await;
    let first = cell.executor.logs(guid, 0, 100).await.unwrap();
    assert!(first.next > 10_000, "{first:?}");
    assert!(!first.ended);
    let (marker, rest) = first.text.split_once('\n').unwrap();
    let (time, told) = marker.split_once(' ').unwrap();
    let dropped = first.next - u64::try_from(rest.len()).unwrap();
    assert_eq!(told, format!("ERR [{dropped} bytes of the log before this line were dropped]"));
    assert!(rest.starts_with(time), "the notice has the time of the next line");
    let next = cell.executor.logs(guid, first.next, 100).await.unwrap();
    assert!(!next.text.contains("dropped"), "the notice appears once");
    let (mut from, mut count, mut last) = (first.next, 0, String::new());
    loop {
        let chunk = cell.executor.logs(guid, from, 1000).await.unwrap();
        count += chunk.text.lines().count();
        last = chunk.text.lines().last().map_or(last, str::to_owned);
        from = chunk.next;
        if chunk.ended {
            break;
        }
    }
    assert!(last.ends_with("OUT line 499"));
    assert!((20..=110).contains(&count), "two files of 2000 bytes hold some 100 lines, not {count}");
    let files = cell.root.path().join(format!("data/containers/{guid}/log"));
    assert_eq!(std::fs::read_dir(files).unwrap().count(), 2);
    let beyond = cell.executor.logs(guid, u64::MAX, 1000).await.unwrap();
    assert_eq!((beyond.text.as_str(), beyond.next, beyond.ended), ("", from, true));
    cell.delete_all().await;
}

#[tokio::test]
async fn long_line_is_split_without_loss() {
    let mut cell = Cell::new().await;
    let guid = cell.run(task(sh("head -c 1200000 /dev/zero | tr '\\0' x; echo; echo next")));
    cell.wait_until_completed(guid).await;
    let (mut lines, mut from) = (vec![], 0);
    while let chunk = cell.executor.logs(guid, from, usize::MAX).await.unwrap()
        && !chunk.text.is_empty()
    {
        from = chunk.next;
        lines.extend(chunk.text.lines().map(|line| line.split_once(" OUT ").unwrap().1.to_owned()));
    }
    assert_eq!(lines.pop().unwrap(), "next");
    assert!(lines.iter().all(|piece| piece.len() <= 8 * 1024));
    assert!(lines.concat() == "x".repeat(1_200_000));
    cell.delete_all().await;
}

#[tokio::test]
async fn output_without_a_line_end_is_shown_while_the_program_runs() {
    let mut cell = Cell::new().await;
    let guid = cell.run(lrp(sh("printf 'Listening on 8080 ...'; exec sleep 1000")));
    cell.wait_for_line(guid, "Listening on 8080 ...").await;
    cell.wait_until_running(guid).await;
    cell.delete_all().await;
}

#[tokio::test]
async fn log_of_unknown_container_is_an_error() {
    let mut cell = Cell::new().await;
    let nobody = InstanceGuid(uuid::Uuid::from_u64_pair(0, 1));
    let error = cell.executor.logs(nobody, 0, 100).await.unwrap_err();
    assert!(matches!(error, LogError::Unknown(guid) if guid == nobody));
    let guid = cell.run(Recipe { ..task(sh("exec sleep 60")) });
    let empty = cell.executor.logs(guid, 0, 100).await.unwrap();
    assert_eq!((empty.text.as_str(), empty.next, empty.ended), ("", 0, false));
    cell.delete_all().await;
}

#[tokio::test]
async fn log_is_retained_after_deletion_and_restart() {
    let mut cell = Cell::with(|settings| Settings { log_bytes: 2_000, ..settings }).await;
    let guid = cell.run(task(sh("i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; exit 3")));
    cell.wait_until_completed(guid).await;
    let first = cell.executor.logs(guid, 0, 500).await.unwrap();
    let size = cell.executor.logs(guid, u64::MAX, 0).await.unwrap().next;
    cell.executor.delete(guid);
    eventually(async || cell.get(guid).is_none()).await;
    for _ in 0..2 {
        assert_eq!(file_names(&cell, "containers"), [""; 0]);
        assert_eq!(file_names(&cell, &format!("ended/{guid}")).len(), 2, "both files are retained");
        assert_eq!(cell.executor.logs(guid, 0, 500).await.unwrap(), first);
        let last = cell.executor.logs(guid, size - 8, usize::MAX).await.unwrap();
        assert_eq!((last.text.as_str(), last.next, last.ended), ("line 99\n", size, true));
        cell = cell.reopen_after(async {}).await;
    }
    cell.delete_all().await;
}

#[tokio::test]
async fn following_a_log_reads_it_to_the_end_despite_deletion() {
    let mut cell = Cell::new().await;
    let guid = cell.run(lrp(sh("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo bye")));
    let (mut text, mut from) = (String::new(), 0);
    loop {
        let completed = |container: Container| matches!(container.state, ContainerState::Completed(_));
        if cell.get(guid).is_some_and(completed) {
            cell.executor.delete(guid);
        }
        let chunk = cell.executor.logs(guid, from, 100).await.unwrap();
        text.push_str(&chunk.text);
        from = chunk.next;
        if chunk.ended {
            break;
        }
    }
    assert_eq!(text.lines().count(), 2001);
    assert!(text.ends_with("OUT bye\n"));
    cell.delete_all().await;
}

#[tokio::test]
async fn interrupted_deletion_is_finished_at_startup() {
    let mut cell = Cell::new().await;
    let guid = cell.run(task(sh("echo said")));
    cell.wait_until_completed(guid).await;
    let data = cell.root.path().join("data");
    let cut = async {
        let log = data.join(format!("containers/{guid}/log"));
        std::fs::rename(log, data.join(format!("ended/{guid}"))).unwrap();
    };
    let cell = cell.reopen_after(cut).await;
    assert_eq!(cell.executor.list(), []);
    assert_eq!(file_names(&cell, "containers"), [""; 0]);
    assert_eq!(cell.log(guid).await, ["OUT said"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn self_test_retains_no_log() {
    let cell = Cell::new().await;
    cell.executor.self_test().await.unwrap();
    assert_eq!(file_names(&cell, "ended"), [""; 0]);
    cell.delete_all().await;
}
