//! The corpus: for each format, inputs that a fuzzer found worth keeping, and inputs that once failed.

use std::fs;
use std::panic::catch_unwind;

use fuzz::{FORMATS, corpus};

#[test]
fn corpus_violates_no_property() {
    for (format, check) in FORMATS {
        let folder = corpus(format);
        let mut files = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|file| file.unwrap().path())
            .collect::<Vec<_>>();
        files.sort();
        assert!(!files.is_empty(), "{} contains no input", folder.display());
        for file in files {
            let bytes = fs::read(&file).unwrap();
            if catch_unwind(|| check(&bytes)).is_err() {
                panic!("{} violates a property of {format}", file.display());
            }
        }
    }
}
