//! Makes the schema's fingerprint, a hash of every source file of this crate.

mod fingerprint;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=fingerprint.rs");
    fingerprint::write()
}
