//! Wiring: the drivers of the state machines.
//!
//! A state machine does no I/O: it returns effects. Its driver performs the effects one at a time, and feeds
//! the results back to the machine as inputs. Drivers make no decisions.
//!
//! | file | content |
//! |---|---|
//! | [`drive`] | the loop that drives a machine |
//! | [`decided`] | log lines and spans for the decisions of a leading BBS |
//! | [`ended`] | errors that end a service |
//! | [`feed`] | publication of every event by a leading BBS |
//! | [`founding`] | answers to an operator who founds a cluster: the cluster that a service belongs to |
//! | [`following`] | feeding journal entries to a machine |
//! | [`asking`] | requests between services, in postcard or JSON |
//! | [`bbs`] | driver of a BBS |
//! | [`budget`] | limits of in-flight requests per client |
//! | [`listening`] | leader heartbeats while a starting service reads the log |
//! | [`known_log`] | comparison of the log of the cluster with the log that a rep knows |
//! | [`lanes`] | queues in which clients take turns |
//! | [`inbox`] | messages from the bus to a BBS |
//! | [`past`] | queries about the past, each answered from a World (projected state) that is folded for it |
//! | [`reading`] | queries about the present, answered from World snapshots |
//! | [`watching`] | metrics and probes of each service |
//! | [`setting_aside`] | quarantined entries of the journal |
//! | [`auctioneer`], [`rep`] | drivers of the other machines |
//! | [`projector`] | driver that keeps the tables of a database up to date |
//! | [`containers`] | container backends: real or scripted |

pub(crate) mod asking;
pub(crate) mod auctioneer;
pub(crate) mod bbs;
mod beating;
mod budget;
pub(crate) mod containers;
mod decided;
pub(crate) mod drive;
pub(crate) mod ended;
mod feed;
mod following;
pub(crate) mod founding;
pub(crate) mod inbox;
mod known_log;
mod lanes;
mod listening;
pub(crate) mod past;
pub(crate) mod projector;
mod reading;
pub(crate) mod rep;
pub(crate) mod setting_aside;
mod talks;
pub(crate) mod watching;
