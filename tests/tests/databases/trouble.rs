//! What an answer says that has waited too long for a database in trouble.

use crate::{
    http::Request,
    postgres::{PASSWORD, Postgres},
};
use millrace_tests::{
    Host, Place, Port, eventually,
    servers::{self, ServerProcess, answers},
};
use std::thread;

/// Redis acknowledges writes before they are durable, which stops its writer; PostgreSQL does not accept the password.
const APPLICATION: &str = r#"
[namespace]
segment_size = "1MiB"
durability = "memory"
[databases.main]
url = "POSTGRES"
secret = "main-password"
[databases.cache]
url = "redis://127.0.0.1:REDIS"
[tables.grades]
database = "main"
[tables.sessions]
database = "cache"
"#;

#[test]
fn an_answer_that_waited_too_long_says_what_is_wrong_with_its_database() {
    let (postgres, port, dir) = (Postgres::start(), Port::reserve(), tempfile::tempdir().expect("a directory"));
    let _redis = ServerProcess::start(servers::redis(&port, dir.path()));
    eventually("Redis answers", || answers(&port, b"PING\r\n") == Some(b'+'));
    let place = Place::empty();
    place.write("millrace.toml", &APPLICATION.replace("POSTGRES", &postgres.url()).replace("REDIS", &port.to_string()));
    place.run(["up"]).ok();
    place.feed(["secret", "set", "main-password"], format!("{PASSWORD}?").as_bytes()).ok();
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    let put = |table: &str| Request::send(host.port(), "PUT", &format!("tables/{table}/keys/a"), "", "1").unwrap();
    let (grades, sessions) = (put("grades"), put("sessions"));
    // Another process learns it from the host.
    let command = thread::scope(|scope| {
        let command = scope.spawn(|| place.run(["table", "put", "sessions", "b", "2"]));
        let text = |request: Request| {
            let answer = request.wait().expect("the host answers");
            assert_eq!(answer.status, 503, "{answer:?}");
            answer.json()["error"]["detail"].as_str().expect("a detail").to_owned()
        };
        let (grades, sessions) = (text(grades), text(sessions));
        let denied = "database 'main' has not got the writes within 30 s; nothing is written at present: MR7314: ";
        assert!(grades.starts_with(denied) && grades.contains("password authentication failed"), "{grades}");
        assert!(grades.contains("Correct the secret"), "{grades}");
        assert!(sessions.contains("'cache'") && sessions.contains("; its writer has stopped: MR7319: "), "{sessions}");
        assert!(sessions.contains("Make the database durable"), "{sessions}");
        assert!(!(grades + &sessions).contains(PASSWORD));
        command.join().expect("the command ends")
    });
    let command = command.fails("MR7310", 75);
    assert!(command.stderr.contains("its writer has stopped: MR7319: "), "{command:?}");
    let why = place.run(["why"]).ok();
    for words in ["nothing is written at present: MR7314: ", "its writer has stopped: MR7319: "] {
        assert!(why.text().contains(words), "{why:?}");
    }
}
