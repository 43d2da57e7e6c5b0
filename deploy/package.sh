#!/bin/sh
# Builds target/debian/muster_VERSION_ARCHITECTURE.deb with the program, units, completions, man pages and documentation.
set -eu
cd "$(dirname "$0")/.."
if ! command -v cargo-deb >/dev/null; then
    echo "cargo-deb is missing: cargo install cargo-deb --locked" >&2
    exit 1
fi
cargo build --release --locked -p muster
mkdir -p target/release/completions
for shell in bash zsh fish; do
    target/release/muster completion "$shell" > "target/release/completions/muster.$shell"
done
rm -rf target/release/man
mkdir -p target/release/man
target/release/muster man target/release/man
cargo deb --no-build -p muster
