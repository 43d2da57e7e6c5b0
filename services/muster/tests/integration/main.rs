//! The program as its users have it: real processes, a real log, a real nats-server, and whatever goes wrong.
//!
//! Every test has a folder and a cluster of its own, waits for what must come to be and never for time to pass, and
//! leaves nothing behind. What is killed is printed with its moment: `cargo test -p muster --test integration --
//! --nocapture`.
//!
//! | the file | holds |
//! |---|---|
//! | `dev.rs` | a cluster in one process: what its file says, every command, the end and the next start |
//! | `files.rs` | several things in a file, what differs from it, where a local cluster is |
//! | `dispatch.rs` | parameterised tasks: what a task is given, keys, and the limit |
//! | `ended.rs` | what ended, and how each of it did |
//! | `feed.rs` | every event to whoever listens, and a BBS that is killed meanwhile |
//! | `founding.rs` | a cluster is founded once; a log that is lost is not founded again |
//! | `rollouts.rs` | updates, bad updates and the way back, while every index runs |
//! | `terminal.rs` | the same on a terminal: the live view, its keys, and its end |
//! | `nats.rs` | services on NATS, each killed while commands go on |
//! | `cells.rs` | cells: what they have, who speaks for them, how they are emptied |
//! | `lost.rs` | a cell that is lost, and a server that is away for so long that every cell is silent |
//! | `clocks.rs` | clocks that are set, of a leader and of a local cluster |
//! | `crowd.rs` | many who ask at once, pages of several BBSs, owners of tasks that never answer |
//! | `roles.rs` | each role as a user of its own, on a server that `muster auth` made: what it may and must not do |
//! | `plain.rs` | a client in any language, as the README has it, and one that forges |
//! | `documents.rs` | what the documents say of clients, done: the Python example, the `nats` commands, the tables |
//! | `bad_input.rs` | commands that must be refused, with every bad field named |
//! | `bad_bytes.rs` | bytes that are not messages, on every subject |
//! | `bad_log.rs` | logs and folders that must not be worked with |
//! | `secrets.rs` | secrets, from the client to the container and nowhere else; their keys |
//! | `appends.rs` | a log that takes no entries: a full disk, a limit that is reached, a stream that is deleted |
//! | `status.rs` | who beats now, and how the cluster is |
//! | `doctor.rs` | what `muster doctor` says of a cluster that is well, and of one that isn't |
//! | `systemd.rs` | what systemd is told, and the units that are written for it
//! | `watching.rs` | metrics and probes of every service |
//! | `trace.rs` | what one command caused, as a tree and as spans |
//! | `transfers.rs` | what is fetched for an instance, its files, and the logs of all instances of a process at once |
//! | `past.rs` | what held at a moment of the past, and a cache of snapshots that is deleted and damaged |
//! | `quotas.rs` | quotas of domains: growth beyond them is refused |
//! | `proof.rs` | the log as a file and back, replayed, and every change of it found |
//! | `restore.rs` | the log is lost and restored, while services run and while they are stopped |
//! | `what_if.rs` | what would happen, and single decisions: nothing is written |
//! | `stories.rs` | the stories of `tests/stories`, for real |
//! | `tables.rs` | tables of what happens, and projectors that are killed |
//! | `support/` | folders, programs, their containers, a plain NATS client |
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "in tests a panic is the answer")]

mod appends;
mod bad_bytes;
mod bad_input;
mod bad_log;
mod cells;
mod clocks;
mod crowd;
mod dev;
mod dispatch;
mod doctor;
mod documents;
mod ended;
mod exec;
mod feed;
mod files;
mod founding;
mod lost;
mod nats;
mod past;
mod plain;
mod plans;
mod proof;
mod quotas;
mod restore;
mod roles;
mod rollouts;
mod secrets;
mod status;
mod stories;
mod support;
mod systemd;
mod tables;
mod terminal;
mod trace;
mod transfers;
mod watching;
mod what_if;
