//! How a receiver verifies a signature, in five languages. A test of the server has each of them verify a request that the
//! program has sent.

/// A program in one language.
pub(crate) struct Snippet {
    pub(crate) language: &'static str,
    pub(crate) code: &'static str,
}

/// All of them.
pub(crate) static ALL: &[Snippet] = &[
    Snippet { language: "Python", code: include_str!("../../snippets/verify.py") },
    Snippet { language: "JavaScript", code: include_str!("../../snippets/verify.mjs") },
    Snippet { language: "Go", code: include_str!("../../snippets/verify.go") },
    Snippet { language: "PHP", code: include_str!("../../snippets/verify.php") },
    Snippet { language: "Rust", code: include_str!("../../snippets/verify.rs.txt") },
];
