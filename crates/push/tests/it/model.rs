//! All together.
