//! Finding PostgreSQL's programs, and running them as somebody it agrees to run as.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Error, Result};

/// Accounts that a server may be run as when the tests are root, best first.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// Where the programs are, and who runs them.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    bin: PathBuf,
    /// User and group id, when the present user is root.
    run_as: Option<(u32, u32)>,
}

impl Install {
    pub(crate) fn find() -> Result<Self> {
        let bin = candidates()
            .into_iter()
            .find(|bin| ["initdb", "pg_ctl", "postgres"].iter().all(|p| bin.join(p).is_file()))
            .ok_or(Error::NotInstalled)?;
        let is_root = capture(Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0");
        let run_as = if is_root { USERS.iter().find_map(|user| ids_of(user)) } else { None };
        Ok(Self { bin, run_as })
    }

    /// One of PostgreSQL's programs, to be run by the right user.
    pub(crate) fn command(&self, program: &str) -> Command {
        let here = self.bin.join(program);
        // The client may be packaged apart from the server.
        self.as_server(if here.is_file() { &here } else { Path::new(program) })
    }

    /// A program, to be run by the right user.
    pub(crate) fn as_server(&self, program: &Path) -> Command {
        match self.run_as {
            None => Command::new(program),
            Some((user, group)) => {
                let mut command = Command::new("setpriv");
                command
                    .args([format!("--reuid={user}"), format!("--regid={group}")])
                    .args(["--clear-groups", "--"])
                    .arg(program);
                command
            }
        }
    }

    /// Runs a command to its end and returns what it printed.
    pub(crate) fn run(&self, command: &mut Command) -> Result<String> {
        let program = format!("{command:?}");
        let output = command
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .map_err(|source| Error::Run { program: program.clone(), source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(Error::Failed { program, output: String::from_utf8_lossy(&said).trim().to_owned() })
    }

    /// Makes a cluster nobody has used, as a copy of one that is made on first use.
    pub(crate) fn fresh_cluster(&self, data: &Path) -> Result<()> {
        let Some(pattern) = self.pattern() else { return self.init(data) };
        if !pattern.is_dir() {
            // Made elsewhere and renamed when it is complete. Another process may be first; its pattern is as good.
            let made = data.with_extension("pattern");
            self.init(&made)?;
            let whole = pattern.with_extension(std::process::id().to_string());
            copy(&made, &whole)?;
            drop(fs::rename(&whole, &pattern));
            drop(fs::remove_dir_all(&whole));
            drop(fs::remove_dir_all(&made));
        }
        copy(&pattern, data)?;
        let Some((user, group)) = self.run_as else { return Ok(()) };
        let mut chown = Command::new("chown");
        self.run(chown.arg("-R").arg(format!("{user}:{group}")).arg(data)).map(drop)
    }

    /// Where the pattern of this version's clusters is kept: beside the program that runs.
    fn pattern(&self) -> Option<PathBuf> {
        let version = capture(Command::new(self.bin.join("postgres")).arg("--version"))?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = version.trim().chars().map(plain).collect();
        Some(std::env::current_exe().ok()?.parent()?.join(format!("cluster-{name}")))
    }

    fn init(&self, data: &Path) -> Result<()> {
        let arguments = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        let data = format!("--pgdata={}", data.display());
        self.run(self.command("initdb").args(arguments).args(["--no-sync", &data])).map(drop)
    }

    /// Makes a folder the server's own.
    pub(crate) fn give_away(&self, folder: &Path) -> Result<()> {
        let Some((user, group)) = self.run_as else { return Ok(()) };
        std::os::unix::fs::chown(folder, Some(user), Some(group))
            .map_err(|source| Error::Io { action: "give the folder to the server", source })
    }

    pub(crate) fn append(&self, file: &Path, text: &str) -> Result<()> {
        fs::OpenOptions::new()
            .append(true)
            .open(file)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|source| Error::Io { action: "write the configuration", source })
    }

    /// Writes a file that only the server may read.
    pub(crate) fn write(&self, file: &Path, text: &str) -> Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(file)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|source| Error::Io { action: "write a file for the server", source })?;
        self.give_away(file)
    }

    /// Starts a script that waits for the end of its input.
    pub(crate) fn guard(&self, script: &str, folder: &Path) -> Result<Child> {
        super::watchdog(self.as_server(Path::new("sh")), script, &self.bin.join("pg_ctl"), folder)
    }

    /// Where PostgreSQL's programs are.
    pub(crate) fn bin(&self) -> &Path {
        &self.bin
    }
}

/// Copies a folder that is only read by its owner.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["-R", "--reflink=auto", "--preserve=mode"]).arg(from).arg(to);
    let output = copy.stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::Run { program: "cp".to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Failed { program: "cp".to_owned(), output: said })
}

/// Folders where the server's programs may be, best first.
fn candidates() -> Vec<PathBuf> {
    // Somebody wants to know about one version, and about no other.
    if let Some(bin) = std::env::var_os("POSTHORN_TEST_POSTGRES") {
        return vec![PathBuf::from(bin)];
    }
    let mut found = Vec::new();
    if let Some(text) = capture(Command::new("pg_config").arg("--bindir")) {
        found.push(PathBuf::from(text.trim()));
    }
    if let Ok(entries) = fs::read_dir("/usr/lib/postgresql") {
        let mut versions: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        versions.sort();
        found.extend(versions.into_iter().rev().map(|version| version.join("bin")));
    }
    if let Some(path) = std::env::var_os("PATH") {
        found.extend(std::env::split_paths(&path));
    }
    found
}

fn ids_of(user: &str) -> Option<(u32, u32)> {
    let number = |flag: &str| capture(Command::new("id").args([flag, user]))?.trim().parse().ok();
    Some((number("-u")?, number("-g")?))
}

fn capture(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The processes that another one started and that are still there.
pub(crate) fn children(parent: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|pid| stat(pid).is_some_and(|(_, its_parent)| its_parent == parent)).collect()
}

/// Whether a process is there and is not a zombie.
pub(crate) fn is_running(pid: &str) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z")
}

/// State and parent of a process: the two fields after its name, which is in parentheses.
fn stat(pid: &str) -> Option<(String, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}
