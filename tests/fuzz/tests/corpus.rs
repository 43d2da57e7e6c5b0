//! The corpus: for each format what a fuzzer found worth keeping, and what once failed.

use std::fs;
use std::panic::catch_unwind;

use fuzz::{FORMATS, corpus};

#[test]
fn what_must_hold_of_any_bytes_holds_of_the_corpus() {
    for (format, check) in FORMATS {
        let folder = corpus(format);
        let mut files = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|file| file.unwrap().path())
            .collect::<Vec<_>>();
        files.sort();
        assert!(!files.is_empty(), "{} holds nothing to check", folder.display());
        for file in files {
            let bytes = fs::read(&file).unwrap();
            if catch_unwind(|| check(&bytes)).is_err() {
                panic!("{} breaks what must hold of {format}", file.display());
            }
        }
    }
}
