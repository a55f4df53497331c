//! The program as a child process.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Long enough for a busy machine, short enough to notice a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program, in a directory of its own and without our environment.
pub(crate) fn posthorn(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthorn"));
    command.current_dir(dir).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("POSTHORN") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(dir: &Path, args: &[&str]) -> Output {
    posthorn(dir).args(args).output().expect("the program starts")
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub(crate) fn assert_exit(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "stdout: {}\nstderr: {}",
        out(output),
        err(output)
    );
}

#[track_caller]
pub(crate) fn assert_says(output: &Output, parts: &[&str]) {
    let text = err(output);
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

/// A child whose output is collected while it runs.
pub(crate) struct Running {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

fn collect(stream: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&text);
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut text = into.lock().expect("not poisoned");
            text.push_str(&line);
            text.push('\n');
        }
    });
    text
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = collect(child.stdout.take().expect("piped"));
        let stderr = collect(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.lock().expect("not poisoned").clone()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().expect("not poisoned").clone()
    }

    /// Waits until stderr has this: a line comes a little later than what it tells of.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        let begun = Instant::now();
        while !self.stderr().contains(text) {
            assert!(begun.elapsed() < PATIENCE, "`{text}` is not in: {}", self.stderr());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a part of stderr answers the question.
    #[track_caller]
    pub(crate) fn wait_for<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = find(&self.stderr()) {
                return found;
            }
            let ended = self.child.try_wait().expect("waits");
            assert!(
                ended.is_none() && begun.elapsed() < PATIENCE,
                "no {what} ({ended:?}) in:\n{}",
                self.stderr()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent =
            Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("waits") {
                // The readers see the end of the pipes a moment later.
                thread::sleep(Duration::from_millis(50));
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

/// A directory with a configuration, and servers on its data.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    pub(crate) key: Option<String>,
    /// The tenant that commands act for, unless they say another.
    pub(crate) tenant: Option<String>,
    /// Variables its servers have in their environment.
    pub(crate) env: Vec<(String, String)>,
}

/// What servers of tests are like: any port, local receivers, short waits, and any disk will do.
const CONFIG: &str = "
server: {listen: '127.0.0.1:0'}
egress: {allow: [127.0.0.0/8]}
admission: {disk_warn: 100, disk_refuse: 100}
engine: {drain: 2s}
profiles:
  quick:
    policy:
      schedule: {backoff: {fixed: {wait: 100ms}}, jitter: none, max_attempts: 5}
  once:
    policy: {schedule: {max_attempts: 1}}
";

impl Home {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("posthorn.yaml"), CONFIG).expect("written");
        Self { dir, key: None, tenant: None, env: Vec::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("posthorn-data")
    }

    /// Starts a server and waits until it listens.
    #[track_caller]
    pub(crate) fn serve(&mut self) -> Server {
        let address = self.path().join("address");
        drop(std::fs::remove_file(&address));
        let mut command = posthorn(self.path());
        command.args(["serve", "--address-file"]).arg(&address).envs(self.env.iter().cloned());
        let mut running = Running::start(&mut command);
        let url = running.wait_for("address", |_| std::fs::read_to_string(&address).ok());
        if self.key.is_none() {
            self.key = Some(read_key(&self.data()));
        }
        let key = self.key.clone().expect("known since the first start");
        let (url, dir) = (url.trim().to_owned(), self.path().to_owned());
        Server { running, url, key, tenant: self.tenant.clone(), dir }
    }
}

/// The operator key that the first start left in its data folder.
#[track_caller]
pub(crate) fn read_key(data: &Path) -> String {
    let file = data.join("operator.key");
    let text = std::fs::read_to_string(&file);
    text.unwrap_or_else(|e| panic!("{}: {e}", file.display())).trim().to_owned()
}

/// A server that listens.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) url: String,
    pub(crate) key: String,
    tenant: Option<String>,
    dir: PathBuf,
}

impl Server {
    /// A command that talks to it.
    pub(crate) fn command(&self) -> Command {
        let mut command = posthorn(&self.dir);
        command.env("POSTHORN_SERVER", &self.url).env("POSTHORN_KEY", &self.key);
        command.envs(self.tenant.iter().map(|tenant| ("POSTHORN_TENANT", tenant)));
        command
    }

    /// Runs a command, which must succeed, and reads its data.
    #[track_caller]
    pub(crate) fn ask(&self, args: &[&str]) -> Value {
        let output = self.command().args(args).arg("--json").output().expect("starts");
        assert_exit(&output, 0);
        if output.stdout.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&output.stdout).expect("JSON on stdout")
    }

    /// Starts a receiver that is subscribed, and waits until it is. Returns its address.
    #[track_caller]
    pub(crate) fn listen(&self, args: &[&str]) -> (Running, String) {
        let mut listener = Running::start(self.command().arg("listen").args(args));
        let address = listener.wait_for("address", |text| {
            let line = text.lines().find(|line| line.starts_with("listening on http://"))?;
            line.rsplit(' ').next().map(str::to_owned)
        });
        if args.contains(&"--subscribe") {
            listener.wait_for("subscription", |text| text.contains("subscribed to").then_some(()));
        }
        (listener, address)
    }

    /// Stops it as a supervisor would.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.running.signal("TERM");
        let status = self.running.wait();
        assert_eq!(status.code(), Some(0), "{}", self.running.stderr());
    }
}

/// Asks until the answer is right.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, ask: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(Duration::from_millis(50));
    }
}
