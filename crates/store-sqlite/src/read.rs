//! What readers do: one function for each question, inside one snapshot.

pub(crate) mod ahead;
pub(crate) mod audit;
pub(crate) mod catalog;
pub(crate) mod follow;
pub(crate) mod jobs;
pub(crate) mod lists;
pub(crate) mod queries;
pub(crate) mod rollups;
pub(crate) mod rows;
pub(crate) mod session;
pub(crate) mod work;
