//! A PostgreSQL that a test kills and starts again, and `psql`, through which it looks from outside.

pub use millrace_tests::servers::PASSWORD;

use millrace_tests::{Place, servers::PostgresServer};
use std::{
    io::{Read, Write},
    ops::{Deref, DerefMut},
    process::{Child, ChildStdin, Command, Stdio},
};

/// A PostgreSQL, and how it is looked at from outside.
pub struct Postgres(PostgresServer);

impl Deref for Postgres {
    type Target = PostgresServer;

    fn deref(&self) -> &PostgresServer {
        &self.0
    }
}

impl DerefMut for Postgres {
    fn deref_mut(&mut self) -> &mut PostgresServer {
        &mut self.0
    }
}

impl Postgres {
    pub fn start() -> Self {
        Self(PostgresServer::start(&[]))
    }

    fn psql(&self) -> Command {
        let mut command = Command::new("psql");
        command.args(["-qAt", "-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string(), "postgres"]);
        command.env("PGPASSWORD", PASSWORD).env("PGCONNECT_TIMEOUT", "20");
        command
    }

    /// What a query answers: a line for each row.
    #[track_caller]
    pub fn query(&self, sql: &str) -> Vec<String> {
        let answer = self.psql().args(["-c", sql]).output().expect("psql runs");
        assert!(answer.status.success(), "{sql}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8_lossy(&answer.stdout).lines().map(str::to_owned).collect()
    }

    /// The value of a key of a table with JSON.
    #[track_caller]
    pub fn value(&self, table: &str, key: &str) -> Option<String> {
        self.query(&format!("SELECT value::text FROM \"{table}\" WHERE key = '{key}'")).into_iter().next()
    }

    /// Keeps everybody from writing to a table until the result is dropped.
    pub fn block(&self, table: &str) -> Block {
        let mut session = self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql runs");
        let mut input = session.stdin.take().expect("it is a pipe");
        writeln!(input, "BEGIN; LOCK TABLE \"{table}\" IN SHARE MODE; SELECT 'blocked';").expect("it is read");
        let mut output = session.stdout.take().expect("it is a pipe");
        let mut said = [0; 7];
        output.read_exact(&mut said).expect("it answers");
        assert_eq!(&said, b"blocked");
        Block { session, input: Some(input) }
    }
}

/// See [`Postgres::block`].
pub struct Block {
    session: Child,
    input: Option<ChildStdin>,
}

impl Drop for Block {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.session.wait();
    }
}

/// A place whose table `grades` is written to a PostgreSQL, with a log `other` that depends on nothing.
pub fn place(postgres: &Postgres, more: &str) -> Place {
    let place = Place::empty();
    let url = postgres.url();
    let text = format!(
        "[namespace]\nsegment_size = \"1MiB\"\ndurability = \"memory\"\n[logs.other]\n[databases.main]\nurl = \"{url}\"\n\
         secret = \"main-password\"\n[tables.grades]\ndatabase = \"main\"\n{more}\n"
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place.feed(["secret", "set", "main-password"], PASSWORD.as_bytes()).ok();
    place
}
