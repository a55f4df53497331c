//! A pooler between a store and its database, and databases that are tried before they are used.
//!
//! Without PgBouncer on this machine nothing is proven here, and that is said. The variable `POSTHORN_TEST_PGBOUNCER`
//! names one that keeps prepared statements (1.21 or newer). Then the whole suite runs through it, in sessions that
//! all stores of a database share; `proof/pgbouncer` does that.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use posthorn_store::{Error, Store};
use posthorn_store_postgres::{Options, PostgresStore, probe};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use crate::fixture::{database, options};
use crate::shared_sessions::obey;

/// Runs the pooler until the input ends: with its owner, also when that is killed.
const UNTIL_INPUT_ENDS: &str = r#""$@" & cat > /dev/null; kill "$!""#;
/// How many connections a pooler that is shared by the suite opens to one database, and keeps idle for how long.
const SHARED: &str =
    "default_pool_size = 6\nserver_idle_timeout = 2\nmax_prepared_statements = 200\n";

/// Ends with the test.
struct Bouncer {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Bouncer {
    /// A database of the server behind it.
    fn url(&self, direct: &str) -> String {
        let (_, name) = direct.rsplit_once('/').expect("a database");
        format!("{}/{name}", self.address)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// One that keeps prepared statements, where somebody gave one.
fn given() -> Option<OsString> {
    env::var_os("POSTHORN_TEST_PGBOUNCER").filter(|program| !program.is_empty())
}

/// A PgBouncer before the server of a database; none where it is not installed.
fn bouncer(url: &str, mode: &str) -> Option<Bouncer> {
    let installed = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].map(OsString::from);
    let program = given().or_else(|| installed.into_iter().find(|path| Path::new(path).is_file()));
    let Some(program) = program else {
        // Also where a test that succeeds says nothing.
        let _ = writeln!(std::io::stderr(), "SKIPPED: pgbouncer is not on this machine");
        return None;
    };
    let (address, _) = url.rsplit_once('/').expect("a database");
    let (_, server) = address.rsplit_once(':').expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
    let (file, users) = (folder.path().join("pgbouncer.ini"), folder.path().join("users"));
    fs::write(&users, "\"postgres\" \"\"\n").expect("a file");
    let text = format!(
        "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir =\nauth_type = any\nauth_file = {users}\npool_mode = {mode}\n\
         max_client_conn = 1000\nignore_startup_parameters = extra_float_digits\n{more}",
        users = users.display(),
        more = if given().is_some() { SHARED } else { "default_pool_size = 20\n" },
    );
    fs::write(&file, text).expect("a file");
    // It refuses to run as root, as PostgreSQL does.
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    let mut command = match is_root {
        false => Command::new("sh"),
        true => {
            use std::os::unix::fs::PermissionsExt;
            let open = fs::Permissions::from_mode(0o755);
            fs::set_permissions(folder.path(), open).expect("a folder that others read");
            let mut command = Command::new("setpriv");
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--", "sh"]);
            command
        }
    };
    let child = command
        .args(["-c", UNTIL_INPUT_ENDS, "sh"])
        .arg(program)
        .arg("-q")
        .arg(&file)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("pgbouncer starts");
    let address = format!("postgres://postgres@127.0.0.1:{port}");
    Some(Bouncer { child, address, _folder: folder })
}

/// A pooler in transaction mode that the whole suite shares, and what it wants a role to have.
struct Through {
    pooler: Bouncer,
    told: String,
}

/// The one that was given.
async fn through() -> Option<&'static Through> {
    static THROUGH: OnceCell<Through> = OnceCell::const_new();
    given()?;
    let made = THROUGH.get_or_init(|| async {
        let url = database().await;
        let pooler = bouncer(&url, "transaction").expect("it was given");
        let refusal = connect(listening(&pooler, &url)).await.err().expect("no role is set up");
        Through { pooler, told: format!("{refusal:?}") }
    });
    Some(made.await)
}

fn listening(pooler: &Bouncer, url: &str) -> Options {
    Options { listen_url: Some(url.to_owned()), ..options(&pooler.url(url)) }
}

/// Sets up a database for the pooler that was given.
pub(crate) async fn prepare(url: &str) {
    if let Some(through) = through().await {
        obey(url, &through.told).await;
    }
}

/// How the stores of the suite reach a database: through the pooler that was given, or directly.
pub(crate) async fn way_to(url: &str) -> Options {
    match through().await {
        None => options(url),
        Some(through) => listening(&through.pooler, url),
    }
}

/// Until the pooler is there.
async fn connect(options: Options) -> Result<PostgresStore, Error> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match PostgresStore::connect(options.clone()).await {
            Err(error) if error.is_transient() && Instant::now() < until => {
                sleep(Duration::from_millis(100)).await;
            }
            result => return result,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_keeps_sessions_apart_changes_nothing() {
    let url = database().await;
    let Some(pooler) = bouncer(&url, "session") else { return };
    let store = connect(options(&pooler.url(&url))).await.expect("a connection");
    store.ping().await.expect("an answer");
    let other = crate::fixture::connect(&url).await;
    // Also hints come through.
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        other.notify(&[]).await.expect("notify");
        let heard = tokio::time::timeout(Duration::from_millis(300), store.notified()).await;
        if heard.is_ok() {
            break;
        }
        assert!(Instant::now() < until, "no hint came through");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_shares_sessions_is_refused_with_what_to_do() {
    let url = database().await;
    let Some(pooler) = bouncer(&url, "transaction") else { return };
    let error = connect(options(&pooler.url(&url))).await.err().expect("nobody could listen");
    assert!(matches!(error, Error::Fatal { .. }), "{error:?}");
    assert!(format!("{error:?}").contains("store.listen_url"), "{error:?}");
    // With an own way to listen it depends on the pooler: an old one forgets statements, a new one works when the
    // role is set up.
    let error = connect(listening(&pooler, &url)).await.err().expect("the role is not set up");
    assert!(matches!(error, Error::Fatal { .. }), "{error:?}");
    let text = format!("{error:?}");
    if given().is_some() {
        assert!(text.contains("alter role"), "{text}");
        obey(&url, &text).await;
        // Its connections are those of before.
        drop(pooler);
        let pooler = bouncer(&url, "transaction").expect("it was given");
        let store = connect(listening(&pooler, &url)).await.expect("it is set up");
        store.ping().await.expect("an answer");
    } else {
        assert!(text.contains("PgBouncer 1.21"), "{text}");
        // Also where such a start has left its statements behind, in the sessions that the next one gets.
        leave_statements(&url, &pooler).await;
        let error = connect(listening(&pooler, &url)).await.err().expect("it forgets statements");
        assert!(format!("{error:?}").contains("PgBouncer 1.21"), "{error:?}");
    }
}

/// In every session behind the pooler, under the next names that the driver will use in this process.
async fn leave_statements(url: &str, pooler: &Bouncer) {
    let own = crate::fixture::raw(url).await;
    let kept = own.prepare("select 1").await.expect("a statement");
    let row = own.query_one("select name from pg_prepared_statements limit 1", &[]).await;
    let name: String = row.expect("a name").get(0);
    drop(kept);
    let next: u64 = name.trim_start_matches('s').parse().expect("a number");
    let clients = [
        crate::fixture::raw(&pooler.url(url)).await,
        crate::fixture::raw(&pooler.url(url)).await,
        crate::fixture::raw(&pooler.url(url)).await,
    ];
    let prepare: String =
        (next..next + 3_000).map(|n| format!("prepare s{n} as select 1; ")).collect();
    for client in &clients {
        client.batch_execute("begin").await.expect("a session of its own");
    }
    for client in &clients {
        client.batch_execute(&prepare).await.expect("statements");
    }
    for client in &clients {
        client.batch_execute("commit").await.expect("given back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_is_tried_and_nothing_is_left() {
    let url = database().await;
    let raw = crate::fixture::raw(&url).await;
    let schemas = "select count(*) from pg_namespace where nspname like 'posthorn%'";
    let probed = probe(&Options::new(&url)).await.expect("a database");
    assert_eq!(probed.refused, []);
    assert!(probed.tried > 200, "{}", probed.tried);
    assert!(probed.server.contains("PostgreSQL"), "{}", probed.server);
    let left: i64 = raw.query_one(schemas, &[]).await.expect("a count").get(0);
    assert_eq!(left, 0, "the schema of the trial is still there");
    // What a database does not have is told in its own words.
    raw.batch_execute(
        "create role few login; revoke execute on function pg_try_advisory_xact_lock(int, int) from public; \
         grant create on database postgres to few",
    )
    .await
    .expect("a role");
    let name = url.rsplit_once('/').expect("a database").1;
    raw.batch_execute(&format!("grant create on database \"{name}\" to few"))
        .await
        .expect("a grant");
    let few = url.replace("postgres@", "few@");
    let probed = probe(&Options::new(few)).await;
    raw.batch_execute(&format!("drop owned by few; revoke all on database \"{name}\" from few"))
        .await
        .expect("cleaned up");
    let probed = probed.expect("a database");
    assert!(
        probed.refused.iter().any(|refused| refused.what == "advisory locks"),
        "{:?}",
        probed.refused
    );
}
