//! What is wrong with something that was written down, in plain words.
//!
//! It is for the person who wrote it, who reads it and mends it. Nobody decides by it: where a caller has
//! a choice to make, there is an error with variants instead.

/// A text that says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Problem(String);

impl Problem {
    /// A problem in these words.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<Problem> for String {
    fn from(problem: Problem) -> Self {
        problem.0
    }
}
