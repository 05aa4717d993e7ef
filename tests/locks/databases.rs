//! The statements of docs/TRANSACTIONS.md on the databases that they are for: an older holder is refused.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use redis_locks::Locks;
use testbed::{Database, skip};

/// CI sets it, after it has installed the databases.
const REQUIRED: &str = "TESTBED_DATABASES";

/// The statements below this heading of the page: one for a row that exists, one for a row that may not.
fn statements(heading: &str) -> [String; 2] {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/TRANSACTIONS.md");
    let page = fs::read_to_string(page).unwrap();
    let section = page.split(&format!("### {heading}\n")).nth(1).unwrap();
    let section = section.split("\n### ").next().unwrap();
    let blocks = section.split("```sql\n").skip(1).map(|it| it.split("```").next().unwrap().into());
    blocks.collect::<Vec<_>>().try_into().unwrap()
}

const TABLE: &str = "CREATE TABLE account (id BIGINT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0);
    INSERT INTO account (id) VALUES (1);";

/// Executes the statement for a row that exists, or that which makes it, with a number and an id. Whether the
/// database has accepted the number.
type Write<'a> = &'a dyn Fn(&str, i64, i64) -> bool;

/// What must hold for the statements of any database.
fn check([existing, missing]: [String; 2], write: Write<'_>) {
    let locks = Locks::in_memory();
    let take = || locks.mutex("account:1").fenced().blocking_acquire().unwrap();
    let late = take();
    let older = late.fence_i64().unwrap();
    assert!(write(&existing, older, 1));
    assert!(write(&existing, older, 1), "a holder may write again");
    locks.blocking_force_release("account:1", "its process stands still").unwrap();
    let newer = take().fence_i64().unwrap();
    assert!(write(&existing, newer, 1));
    assert!(!write(&existing, older, 1), "the late write is refused");
    assert!(write(&existing, newer, 1), "and has changed nothing");

    assert!(!write(&existing, newer, 2), "there is no such row");
    assert!(write(&missing, newer, 2));
    assert!(!write(&missing, older, 2), "the late write is refused");
    assert!(write(&missing, newer, 2), "a holder may write again");
    assert!(write(&existing, newer, 2));
}

fn missing(name: &str) -> bool {
    assert!(std::env::var_os(REQUIRED).is_none(), "{name} is not installed");
    true
}

#[test]
fn postgres_refuses_the_number_of_an_older_holder() {
    let Some(database) = Database::postgres() else {
        assert!(missing("Postgres"));
        skip!("needs the programs of Postgres");
    };
    database.run(TABLE);
    check(statements("Postgres"), &|statement, fence, id| {
        let script = format!("BEGIN; PREPARE s AS {statement} EXECUTE s({fence}, {id}); COMMIT;");
        let printed = database.run(&script);
        printed.contains("UPDATE 1\n") || printed.contains("INSERT 0 1\n")
    });
}

#[test]
fn mariadb_refuses_the_number_of_an_older_holder() {
    let Some(database) = Database::mariadb() else {
        assert!(missing("MariaDB"));
        skip!("needs the programs of MariaDB");
    };
    let in_schema = |statements: &str| database.run(&format!("USE test; {statements}"));
    database.run("CREATE DATABASE test;");
    in_schema(TABLE);
    check(statements("MySQL and MariaDB"), &|block, fence, id| {
        let prepared = block.split_inclusive(';').filter(|statement| !statement.trim().is_empty());
        let script: String = prepared
            .map(|statement| {
                format!("PREPARE s FROM '{}'; EXECUTE s USING @fence, @id;", statement.trim())
            })
            .collect();
        let script =
            format!("SET @fence = {fence}, @id = {id}; START TRANSACTION; {script} COMMIT;");
        in_schema(&script).trim() == "1"
    });
}

#[test]
fn sqlite_refuses_the_number_of_an_older_holder() {
    let runs =
        |python: &mut Command| python.stderr(Stdio::null()).status().is_ok_and(|it| it.success());
    if !runs(Command::new("python3").args(["-c", "import sqlite3"])) {
        assert!(missing("the module sqlite3 of Python"));
        skip!("needs Python 3 with its module sqlite3");
    }
    let dir = tempfile_dir();
    let file = dir.join("db");
    let python = |script: &str, words: &[&str]| {
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(&file).args(words);
        let output = python.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    python(
        "import sys, sqlite3; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])",
        &[TABLE],
    );
    check(statements("SQLite"), &|statement, fence, id| {
        let script = "
import sys, sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('BEGIN IMMEDIATE')
print(db.execute(sys.argv[2], (int(sys.argv[3]), int(sys.argv[4]))).rowcount)
db.execute('COMMIT')
";
        python(script, &[statement, &fence.to_string(), &id.to_string()]).trim() == "1"
    });
    fs::remove_dir_all(dir).unwrap();
}

/// A directory for one run of one test.
fn tempfile_dir() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("redis-locks-sqlite-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}
