//! Makes the fingerprint of this crate's sources, which snapshots carry together with the schema's.

#[path = "../schemas/fingerprint.rs"]
mod fingerprint;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../schemas/fingerprint.rs");
    fingerprint::write()
}
