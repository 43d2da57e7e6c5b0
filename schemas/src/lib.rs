//! Data shapes of Muster: names, specs, commands, events, journal entries, subjects, messages, rows and
//! codecs. The crate `machines` contains the state machines.
//!
//! This crate is pure. It never blocks, reads a clock or uses randomness: times and ids are inputs.
//!
//! | module | contents |
//! |---|---|
//! | [`names`], [`time`], [`subject`], [`indices`], [`resources`], [`limits`], [`checksum`] | basic types |
//! | [`action`], [`definition`], [`schedule`], [`container`], [`placement`], [`priority`] | work to run, its schedule, its placement and its priority |
//! | [`secret`], [`sight`] | secret values, and the place that each secret is sealed for; read scopes |
//! | [`process`]: [`desired`], [`actual`], [`evacuating`], [`crash`], [`rollout`], [`evaluation`] | commands and events of a process |
//! | [`task`], [`periodic`], [`parameterised`], [`domain`], [`cell`], [`cluster`] | commands and events of the other aggregates |
//! | [`preemption`] | work that stops to make room for more urgent work |
//! | [`ended`] | kinds of ends of containers and tasks |
//! | [`stamp`], [`cause`], [`entry`], [`refusal`], [`request`] | decisions: their source and cause, and their results |
//! | [`packed`] | compact form of data that is rarely read |
//! | [`stored`] | journal format, in every version |
//! | [`cloudevent`], [`feed`], [`published`] | events, their feed and their JSON Schemas for other programs |
//! | [`spec`] | conversion of client specs into domain types |
//! | [`bus`], [`verb`], [`reach`], [`message`], [`query`], [`health`], [`codec`] | subjects of the bus and their messages |

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
pub mod priority;
pub mod process;
pub mod published;
pub mod query;
pub mod quota;
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
pub mod stamp;
pub mod stored;
pub mod subject;
pub mod task;
pub mod time;
pub mod verb;

pub use cause::{Cause, Origin};
pub use entry::{Decision, Entry};
pub use indices::Indices;
pub use key::{ActualLrpKey, Place, Places};
pub use refusal::{BadField, Class, Code, Refusal};
pub use subject::{Position, Subject};
pub use time::{BadTime, MonotonicClock, Timestamp};
