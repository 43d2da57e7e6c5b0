//! `muster instance files`: lists and prints files in the work directory of an instance.

use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{self, Output, RenderOptions};
use cli_base::table::{Cell, Table};
use client::Client;
use schemas::query::{FileContent, FileEntry, FileKind, Files};
use text::words::age;

use super::find::{self, FoundInstance, no_container};

/// Lists a folder, or copies a file unchanged to the standard output.
pub(super) async fn show(
    client: &Client,
    global: &Global,
    id: &str,
    path: &str,
    output: Output,
) -> Result<(), Failure> {
    let FoundInstance { rows, .. } = find::instance(client, id).await?;
    let Some(row) = rows.into_iter().find(|row| row.instance_guid.is_some()) else {
        return Err(no_container(id));
    };
    find::check_domain(global, format!("instance {id}"), row.domain)?;
    // Each read names the guid of the container. All pieces therefore come from this container, even if
    // another container replaces it.
    let guid = row.instance_guid.map_or_else(|| id.to_owned(), |guid| guid.to_string());
    let read = async |from: u64| {
        let found = client.files(&guid, path, from).await;
        found.map_err(|error| Failure::from(error).while_doing(format!("read the files of instance {id}")))
    };
    match read(0).await?.content {
        FileContent::Folder { mut entries, total } => {
            while let (Some(from), true) = (count(&entries), (entries.len() as u64) < total) {
                let FileContent::Folder { entries: more, .. } = read(from).await?.content else { break };
                if more.is_empty() {
                    break;
                }
                entries.extend(more);
            }
            output.write_rows(&entries, table)
        }
        first @ FileContent::File { .. } => copy(first, output, read).await,
    }
}

fn count(entries: &[FileEntry]) -> Option<u64> {
    u64::try_from(entries.len()).ok().filter(|count| *count > 0)
}

/// Copies a file to the standard output. If the file grows during the copy, the new content is not copied.
async fn copy(
    first: FileContent,
    output: Output,
    read: impl AsyncFn(u64) -> Result<Files, Failure>,
) -> Result<(), Failure> {
    let (mut found, mut end) = (first, None);
    while let FileContent::File { data, next, bytes } = found {
        let piece = output::decode_base64(&data)?;
        output.write_program_bytes(&piece)?;
        if piece.is_empty() || next >= *end.get_or_insert(bytes) {
            return Ok(());
        }
        found = read(next).await?.content;
    }
    Ok(())
}

fn table(entries: &[FileEntry], look: RenderOptions) -> Table {
    let mut table = Table::new(&["MODE", "BYTES", "AGE", "NAME"]);
    for entry in entries {
        let FileEntry { name, kind, mode, bytes, modified, target } = entry;
        let letter = match kind {
            FileKind::File => '-',
            FileKind::Folder => 'd',
            FileKind::Link => 'l',
            FileKind::Other => '?',
        };
        let name = match (kind, target) {
            (FileKind::Folder, _) => format!("{name}/"),
            (_, Some(target)) => format!("{name} -> {target}"),
            (FileKind::File | FileKind::Link | FileKind::Other, None) => name.clone(),
        };
        let cells = [
            Cell::text(format!("{letter}{}", permissions(*mode))),
            Cell::number(bytes),
            Cell::number(age(look.now, *modified)),
            Cell::text(name),
        ];
        table.row(cells.into());
    }
    table
}

/// Formats permission bits, such as `rwxr-x---`.
fn permissions(mode: u32) -> String {
    let letters = ['r', 'w', 'x'].into_iter().cycle();
    (0..9).rev().zip(letters).map(|(bit, letter)| if mode >> bit & 1 == 1 { letter } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::permissions;

    #[test]
    fn permissions_have_nine_letters() {
        assert_eq!(
            [0o750, 0o644, 0, 0o7777].map(permissions),
            ["rwxr-x---", "rw-r--r--", "---------", "rwxrwxrwx"]
        );
    }
}
