//! The language of Muster.
//!
//! Nouns, sentences and grammar: names, specs, one file per state machine, entries, subjects, messages, codecs.
//! Nothing here waits, reads a clock or draws by chance: time and ids are inputs.
//!
//! | the file | holds |
//! |---|---|
//! | [`names`], [`time`], [`subject`], [`indices`], [`resources`], [`limits`], [`checksum`] | the words |
//! | [`action`], [`definition`], [`schedule`], [`container`], [`placement`], [`rank`] | what to run, when, where, why there, and in which order |
//! | [`secret`], [`sight`] | what of it is secret, and to what a sealed value is bound; who may read what isn't |
//! | [`process`]: [`desired`], [`actual`], [`evacuating`], [`crash`], [`evaluation`] | the machines of a process |
//! | [`task`], [`periodic`], [`parameterised`], [`domain`], [`cell`], [`cluster`] | the other machines |
//! | [`preemption`] | what of them stops so that something more urgent has room |
//! | [`ended`] | what all of them leave behind, to be shown |
//! | [`entry`], [`refusal`], [`request`] | what deciding yields |
//! | [`packed`] | how what is hardly ever read is kept |
//! | [`stored`] | what of it the journal holds, in every version |
//! | [`cloudevent`], [`feed`], [`published`] | what of it programs of others read, where it is told, and its JSON Schemas |
//! | [`spec`] | from what clients write to all of these |
//! | [`bus`], [`reach`], [`message`], [`query`], [`health`], [`codec`] | the bus: its subjects, and what travels on them |
//!
//! Each machine is `decide(state, command, context) -> events or a refusal` and `evolve(state, event) -> state`.

pub mod action;
pub mod actual;
pub mod attributes;
pub mod bus;
pub mod caller;
pub mod cause;
pub mod cell;
pub mod checksum;
pub mod cloudevent;
pub mod cluster;
pub mod codec;
pub mod container;
pub mod crash;
mod cron;
pub mod definition;
pub mod desired;
pub mod domain;
pub mod ended;
pub mod entry;
pub mod evacuating;
pub mod evaluation;
pub mod exec;
pub mod feed;
mod fields;
pub mod health;
pub mod indices;
pub mod isolation;
pub mod key;
pub mod limits;
pub mod message;
pub mod names;
pub mod packed;
pub mod parameterised;
pub mod periodic;
pub mod placement;
pub mod policy;
pub mod preemption;
pub mod process;
pub mod published;
pub mod query;
pub mod quota;
pub mod rank;
pub mod reach;
pub mod refusal;
pub mod request;
pub mod resources;
pub mod rollout;
pub mod rules;
pub mod schedule;
pub mod secret;
pub mod sight;
pub mod spec;
pub mod stored;
pub mod subject;
pub mod task;
pub mod time;

pub use cause::{Cause, Origin};
pub use entry::{Decision, Entry};
pub use indices::Indices;
pub use key::{ActualLrpKey, Place, Places};
pub use refusal::{BadField, Class, Code, Refusal};
pub use subject::{Position, Subject};
pub use time::{BadTime, Steady, Timestamp};
