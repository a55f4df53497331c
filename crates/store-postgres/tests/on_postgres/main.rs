//! The store against a real server: the suite every store must pass, and what only several nodes on
//! one database can get wrong.

mod copying;
mod expunging;
mod failures;
mod fixture;
mod follow;
mod frozen;
mod jobs;
mod log;
mod nodes;
mod plans;
mod pooler;
mod retention;
mod revival;
mod rolling;
mod shared_sessions;
mod standby;
mod tally;
mod telling;
mod tls;
mod upgrade;

mod conformance {
    use super::fixture::Databases;

    posthorn_conformance::conformance_suite!(Databases::default());
    posthorn_conformance::push_conformance_suite!(Databases::default());
}
