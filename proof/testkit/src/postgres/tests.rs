use super::*;

#[test]
fn a_server_survives_restarts_and_leaves_nothing_behind() {
    let server = TestPostgres::start().expect("a server");
    server.create_database("one").expect("a database");
    assert_eq!(server.sql("show fsync").expect("sql").trim(), "on");
    server.restart().expect("a restart");
    server.kill_postmaster().expect("a kill");
    server.restart().expect("a restart after a kill");
    let count = server.sql("select count(*) from pg_database where datname = 'one'");
    assert_eq!(count.expect("sql").trim(), "1");
    server.stop_immediate().expect("a stop");
    assert!(server.sql("select 1").is_err());
    let folder = server.folder.clone();
    drop(server);
    assert!(!folder.exists(), "the folder is still there");
}

#[test]
fn a_server_goes_away_when_its_test_panics() {
    let folder = std::panic::catch_unwind(|| {
        let server = TestPostgres::start().expect("a server");
        std::panic::panic_any(server.folder.clone());
    });
    let folder = folder.expect_err("it panicked");
    let folder = folder.downcast::<PathBuf>().expect("the folder");
    assert!(!folder.exists(), "the folder is still there");
}
