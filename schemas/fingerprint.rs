//! The fingerprint of a crate's sources: a hash of every source file, by path and content. Build scripts make it, so that
//! no list of files stands anywhere and none can be left out.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Writes `(fingerprint, &["the paths below src"])` to `fingerprint.rs` in the build's folder.
pub(crate) fn write() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src");
    let mut files = vec![];
    find(&root, &mut files)?;
    // Paths in the same order and spelling on every machine.
    let mut named = vec![];
    for file in files {
        let relative = file.strip_prefix(&root)?;
        let words: Option<Vec<&str>> = relative.iter().map(|word| word.to_str()).collect();
        let name =
            words.ok_or_else(|| format!("{} is not a name of a source file", file.display()))?.join("/");
        named.push((name, file));
    }
    named.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for (name, file) in &named {
        let content = fs::read(file)?;
        for part in [name.as_bytes(), &content] {
            // The length first, so that no byte can wander from one part to the next.
            hash = fnv_1a(hash, &(part.len() as u64).to_le_bytes());
            hash = fnv_1a(hash, part);
        }
    }
    let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
    let text = format!("({hash:#x}, &{names:?})");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("fingerprint.rs"), text)?;
    Ok(())
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn fnv_1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
