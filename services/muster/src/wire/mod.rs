//! Wiring: machines and their driver.
//!
//! A machine says what is to be done; the driver in these files do it, one effect at a time, and bring back what came
//! of it as inputs. Nothing is decided here.
//!
//! | the file | holds |
//! |---|---|
//! | [`drive`] | the loop that drives a machine |
//! | [`decided`] | what a leading BBS has folded, as lines for people and as spans |
//! | [`ended`] | why a service ended that nobody told to |
//! | [`feed`] | every event to whoever listens, while a BBS leads |
//! | [`founding`] | names the cluster of a service to whoever founds one |
//! | [`following`] | the journal, entry by entry, to a machine |
//! | [`asking`] | questions between services, in postcard where both speak it, else in JSON |
//! | [`bbs`] | the driver of a BBS |
//! | [`budget`] | how much each client may have under way |
//! | [`listening`] | the beats of leaders while a service that starts reads the log |
//! | [`known_log`] | whether the log of the cluster is the one that a rep knows |
//! | [`lanes`] | queues in which names take turns |
//! | [`inbox`] | what comes to a BBS by the bus |
//! | [`past`] | queries about the past, answered from Worlds that are folded for them |
//! | [`reading`] | queries, answered from pictures of the World |
//! | [`watching`] | what each service tells whoever watches it: metrics and probes |
//! | [`setting_aside`] | what operators set aside of the journal |
//! | [`auctioneer`], [`rep`] | the driver of the others |
//! | [`projector`] | the tables of a database, kept up to date with the journal |
//! | [`containers`] | real containers and scripted ones, behind one door |

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
