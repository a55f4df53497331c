//! A child whose output is collected while it runs. It is killed when it is dropped.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::wait::{PATIENCE, until};

/// How long what a child wrote may be read after its end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running child.
pub struct Running {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

fn collect(stream: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&text);
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut text = into.lock();
            text.push_str(&line);
            text.push('\n');
        }
    });
    text
}

impl Running {
    /// Starts a command.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = collect(child.stdout.take().expect("piped"));
        let stderr = collect(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    /// What it wrote to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.lock().clone()
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().clone()
    }

    /// Waits until stderr has this: a line comes a little later than what it tells of.
    #[track_caller]
    pub fn says(&self, text: &str) {
        until(text, || self.stderr().contains(text));
    }

    /// Waits until a part of stderr answers the question.
    #[track_caller]
    pub fn wait_for<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = find(&self.stderr()) {
                return found;
            }
            let ended = self.child.try_wait().expect("waits");
            if ended.is_some() {
                // What it said last may still be on its way.
                self.read_to_the_end();
                if let Some(found) = find(&self.stderr()) {
                    return found;
                }
            }
            assert!(
                ended.is_none() && begun.elapsed() < PATIENCE,
                "no {what} ({ended:?}) in:\n{}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until all that it wrote was read. A child of its own that outlives it may keep the pipes open, so only for
    /// a while.
    fn read_to_the_end(&self) {
        let begun = Instant::now();
        // A reader gives its text back when it sees the end.
        let goes_on = |text: &Arc<Mutex<String>>| Arc::strong_count(text) > 1;
        while (goes_on(&self.stdout) || goes_on(&self.stderr)) && begun.elapsed() < LAST_WORDS {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent =
            Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for the end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                self.read_to_the_end();
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.stderr());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
