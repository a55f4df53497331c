//! What ends `posthorn listen --push` at its start, and what to do about it.

use posthorn_agent::Error;

use crate::exit::{Code, Failure};

const NO_PUSH_HINT: &str = "start the server with `posthorn serve --push`";

/// The subscription that was kept is not to be seen.
pub(super) fn not_there(id: &str) -> Failure {
    let message = format!("{id} is not there: it was removed, or this key is of another tenant");
    let hint = "use the key and the tenant of the first start, or remove the file given with --keep \
                to begin anew";
    Failure::new(Code::Usage, message).hint(hint)
}

/// Nothing of all this is to be had here.
pub(super) fn no_push() -> Failure {
    Failure::new(Code::Failure, "this server does not do Web Push").hint(NO_PUSH_HINT)
}

/// What is said when there is no socket.
pub(super) fn failure(error: &Error) -> anyhow::Error {
    match error {
        Error::NoSocket(404 | 405 | 426 | 501) => no_push().into(),
        Error::Connect(_) | Error::Tls(_) | Error::Late(_) | Error::Closed(_) => {
            Failure::new(Code::Unavailable, error.to_string())
                .hint("check the address given with --server or POSTHORN_SERVER")
                .into()
        }
        Error::NoSocket(_) => Failure::new(Code::Unavailable, error.to_string())
            .hint("the server may be busy or going away; try again later")
            .into(),
        _ => Failure::new(Code::Failure, error.to_string()).into(),
    }
}
