//! Two throw-away machines with PostgreSQL under Patroni, one the synchronous standby of the other, and three members
//! of etcd that say which is which.
//!
//! # What it is for
//! Everything of it can be killed, frozen and cut off, and started again. Clients reach a machine through links of their
//! own ([`Patroni::reach`]), so that they can be cut off one by one.
//!
//! # Theory of operation
//! A machine is its Patroni, its PostgreSQL and the links between it and all others: the other machine's replication and
//! questions, and etcd. Ports are free ones of loopback; files are in one temporary folder. As with
//! [`crate::postgres`], nothing runs as root, and a watchdog ends everything when this process does.
//!
//! # What it must not know
//! Posthorn.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::link::Link;
use crate::postgres::install::{self, Install};
use crate::postgres::{Error, Result, free_port};

/// How many machines there are.
pub const MACHINES: usize = 2;
/// How many members etcd has.
pub const MEMBERS: usize = 3;
/// How long the word of the primary counts without being renewed: about how long a fail-over takes.
pub const TTL: Duration = Duration::from_secs(12);
/// Between two looks at processes that are about to leave.
const KILL_PAUSE: Duration = Duration::from_millis(10);
/// How often etcd is asked whether its members agree, and how long after each other.
const AGREE_LOOKS: u32 = 300;
const AGREE_PAUSE: Duration = Duration::from_millis(100);

/// Waits for the end of its input, then ends everything and removes the folder.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
cat > /dev/null
for file in "$2"/*.pid; do kill -KILL "$(cat "$file")" 2> /dev/null; done
for data in "$2"/data-*; do
  pid=$(head -n 1 "$data/postmaster.pid" 2> /dev/null) || continue
  kill -CONT -- "$pid" 2> /dev/null
  "$1" stop --mode=immediate --pgdata="$data" --silent > /dev/null 2>&1
done
rm -rf "$2"
"#;

/// A machine of the database.
#[derive(Debug)]
struct Machine {
    /// Where its PostgreSQL really listens, and its Patroni.
    postgres: u16,
    rest: u16,
    /// Ways of the other machine to it.
    from_peer: [Link; 2],
    /// Its ways to etcd.
    to_etcd: Vec<Link>,
    patroni: Mutex<Option<Child>>,
}

/// A member of etcd.
#[derive(Debug)]
struct Member {
    client: u16,
    peer: u16,
    process: Mutex<Option<Child>>,
}

/// The whole of it. Dropping it ends everything.
#[derive(Debug)]
pub struct Patroni {
    install: Install,
    folder: PathBuf,
    logs: PathBuf,
    machines: Vec<Machine>,
    members: Vec<Member>,
    watchdog: Child,
}

impl Patroni {
    /// What is missing on this machine, if something is.
    pub fn missing() -> Option<&'static str> {
        let there = |program: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
        };
        ["patroni", "etcd"].into_iter().find(|program| !there(program))
    }

    /// Starts everything, and returns before there is a primary. What is said is kept in `logs`, which stays.
    pub async fn start(logs: &Path) -> Result<Self> {
        let install = Install::find()?;
        let io = |action| move |source| Error::Io { action, source };
        let folder = tempfile::Builder::new().prefix("posthorn-patroni-").tempdir();
        let folder = folder.map_err(io("make a folder"))?;
        install.give_away(folder.path())?;
        let mut members = Vec::new();
        for _ in 0..MEMBERS {
            let process = Mutex::new(None);
            members.push(Member { client: free_port()?, peer: free_port()?, process });
        }
        let mut machines = Vec::new();
        for _ in 0..MACHINES {
            let (postgres, rest) = (free_port()?, free_port()?);
            let open = async |port| Link::open(port).await.map_err(io("open a link"));
            let mut to_etcd = Vec::new();
            for member in &members {
                to_etcd.push(open(member.client).await?);
            }
            let from_peer = [open(postgres).await?, open(rest).await?];
            machines.push(Machine {
                postgres,
                rest,
                from_peer,
                to_etcd,
                patroni: Mutex::new(None),
            });
        }
        let folder = folder.keep();
        let watchdog = install.guard(WATCHDOG, &folder)?;
        let logs = logs.to_owned();
        let this = Self { install, folder, logs, machines, members, watchdog };
        for member in 0..MEMBERS {
            this.start_member(member)?;
        }
        this.agreed().await?;
        for machine in 0..MACHINES {
            this.start_machine(machine)?;
        }
        Ok(this)
    }

    /// Waits until the members of etcd have agreed on what they are; Patroni does not survive it otherwise.
    async fn agreed(&self) -> Result<()> {
        let mut said = String::new();
        for _ in 0..AGREE_LOOKS {
            said = version(self.members[0].client).await.unwrap_or_default();
            if said.contains("etcdcluster") && !said.contains("not_decided") {
                return Ok(());
            }
            tokio::time::sleep(AGREE_PAUSE).await;
        }
        Err(Error::Failed { program: "etcd".to_owned(), output: format!("no agreement: {said}") })
    }

    /// A new way to the PostgreSQL of a machine.
    pub async fn reach(&self, machine: usize) -> Result<Link> {
        let link = Link::open(self.machines[machine].postgres).await;
        link.map_err(|source| Error::Io { action: "open a link", source })
    }

    /// Where the Patroni of a machine answers, whatever is cut.
    pub fn rest(&self, machine: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.machines[machine].rest))
    }

    /// What a machine is called.
    pub fn name(machine: usize) -> String {
        format!("db{machine}")
    }

    /// Runs a statement as superuser on a machine.
    pub fn sql(&self, machine: usize, statement: &str) -> Result<String> {
        let port = self.machines[machine].postgres;
        self.install.run(self.install.command("psql").args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
            &format!("--dbname=postgres://postgres@127.0.0.1:{port}/postgres"),
            &format!("--command={statement}"),
        ]))
    }

    /// Starts a machine that does not run.
    pub fn start_machine(&self, machine: usize) -> Result<()> {
        let name = Self::name(machine);
        let file = self.folder.join(format!("{name}.yml"));
        self.install.write(&file, &self.config(machine))?;
        let mut command = self.install.as_server(Path::new("patroni"));
        command.arg(&file);
        *self.machines[machine].patroni.lock() = Some(self.spawn(command, &name)?);
        Ok(())
    }

    /// Starts the Patroni of a machine anew, under which its PostgreSQL goes on.
    pub fn restart_patroni(&self, machine: usize) -> Result<()> {
        let child = self.machines[machine].patroni.lock().take();
        child.map_or(Ok(()), end)?;
        self.start_machine(machine)
    }

    /// Kills everything on a machine, as a power cut would.
    pub fn kill_machine(&self, machine: usize) -> Result<()> {
        if let Some(child) = self.machines[machine].patroni.lock().take() {
            end(child)?;
        }
        self.kill_postgres(machine)
    }

    /// Kills the PostgreSQL of a machine; its Patroni stays.
    pub fn kill_postgres(&self, machine: usize) -> Result<()> {
        let processes = self.postgres_processes(machine);
        if processes.is_empty() {
            return Ok(());
        }
        signal("KILL", &processes)?;
        while processes.iter().any(|pid| install::is_running(pid)) {
            sleep(KILL_PAUSE);
        }
        // Where nobody reaps orphans the dead server would be taken for a live one. It is removed unless a new server
        // has already written its own.
        let file = self.data(machine).join("postmaster.pid");
        let is_old = std::fs::read_to_string(&file)
            .is_ok_and(|text| text.lines().next() == processes.first().map(String::as_str));
        if is_old {
            drop(std::fs::remove_file(&file));
        }
        Ok(())
    }

    /// Freezes everything on a machine.
    pub fn freeze_machine(&self, machine: usize) -> Result<()> {
        signal("STOP", &self.processes(machine))
    }

    /// Lets a machine go on.
    pub fn thaw_machine(&self, machine: usize) -> Result<()> {
        signal("CONT", &self.processes(machine))
    }

    /// Cuts a machine off from the other one and from etcd; the ways of clients are theirs to cut.
    pub fn cut_machine(&self, machine: usize) {
        self.wires(machine).for_each(Link::cut);
    }

    /// Makes whole what [`Self::cut_machine`] cut.
    pub fn mend_machine(&self, machine: usize) {
        self.wires(machine).for_each(Link::mend);
    }

    /// All wires but those of clients. There are two machines, so what leads to the other one comes from this one.
    fn wires(&self, machine: usize) -> impl Iterator<Item = &Link> {
        let peers = self.machines.iter().flat_map(|machine| &machine.from_peer);
        self.machines[machine].to_etcd.iter().chain(peers)
    }

    /// Starts a member of etcd that does not run.
    pub fn start_member(&self, index: usize) -> Result<()> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let member = &self.members[index];
        let all: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(index, member)| format!("etcd{index}={}", url(member.peer)))
            .collect();
        let name = format!("etcd{index}");
        let mut command = self.install.as_server(Path::new("etcd"));
        command
            .arg(format!("--name={name}"))
            .arg(format!("--data-dir={}", self.folder.join(&name).display()))
            .arg(format!("--listen-client-urls={}", url(member.client)))
            .arg(format!("--advertise-client-urls={}", url(member.client)))
            .arg(format!("--listen-peer-urls={}", url(member.peer)))
            .arg(format!("--initial-advertise-peer-urls={}", url(member.peer)))
            .arg(format!("--initial-cluster={}", all.join(",")));
        *member.process.lock() = Some(self.spawn(command, &name)?);
        Ok(())
    }

    /// Kills a member of etcd.
    pub fn kill_member(&self, index: usize) -> Result<()> {
        self.members[index].process.lock().take().map_or(Ok(()), end)
    }

    /// Freezes a member of etcd.
    pub fn freeze_member(&self, index: usize) -> Result<()> {
        self.signal_member(index, "STOP")
    }

    /// Lets a member of etcd go on.
    pub fn thaw_member(&self, index: usize) -> Result<()> {
        self.signal_member(index, "CONT")
    }

    fn signal_member(&self, index: usize, name: &str) -> Result<()> {
        let process = self.members[index].process.lock();
        signal(name, &process.iter().map(|child| child.id().to_string()).collect::<Vec<_>>())
    }

    /// What a process last said, for whoever wonders.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    fn data(&self, machine: usize) -> PathBuf {
        self.folder.join(format!("data-{}", Self::name(machine)))
    }

    fn processes(&self, machine: usize) -> Vec<String> {
        let patroni = self.machines[machine].patroni.lock();
        let patroni = patroni.iter().map(|child| child.id().to_string());
        patroni.chain(self.postgres_processes(machine)).collect()
    }

    /// The server of a machine, and then its children.
    fn postgres_processes(&self, machine: usize) -> Vec<String> {
        let file = self.data(machine).join("postmaster.pid");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let Some(server) = text.lines().next().map(|pid| pid.trim().to_owned()) else {
            return Vec::new();
        };
        if !install::is_running(&server) {
            return Vec::new();
        }
        let children = install::children(&server);
        [server].into_iter().chain(children).collect()
    }

    fn spawn(&self, mut command: Command, name: &str) -> Result<Child> {
        use std::os::unix::process::CommandExt;
        let failed = |source| Error::Run { program: name.to_owned(), source };
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log(name));
        let log = log.map_err(failed)?;
        let child = command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        self.install.write(&self.folder.join(format!("{name}.pid")), &child.id().to_string())?;
        Ok(child)
    }

    fn config(&self, machine: usize) -> String {
        let Machine { postgres, rest, from_peer: [replication, questions], to_etcd, .. } =
            &self.machines[machine];
        let etcd: Vec<String> =
            to_etcd.iter().map(|link| format!("127.0.0.1:{}", link.port())).collect();
        format!(
            "scope: posthorn\n\
             name: {name}\n\
             restapi: {{listen: '127.0.0.1:{rest}', connect_address: '127.0.0.1:{questions}'}}\n\
             etcd3: {{hosts: '{etcd}', use_proxies: true}}\n\
             bootstrap:\n  dcs:\n    ttl: {ttl}\n    loop_wait: 1\n    retry_timeout: 3\n    \
             maximum_lag_on_failover: 1048576\n    synchronous_mode: true\n    failsafe_mode: true\n    \
             postgresql:\n      use_pg_rewind: true\n      use_slots: true\n      \
             parameters: {{max_connections: 100, wal_keep_size: 256MB, shared_buffers: 64MB}}\n  \
             initdb: [{{encoding: UTF8}}, {{auth: trust}}, {{locale: C}}]\n  \
             pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust']\n\
             postgresql:\n  listen: '127.0.0.1:{postgres}'\n  connect_address: '127.0.0.1:{replication}'\n  \
             data_dir: {data}\n  bin_dir: {bin}\n  pgpass: {folder}/{name}.pgpass\n  \
             basebackup: [{{checkpoint: fast}}]\n  \
             remove_data_directory_on_rewind_failure: true\n  \
             remove_data_directory_on_diverged_timelines: true\n  \
             parameters: {{unix_socket_directories: '{folder}'}}\n  authentication:\n    \
             superuser: {{username: postgres, password: x}}\n    \
             replication: {{username: replicator, password: x}}\n    \
             rewind: {{username: rewinder, password: x}}\n",
            name = Self::name(machine),
            questions = questions.port(),
            replication = replication.port(),
            etcd = etcd.join(","),
            ttl = TTL.as_secs(),
            data = self.data(machine).display(),
            bin = self.install.bin().display(),
            folder = self.folder.display(),
        )
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        // Nothing can be done about a watchdog that fails, and the test has its verdict already.
        let _ = self.watchdog.wait();
        let machines = self.machines.iter_mut().map(|machine| machine.patroni.get_mut());
        let members = self.members.iter_mut().map(|member| member.process.get_mut());
        for child in machines.chain(members).flatten() {
            let _ = child.wait();
        }
    }
}

/// What a member of etcd says of its version.
async fn version(port: u16) -> std::io::Result<String> {
    // Loopback only, to a process that was started here.
    #[allow(clippy::disallowed_methods)]
    let mut stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"GET /version HTTP/1.0\r\n\r\n").await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    Ok(said)
}

fn end(mut child: Child) -> Result<()> {
    let failed = |source| Error::Run { program: "kill".to_owned(), source };
    child.kill().and_then(|()| child.wait()).map(drop).map_err(failed)
}

/// Some may have gone meanwhile.
fn signal(name: &str, processes: &[String]) -> Result<()> {
    if processes.is_empty() {
        return Ok(());
    }
    let failed = |source| Error::Run { program: "kill".to_owned(), source };
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).args(processes).stderr(Stdio::null());
    kill.status().map(drop).map_err(failed)
}
