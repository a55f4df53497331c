//! The endpoint.
