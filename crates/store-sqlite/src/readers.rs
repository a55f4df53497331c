//! The readers: a few threads that answer questions, each with its own read-only connection.

use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::mpsc;

/// A question. It answers by itself.
pub(crate) type Question = Box<dyn FnOnce(&Connection) + Send>;

/// The queue all readers share.
pub(crate) type Questions = Arc<Mutex<mpsc::Receiver<Question>>>;

/// Works until the queue is closed. Who has the lock waits for the next question; the others wait
/// for the lock.
pub(crate) fn run(conn: &Connection, questions: &Questions) {
    loop {
        let question = questions.lock().blocking_recv();
        match question {
            Some(question) => question(conn),
            None => return,
        }
    }
}
