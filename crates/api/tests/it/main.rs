//! The API as clients meet it: a real engine on the model store, over a real loopback listener.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::needless_pass_by_value, reason = "tables of cases read better with values")]

mod access;
mod admission;
mod audit;
mod bad_input;
mod bulk;
mod certificates;
mod cloudevents;
mod documents;
mod event_types;
mod expunging;
mod filters;
mod finding;
mod harness;
mod isolation;
mod listener;
mod looking;
mod managing;
mod plain_words;
mod policy_page;
mod publishing;
mod push;
mod push_services;
mod rate;
mod realms;
mod replaying;
mod schema;
mod series;
mod sessions;
mod signing;
mod streaming;
mod system;
mod telling;
mod tenants;
