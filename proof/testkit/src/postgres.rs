//! A throw-away PostgreSQL server for tests.
//!
//! # What it is for
//! [`TestPostgres::start`] makes a fresh cluster in a temporary folder on a free loopback port, and
//! removes both when it is dropped. It can be stopped without a checkpoint, killed and started
//! again, which is what crash tests need. [`shared`] is one server for the whole test process.
//!
//! # Theory of operation
//! The newest version on this machine is used, or the one whose programs are in the folder `POSTHORN_TEST_POSTGRES`.
//!
//! A cluster is made once, kept beside the test programs and copied, which is quicker. `pg_ctl` does
//! the starting and stopping. A watchdog, three lines of shell, waits for its
//! standard input to end and then stops the server and removes the folder. Its input is a pipe that
//! this process holds: it closes on drop, and also when the process panics, exits with statics
//! undropped, or is killed. So no server is ever left behind, without any signal handling here.
//!
//! PostgreSQL refuses to run as root. When the tests run as root, everything is run as `postgres`,
//! or `nobody`, by means of `setpriv`.
//!
//! # What it must not know
//! Posthorn. It is a server with databases, nothing more.

pub(crate) mod install;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use install::Install;

/// How often starting is tried: another process may take the free port first, and backends of a
/// killed server need a moment to let go of its shared memory.
const START_TRIES: u32 = 20;
/// Between two tries.
const START_PAUSE: Duration = Duration::from_millis(250);

/// Between two looks at processes that are about to leave.
const KILL_PAUSE: Duration = Duration::from_millis(10);

/// Waits for the end of its input, then stops the server and removes the folder.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
cat > /dev/null
"$1" stop --mode=immediate --pgdata="$2/data" --silent > /dev/null 2>&1
rm -rf "$2"
"#;

/// What can go wrong with a test server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No PostgreSQL on this machine.
    #[error(
        "no PostgreSQL server programs were found (POSTHORN_TEST_POSTGRES, or pg_config, /usr/lib/postgresql, PATH)"
    )]
    NotInstalled,
    /// A program could not be run.
    #[error("failed to run {program}")]
    Run {
        /// Which.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("{program} failed: {output}")]
    Failed {
        /// Which.
        program: String,
        /// What it said.
        output: String,
    },
    /// The folder or the port could not be had.
    #[error("failed to {action}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// The result of every call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a test server is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether commits wait for the disk. Off is faster and loses data when the machine crashes,
    /// which no test here does to itself.
    pub fsync: bool,
    /// How many connections it takes.
    pub max_connections: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self { fsync: true, max_connections: 200 }
    }
}

/// A running server. Dropping it stops it and removes everything.
#[derive(Debug)]
pub struct TestPostgres {
    install: Install,
    folder: PathBuf,
    port: u16,
    watchdog: Child,
}

impl TestPostgres {
    /// A fresh, durable server.
    pub fn start() -> Result<Self> {
        Self::start_with(Settings::default())
    }

    /// A fresh server.
    pub fn start_with(settings: Settings) -> Result<Self> {
        let install = Install::find()?;
        let folder = tempfile::Builder::new()
            .prefix("posthorn-testpg-")
            .tempdir()
            .map_err(|source| Error::Io { action: "make a folder", source })?;
        install.give_away(folder.path())?;
        let data = folder.path().join("data");
        install.fresh_cluster(&data)?;
        let port = free_port()?;
        install.append(&data.join("postgresql.conf"), &config(folder.path(), port, settings))?;
        // From here on the watchdog owns the folder, whatever happens.
        let folder = folder.keep();
        let watchdog = install.guard(WATCHDOG, &folder)?;
        let server = Self { install, folder, port, watchdog };
        server.launch()?;
        Ok(server)
    }

    /// Where its first database is.
    pub fn url(&self) -> String {
        self.database_url("postgres")
    }

    /// Where a database of this name is, or would be.
    pub fn database_url(&self, name: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{name}", self.port)
    }

    /// Makes an empty database and says where it is.
    pub fn create_database(&self, name: &str) -> Result<String> {
        self.sql(&format!("create database \"{name}\""))?;
        Ok(self.database_url(name))
    }

    /// Makes a copy of a database to which nobody is connected, and says where it is.
    pub fn copy_database(&self, name: &str, template: &str) -> Result<String> {
        self.sql(&format!("create database \"{name}\" template \"{template}\""))?;
        Ok(self.database_url(name))
    }

    /// Runs a statement as superuser in the first database, and returns its bare output.
    pub fn sql(&self, statement: &str) -> Result<String> {
        self.install.run(self.install.command("psql").args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            &format!("--dbname={}", self.url()),
            &format!("--command={statement}"),
        ]))
    }

    /// From the next connection on the server offers TLS with this certificate (both in PEM).
    pub fn enable_tls(&self, certificate: &str, key: &str) -> Result<()> {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            self.install.write(&self.data().join(name), text)?;
        }
        self.sql("alter system set ssl = on")?;
        self.sql("select pg_reload_conf()").map(drop)
    }

    /// Stops without a checkpoint, as after a power cut: the next start recovers from the log.
    pub fn stop_immediate(&self) -> Result<()> {
        self.pg_ctl(&["stop", "--mode=immediate"]).map(drop)
    }

    /// Kills the server process with `SIGKILL`, and returns when its children have left too.
    pub fn kill_postmaster(&self) -> Result<()> {
        let path = self.data().join("postmaster.pid");
        let text = fs::read_to_string(&path)
            .map_err(|source| Error::Io { action: "read the server's process id", source })?;
        let pid = text.lines().next().unwrap_or_default().trim().to_owned();
        let children = install::children(&pid);
        self.install.run(Command::new("kill").args(["-KILL", &pid]))?;
        while children.iter().chain([&pid]).any(|pid| install::is_running(pid)) {
            sleep(KILL_PAUSE);
        }
        // Where nobody reaps orphans the dead server stays as a zombie, and `pg_ctl` would take it
        // for a live one. Nobody is left who could still write, so the file may go.
        fs::remove_file(&path)
            .map_err(|source| Error::Io { action: "remove the server's process id", source })
    }

    /// Starts it again, stopping it first without a checkpoint when it still runs. The address
    /// stays the same.
    pub fn restart(&self) -> Result<()> {
        if self.pg_ctl(&["status"]).is_ok() {
            self.stop_immediate()?;
        }
        self.launch()
    }

    fn launch(&self) -> Result<()> {
        let log = format!("--log={}", self.folder.join("log").display());
        let mut tries = 1;
        loop {
            match self.pg_ctl(&["start", "--wait", &log]) {
                Ok(_) => return Ok(()),
                Err(_) if tries < START_TRIES => {
                    tries += 1;
                    sleep(START_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn pg_ctl(&self, args: &[&str]) -> Result<String> {
        let data = format!("--pgdata={}", self.data().display());
        self.install.run(self.install.command("pg_ctl").args(args).args(["--silent", &data]))
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        // Nothing can be done about a watchdog that fails, and the test has its verdict already.
        let _ = self.watchdog.wait();
    }
}

/// One server for the whole process, without fsync, started on first use. It goes away with the
/// process.
pub fn shared() -> &'static TestPostgres {
    static SHARED: OnceLock<TestPostgres> = OnceLock::new();
    SHARED.get_or_init(|| {
        TestPostgres::start_with(Settings { fsync: false, ..Settings::default() })
            .expect("tests need a PostgreSQL server")
    })
}

fn config(folder: &Path, port: u16, settings: Settings) -> String {
    let fsync = if settings.fsync { "on" } else { "off" };
    format!(
        "\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{folder}'\n\
         max_connections = {max}\nfsync = {fsync}\nfull_page_writes = {fsync}\n\
         shared_buffers = 256MB\nmax_wal_size = 2GB\nlog_checkpoints = off\n",
        folder = folder.display(),
        max = settings.max_connections,
    )
}

pub(crate) fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|source| Error::Io { action: "find a free port", source })
}

/// A watchdog, for [`Install::guard`]: a script that gets `pg_ctl` and the folder.
fn watchdog(mut shell: Command, script: &str, pg_ctl: &Path, folder: &Path) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    shell
        .args(["-c", script, "watchdog"])
        .arg(pg_ctl)
        .arg(folder)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Not in our group: an interrupt at the terminal must not end it before its work.
        .process_group(0)
        .spawn()
        .map_err(|source| Error::Run { program: "sh".to_owned(), source })
}

#[cfg(test)]
mod tests;
