//! The real `posthorn` as a child process: commands that end, servers that listen.
//!
//! [`Home`] is a directory with a configuration; [`Home::serve`] starts a server there and waits until
//! it listens, with the operator key that its first start left. [`Server::ask`] runs a command against
//! it, [`Server::call`] a request. [`Ran`] is a command that has ended.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::caller::{Call, Reply, call};
use crate::wait::until;

mod running;

pub use running::Running;

/// The program, in a directory of its own and without our environment.
///
/// Cargo builds it for the tests of its crate, and puts it beside the folder in which those are.
pub fn posthorn(dir: &Path) -> Command {
    let own = std::env::current_exe().expect("a test is a program");
    let folder = own.ancestors().nth(2).expect("target/debug/deps/it");
    let mut command = Command::new(folder.join("posthorn"));
    command.current_dir(dir).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("POSTHORN") {
            command.env_remove(name);
        }
    }
    command
}

/// Arguments of a command: a line of words, in which single quotes keep together what has blanks, or
/// a list of which each is one as it stands.
pub trait Args {
    /// One by one.
    fn list(&self) -> Vec<String>;
}

impl Args for str {
    fn list(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (nth, part) in self.split('\'').enumerate() {
            match nth % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }
}

impl Args for String {
    fn list(&self) -> Vec<String> {
        self.as_str().list()
    }
}

impl<S: AsRef<str>> Args for [S] {
    fn list(&self) -> Vec<String> {
        self.iter().map(|one| one.as_ref().to_owned()).collect()
    }
}

impl<S: AsRef<str>, const N: usize> Args for [S; N] {
    fn list(&self) -> Vec<String> {
        self.as_slice().list()
    }
}

impl<S: AsRef<str>> Args for Vec<S> {
    fn list(&self) -> Vec<String> {
        self.as_slice().list()
    }
}

impl<A: Args + ?Sized> Args for &A {
    fn list(&self) -> Vec<String> {
        (**self).list()
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub out: String,
    /// What it wrote to stderr.
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    /// Runs a command to its end.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        command.output().expect("the program starts").into()
    }

    /// Itself, when it ended with this code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Itself, when it did not succeed.
    #[track_caller]
    pub fn fails(self) -> Self {
        assert_ne!(self.code, Some(0), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Itself, when all of these are in what it said on stderr.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.err.contains(part), "`{part}` is not in:\n{}", self.err);
        }
        self
    }

    /// Its data, which is nothing when it wrote none.
    #[track_caller]
    pub fn json(&self) -> Value {
        match self.out.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).expect("JSON on stdout"),
        }
    }
}

/// A directory with a configuration, and servers on its data.
pub struct Home {
    /// The directory.
    pub dir: TempDir,
    /// The operator key, known since the first start.
    pub key: Option<String>,
    /// The tenant that commands act for, unless they say another.
    pub tenant: Option<String>,
    /// Variables its servers have in their environment.
    pub env: Vec<(String, String)>,
}

/// What servers of tests are like: any port, local receivers, short waits, and any disk will do.
const CONFIG: &str = "
server: {listen: '127.0.0.1:0'}
egress: {allow: [127.0.0.0/8]}
admission: {disk_warn_percent: 100, disk_refuse_percent: 100}
engine: {drain_timeout: 2s}
profiles:
  quick:
    policy:
      schedule: {backoff: {fixed: {wait: 100ms}}, jitter: none, max_attempts: 5}
  once:
    policy: {schedule: {max_attempts: 1}}
";

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// With the configuration of most tests.
    pub fn new() -> Self {
        Self::with(CONFIG)
    }

    /// With a configuration of its own.
    pub fn with(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Self { dir, key: None, tenant: None, env: Vec::new() };
        home.write("posthorn.yaml", config);
        home
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where servers keep their data.
    pub fn data(&self) -> PathBuf {
        self.path().join("posthorn-data")
    }

    /// The text of a file in it.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("readable")
    }

    /// Writes a file in it, and says where that is.
    #[track_caller]
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let file = self.path().join(name);
        std::fs::write(&file, text).expect("written");
        file
    }

    /// Adds to the configuration.
    #[track_caller]
    pub fn configure(&self, more: &str) {
        self.write("posthorn.yaml", self.read("posthorn.yaml") + more);
    }

    /// Changes something in the configuration, which must be there.
    #[track_caller]
    pub fn edit(&self, from: &str, to: &str) {
        let text = self.read("posthorn.yaml");
        assert!(text.contains(from), "`{from}` is not in:\n{text}");
        self.write("posthorn.yaml", text.replace(from, to));
    }

    /// Has its servers keep their data in this database.
    #[track_caller]
    pub fn store_in(&self, url: &str) {
        let file = self.write("url", url);
        self.configure(&format!("store: {{url: 'file:{}'}}\n", file.display()));
    }

    /// The program in this directory.
    pub fn command(&self) -> Command {
        posthorn(self.path())
    }

    /// Runs a command to its end.
    #[track_caller]
    pub fn run(&self, args: &(impl Args + ?Sized)) -> Ran {
        Ran::of(self.command().args(args.list()))
    }

    /// Itself, and its first server.
    #[track_caller]
    pub fn served(mut self) -> (Self, Server) {
        let server = self.serve();
        (self, server)
    }

    /// Starts a server and waits until it listens.
    #[track_caller]
    pub fn serve(&mut self) -> Server {
        self.serve_with("")
    }

    /// The same with more arguments.
    #[track_caller]
    pub fn serve_with(&mut self, more: &(impl Args + ?Sized)) -> Server {
        let address = self.path().join("address");
        drop(std::fs::remove_file(&address));
        let mut command = self.command();
        command.args(["serve", "--address-file"]).arg(&address).args(more.list());
        command.envs(self.env.iter().cloned());
        let mut running = Running::start(&mut command);
        let url = running.wait_for("address", |_| std::fs::read_to_string(&address).ok());
        let key = self.key.get_or_insert_with(|| read_key(&self.dir.path().join("posthorn-data")));
        let (url, key) = (url.trim().to_owned(), key.clone());
        let (tenant, dir) = (self.tenant.clone(), self.path().to_owned());
        Server { running, url, key, tenant, dir }
    }
}

/// The operator key that the first start left in its data folder.
#[track_caller]
pub fn read_key(data: &Path) -> String {
    let file = data.join("operator.key");
    let text = std::fs::read_to_string(&file);
    text.unwrap_or_else(|e| panic!("{}: {e}", file.display())).trim().to_owned()
}

/// The `id` of something.
#[track_caller]
pub fn id_of(thing: &Value) -> String {
    thing["id"].as_str().unwrap_or_else(|| panic!("no id in {thing}")).to_owned()
}

/// A server that listens.
pub struct Server {
    /// Its process.
    pub running: Running,
    /// Where it listens.
    pub url: String,
    /// The operator key.
    pub key: String,
    tenant: Option<String>,
    dir: PathBuf,
}

impl Server {
    /// A command that talks to it.
    pub fn command(&self) -> Command {
        let mut command = posthorn(&self.dir);
        command.env("POSTHORN_SERVER", &self.url).env("POSTHORN_KEY", &self.key);
        command.envs(self.tenant.iter().map(|tenant| ("POSTHORN_TENANT", tenant)));
        command
    }

    /// Runs a command to its end.
    #[track_caller]
    pub fn run(&self, args: &(impl Args + ?Sized)) -> Ran {
        Ran::of(self.command().args(args.list()))
    }

    /// Runs a command, which must succeed, and reads its data.
    #[track_caller]
    pub fn ask(&self, args: &(impl Args + ?Sized)) -> Value {
        Ran::of(self.command().args(args.list()).arg("--json")).exits(0).json()
    }

    /// A request without a key.
    pub fn open(&self, method: &str, path: &str) -> Call {
        call(&self.url, method, path)
    }

    /// A request of the operator.
    pub fn call(&self, method: &str, path: &str) -> Call {
        self.open(method, path).key(&self.key)
    }

    /// A page that needs no key.
    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.open("GET", path).send()
    }

    /// Its metrics.
    #[track_caller]
    pub fn metrics(&self) -> String {
        self.get("/metrics").with(200).body
    }

    /// What a counter or gauge stands at, by how its line begins; 0 when it is not there.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let metrics = self.metrics();
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(0.0)
    }

    /// Waits until so many deliveries are in these states.
    #[track_caller]
    pub fn settles(&self, states: &[(&str, usize)]) {
        until(&format!("{states:?}"), || {
            let stats = self.ask(&["stats"]);
            states.iter().all(|(state, count)| stats[state] == *count)
        });
    }

    /// Starts a receiver that is subscribed, and waits until it is. Returns its address.
    #[track_caller]
    pub fn listen(&self, args: &(impl Args + ?Sized)) -> (Running, String) {
        let args = args.list();
        let mut listener = Running::start(self.command().arg("listen").args(&args));
        let address = listener.wait_for("address", |text| {
            let line = text.lines().find(|line| line.starts_with("listening on http://"))?;
            line.rsplit(' ').next().map(str::to_owned)
        });
        if args.iter().any(|arg| arg == "--subscribe") {
            listener.wait_for("subscription", |text| text.contains("subscribed to").then_some(()));
        }
        (listener, address)
    }

    /// Stops it as a supervisor would.
    #[track_caller]
    pub fn stop(mut self) {
        self.running.signal("TERM");
        let status = self.running.wait();
        assert_eq!(status.code(), Some(0), "{}", self.running.stderr());
    }
}
