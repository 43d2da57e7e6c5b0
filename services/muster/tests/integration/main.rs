//! Integration tests of the program: real processes, a real log and a real nats-server, with injected
//! failures.
//!
//! Every test has a folder and a cluster of its own. It waits for conditions, never for a fixed time, and
//! leaves no files or processes behind. Killed processes are printed with the time: `cargo test -p muster
//! --test integration -- --nocapture`.
//!
//! | file | content |
//! |---|---|
//! | `dev.rs` | cluster in one process: its file, every command, shutdown and restart |
//! | `files.rs` | several items in a file, differences from the cluster, location of a local cluster |
//! | `dispatch.rs` | parameterised tasks: payload, parameters, keys, limit |
//! | `ended.rs` | ended instances and tasks, and their outcomes |
//! | `exec.rs` | additional programs in containers |
//! | `feed.rs` | feed of events to subscribers while a BBS is killed |
//! | `founding.rs` | single founding of a cluster; lost log |
//! | `rollouts.rs` | updates, failed updates and rollbacks, while every index runs |
//! | `terminal.rs` | local cluster on a terminal: live view, keys, exit |
//! | `nats.rs` | services on NATS, each killed under load |
//! | `cells.rs` | resources, reps and evacuation of cells |
//! | `lost.rs` | loss of a cell; outage of the server that silences every cell |
//! | `clocks.rs` | clock changes of a leader and of a local cluster |
//! | `crowd.rs` | concurrent requests, pages from several BBSs, silent task owners |
//! | `roles.rs` | permissions of each role, on a server set up by `muster auth` |
//! | `plain.rs` | client in any language, as in the README; client that forges reply subjects |
//! | `documents.rs` | executed documentation: Python example, `nats` commands, tables |
//! | `bad_input.rs` | invalid commands and their refusals with every invalid field |
//! | `bad_bytes.rs` | invalid messages on every subject |
//! | `bad_log.rs` | invalid streams, entries and data folders |
//! | `secrets.rs` | secrets from the client to the container; their keys |
//! | `appends.rs` | log that accepts no entries: full disk, reached limit, deleted stream |
//! | `status.rs` | live services, and health of the cluster |
//! | `doctor.rs` | `muster doctor` on healthy and broken clusters |
//! | `systemd.rs` | notifications to systemd, generated units |
//! | `watching.rs` | metrics and probes of every service |
//! | `trace.rs` | consequences of a command, as a tree and as spans |
//! | `transfers.rs` | downloads and files of instances, logs of all instances of a process |
//! | `past.rs` | past states; deleted and damaged cache of snapshots |
//! | `plans.rs` | plans, and commands that apply only a plan |
//! | `quotas.rs` | quotas of domains, and refused growth beyond them |
//! | `proof.rs` | export, import, replay and verification of the log |
//! | `restore.rs` | restoration of a lost log, with running and with stopped services |
//! | `what_if.rs` | simulated changes and single decisions, without writing |
//! | `stories.rs` | stories of `tests/stories` on real processes |
//! | `tables.rs` | tables of a projector, and projectors that are killed |
//! | `support/` | folders, programs, their containers, a plain NATS client |
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

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
