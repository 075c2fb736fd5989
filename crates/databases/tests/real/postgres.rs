//! PostgreSQL.

use crate::cases::{self, Lab, next, page, put, send, table, wait, write};
use base64::Engine as _;
use millrace_databases::{
    Engine, Keys, Options, Secret, Target, Values, engine,
    writebehind::{Outcome, RefusalKind, Row},
};
use millrace_tests::servers::{PASSWORD, PostgresServer};
use millrace_wire::Code;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

pub struct PostgresLab(pub PostgresServer);

/// Executes statements as an outside user. Returns the first column of the answers.
pub fn ask(url: &str, text: &str) -> Vec<String> {
    let mut config: Config = url.parse().expect("a URL");
    config.password(PASSWORD);
    wait(async {
        let (client, connection) = config.connect(NoTls).await.expect("it connects");
        let asked = async {
            let answered = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
            drop(client);
            answered
        };
        let (answered, _) = tokio::join!(asked, connection);
        let first = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        answered.iter().filter_map(first).collect()
    })
}

impl PostgresLab {
    /// Executes statements as an outside user.
    pub fn sql(&self, text: &str) {
        self.ask(text);
    }

    /// The first column of the answer.
    pub fn ask(&self, text: &str) -> Vec<String> {
        ask(&self.0.url(), text)
    }

    fn url(&self, suffix: &str) -> Options {
        let secret = Some(Secret::new(PASSWORD));
        Options { url: self.0.url() + suffix, secret, authorities: None }
    }
}

impl Lab for PostgresLab {
    fn engine(&self) -> Box<dyn Engine> {
        engine(&self.url("")).expect("the address is valid")
    }

    fn options(&self) -> Option<Options> {
        Some(self.url(""))
    }

    fn die(&mut self) {
        self.0.die();
    }

    fn live(&mut self) {
        self.0.live();
    }

    fn refuse_poison(&mut self, table: &str) -> bool {
        self.sql(&format!("ALTER TABLE {table} ADD CONSTRAINT no_poison CHECK (value::text NOT LIKE '\"poison%')"));
        true
    }

    fn cure(&mut self, table: &str) {
        self.sql(&format!("ALTER TABLE {table} DROP CONSTRAINT no_poison"));
    }
}

fn target(stream: &str, tables: &[(&str, Keys, Values)]) -> Target {
    Target {
        stream: stream.into(),
        owner: "ours".into(),
        previous_owner: None,
        tables: tables.iter().map(|(name, keys, values)| table(name, *keys, *values)).collect(),
        accept_volatile: false,
        refuse_outside: false,
    }
}

fn refused(engine: &mut dyn Engine, row: Row) -> (RefusalKind, String) {
    send(engine, 0, 1, vec![row]);
    match next(engine) {
        Outcome::Refused { refusal, .. } => {
            // Others than those who may read the table see the reason.
            assert!(!refusal.detail.contains("hunter2"), "{refusal:?}");
            (refusal.kind, refusal.code)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn postgresql_conforms() {
    let mut lab = PostgresLab(PostgresServer::start(&[]));
    cases::run(&mut lab);
    schemas(&lab);
    refusals(&lab);
    others_keep_their_columns(&lab);
    others_are_refused(&lab);
    durability(&mut lab);
    tls(&mut lab);
}

/// A table with other columns is reported with the statements that change it, and they do.
fn schemas(lab: &PostgresLab) {
    let tables = [
        ("s1", "CREATE TABLE s1 (key text COLLATE \"C\" PRIMARY KEY, value text NOT NULL, version bigint)"),
        ("s2", "CREATE TABLE s2 (key text PRIMARY KEY, value jsonb)"),
        ("s3", "CREATE TABLE s3 (key text COLLATE \"C\", value jsonb, version int, extra text NOT NULL)"),
        ("s4", "CREATE TABLE s4 (id serial PRIMARY KEY, other text DEFAULT 'x' NOT NULL)"),
        ("s5", "CREATE TABLE s5 (key bytea PRIMARY KEY DEFERRABLE, value json, version bigint)"),
    ];
    for (name, ddl) in tables {
        let target = target(name, &[(name, Keys::Text, Values::Json)]);
        lab.sql(ddl);
        let error = wait(lab.engine().open(&target)).unwrap_err();
        assert_eq!(error.code(), Code::DatabaseSchema, "{error}");
        if name == "s4" {
            // The key of an unknown row is for somebody else to invent, but the table is empty.
            assert!(error.detail().contains("no column 'key'"), "{error}");
        }
        let (_, remedy) = error.detail().split_once("Execute: ").expect("the statements");
        lab.sql(remedy);
        let mut engine = lab.engine();
        wait(engine.open(&target)).unwrap_or_else(|error| panic!("{name} after {remedy}: {error}"));
        write(&mut *engine, 0, 1, vec![put(name, "a", "{}", 3)]);
        write(&mut *engine, 1, 2, vec![put(name, "a", "[]", 4)]);
        assert_eq!((page(&mut *engine, name).rows.len(), page(&mut *engine, name).rows[0].version), (1, Some(4)));
    }
    // A user who may not create tables learns what to execute.
    lab.sql("CREATE ROLE poor LOGIN PASSWORD 'correct horse'");
    let options = lab.url("");
    let options = Options { url: options.url.replace("postgres@", "poor@"), ..options };
    let opening =
        || wait(engine(&options).unwrap().open(&target("s6", &[("s6", Keys::Text, Values::Json)]))).unwrap_err();
    assert_eq!(opening().code(), Code::DatabaseDenied);
    lab.sql("GRANT USAGE ON SCHEMA millrace TO poor; GRANT SELECT, INSERT, UPDATE ON millrace.streams TO poor");
    let error = opening();
    assert_eq!(error.code(), Code::DatabaseSchema, "{error}");
    assert!(error.detail().contains("Execute: CREATE TABLE \"s6\" (key text COLLATE \"C\" PRIMARY KEY"), "{error}");
    // A table that goes away while it is written, and one that may not be written.
    let target = target("s7", &[("s7", Keys::Text, Values::Json)]);
    let mut engine = lab.engine();
    wait(engine.open(&target)).unwrap();
    lab.sql("DROP TABLE s7");
    assert_eq!(refused(&mut *engine, put("s7", "a", "1", 1)), (RefusalKind::Schema, "42P01".into()));
    wait(engine.open(&target)).expect("it is created again");
    write(&mut *engine, 0, 1, vec![put("s7", "a", "1", 1)]);
}

/// The errors of rows, with their SQLSTATE; each leaves the connection usable.
fn refusals(lab: &PostgresLab) {
    let target = target("r", &[("r", Keys::Text, Values::Json), ("rt", Keys::Text, Values::Text)]);
    let mut engine = lab.engine();
    wait(engine.open(&target)).unwrap();
    for (row, code) in [
        (put("r", "a", "\"\\u0000\"", 1), "22P05"),
        (put("r", "a", "{", 1), "22P02"),
        (put("r", "a", "\"\\ud800\"", 1), "22P02"),
        (put("rt", "a", "nul \0", 1), "22021"),
        (put("rt", "nul \0", "a", 1), "22021"),
    ] {
        assert_eq!(refused(&mut *engine, row), (RefusalKind::Data, code.into()));
    }
    let bytes = Row { key: vec![0xff, 0xfe].into(), ..put("rt", "", "a", 1) };
    assert_eq!(refused(&mut *engine, bytes), (RefusalKind::Data, "22021".into()));
    // Of a constraint that is checked at the end of the transaction.
    lab.sql("CREATE TABLE parents (id text PRIMARY KEY); ALTER TABLE rt ADD FOREIGN KEY (value) REFERENCES parents DEFERRABLE INITIALLY DEFERRED");
    assert_eq!(refused(&mut *engine, put("rt", "a", "hunter2", 1)), (RefusalKind::Data, "23503".into()));
    // Of a trigger.
    lab.sql(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no % today', new.value; END $$; \
         CREATE TRIGGER no BEFORE INSERT ON r FOR EACH ROW EXECUTE FUNCTION no()",
    );
    assert_eq!(refused(&mut *engine, put("r", "a", "\"hunter2\"", 1)), (RefusalKind::Data, "P0001".into()));
    lab.sql("DROP TRIGGER no ON r");
    // Of an index with entries that are too long.
    lab.sql("CREATE INDEX wide ON r ((value ->> 'x'))");
    // Random letters, which do not become shorter when they are compressed.
    let mut state = 1_u64;
    let long: String = (0..8000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'#' + ((state >> 40) % 57) as u8)
        })
        .collect();
    assert_eq!(refused(&mut *engine, put("r", "a", &format!("{{\"x\": \"{long}\"}}"), 1)).0, RefusalKind::Data);
    write(&mut *engine, 0, 1, vec![put("r", "a", "1", 1)]);
    // Statements that may succeed later are no refusals.
    lab.sql("ALTER ROLE postgres SET lock_timeout = '50ms'");
    wait(engine.open(&target)).unwrap();
    let mut config: Config = lab.0.url().parse().expect("a URL");
    config.password(PASSWORD);
    wait(async {
        let (client, connection) = config.connect(NoTls).await.expect("it connects");
        let locked = async {
            client.batch_execute("BEGIN; LOCK TABLE r").await.expect("it locks");
            engine
                .submit(millrace_databases::writebehind::Transaction {
                    after: 1,
                    number: 2,
                    rows: vec![put("r", "b", "1", 1)],
                })
                .expect("there is room");
            let outcome = engine.next().await;
            client.batch_execute("ROLLBACK").await.expect("it unlocks");
            drop(client);
            outcome
        };
        let (outcome, _) = tokio::join!(locked, connection);
        assert!(matches!(&outcome, Outcome::Lost(error) if error.code() == Code::DatabaseUnreachable), "{outcome:?}");
    });
    lab.sql("ALTER ROLE postgres RESET lock_timeout");
    assert_eq!(wait(engine.open(&target)).unwrap().number, 1);
}

/// Columns that others add, with defaults or computed, stay.
fn others_keep_their_columns(lab: &PostgresLab) {
    lab.sql(
        "CREATE TABLE o (key text COLLATE \"C\" PRIMARY KEY, value jsonb NOT NULL, version bigint NOT NULL, \
         note text DEFAULT 'new', score int GENERATED ALWAYS AS ((value ->> 'score')::int) STORED)",
    );
    let mut engine = lab.engine();
    wait(engine.open(&target("o", &[("o", Keys::Text, Values::Json)]))).unwrap();
    write(&mut *engine, 0, 1, vec![put("o", "a", "{\"score\": 7}", 1)]);
    lab.sql("UPDATE o SET note = 'kept'");
    write(&mut *engine, 1, 2, vec![put("o", "a", "{\"score\": 8}", 2)]);
    assert_eq!(lab.ask("SELECT note || score FROM o"), ["kept8"]);
    // A value that the computed column cannot take is refused with the code of the cast.
    send(&mut *engine, 2, 3, vec![put("o", "b", "{\"score\": \"hunter2\"}", 3)]);
    let Outcome::Refused { refusal, .. } = next(&mut *engine) else { panic!("the cast fails") };
    assert_eq!((&*refusal.code, &*refusal.detail), ("22P02", "a value is not valid for its column"));
}

/// What the database answers to the change of somebody else: an SQLSTATE, or nothing.
fn refusal(lab: &PostgresLab, text: &str) -> Option<String> {
    let mut config: Config = lab.0.url().parse().expect("a URL");
    config.password(PASSWORD);
    wait(async {
        let (client, connection) = config.connect(NoTls).await.expect("it connects");
        let changed = async {
            let changed = client.batch_execute(text).await;
            drop(client);
            changed.err().map(|error| error.code().expect("an error of the server").code().to_owned())
        };
        tokio::join!(changed, connection).0
    })
}

/// A table that only its stream may change, while the target says so.
fn others_are_refused(lab: &PostgresLab) {
    let open = target("g", &[("g", Keys::Text, Values::Json), ("g2", Keys::Text, Values::Json)]);
    let guarded = Target { refuse_outside: true, ..open.clone() };
    let mut guarding = lab.engine();
    let mut number = 0;
    // The second time with what is there already, after the setting was taken back.
    for _ in 0..2 {
        for _ in 0..2 {
            wait(guarding.open(&guarded)).unwrap();
            write(
                &mut *guarding,
                number,
                number + 1,
                vec![put("g", "a", "1", number + 1), put("g2", "a", "1", number + 1)],
            );
            number += 1;
            for change in [
                "INSERT INTO g VALUES ('b', '1', 1)",
                "UPDATE g2 SET value = '2'",
                "DELETE FROM g",
                "TRUNCATE g",
                "SET millrace.stream = 'other'; DELETE FROM g",
            ] {
                assert_eq!(refusal(lab, change).as_deref(), Some("55000"), "{change}");
            }
            assert_eq!(lab.ask("SELECT key FROM g"), ["a"]);
        }
        wait(guarding.open(&open)).unwrap();
        assert_eq!(refusal(lab, "UPDATE g SET value = '2'"), None);
        write(&mut *guarding, number, number + 1, vec![put("g", "a", "3", number + 1)]);
        number += 1;
    }
    // A user who may not make the trigger learns how somebody else can.
    lab.sql(
        "CREATE ROLE plain LOGIN PASSWORD 'secret'; GRANT SELECT, INSERT, UPDATE, DELETE ON g, g2, millrace.streams TO plain; \
         GRANT USAGE ON SCHEMA millrace TO plain",
    );
    let url = lab.0.url().replace("postgres@", "plain@");
    let mut plain =
        engine(&Options { url, secret: Some(Secret::new("secret")), authorities: None }).expect("the address is valid");
    let error = wait(plain.open(&guarded)).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseSchema, "{error}");
    let (_, remedy) = error.detail().split_once("Execute: ").expect("the statements");
    lab.sql(remedy);
    wait(plain.open(&guarded)).unwrap();
    write(&mut *plain, number, number + 1, vec![put("g", "a", "4", number + 1)]);
    assert_eq!(refusal(lab, "DELETE FROM g2").as_deref(), Some("55000"));
}

/// A server that forgets is refused; one whose sessions do not wait for the disk is made to.
fn durability(lab: &mut PostgresLab) {
    let target = target("d", &[("d", Keys::Text, Values::Json)]);
    lab.0.die();
    lab.0.set(&["fsync=off"]);
    lab.0.live();
    let error = wait(lab.engine().open(&target)).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseVolatile, "{error}");
    let volatile = Target { accept_volatile: true, ..target.clone() };
    assert!(!wait(lab.engine().open(&volatile)).unwrap().is_durable);
    lab.0.die();
    lab.0.set(&["synchronous_commit=off"]);
    lab.0.live();
    assert!(wait(lab.engine().open(&target)).unwrap().is_durable);
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// Without TLS in the server `sslmode=require` fails; with it, only for certificates of known authorities.
fn tls(lab: &mut PostgresLab) {
    let target = target("t", &[("t", Keys::Text, Values::Json)]);
    for mode in ["require", "verify-ca", "verify-full"] {
        let mut engine = engine(&lab.url(&format!("?sslmode={mode}"))).unwrap();
        let error = wait(engine.open(&target)).unwrap_err();
        assert_eq!(error.code(), Code::DatabaseTls, "{error}");
        assert!(error.detail().contains("does not offer TLS"), "{error}");
    }
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = lab.0.write("server.key", &pem("PRIVATE KEY", &made.signing_key.serialize_der()));
    let authority = pem("CERTIFICATE", made.cert.der());
    let certificate = lab.0.write("server.crt", &authority);
    lab.0.die();
    let files = [("ssl_key_file", &key), ("ssl_cert_file", &certificate)];
    let mut settings: Vec<String> = files.iter().map(|(name, file)| format!("{name}={}", file.display())).collect();
    settings.push("ssl=on".into());
    lab.0.set(&settings);
    lab.0.live();
    let mut options = lab.url("?sslmode=require");
    options.url = options.url.replace("127.0.0.1", "localhost");
    let error = wait(engine(&options).unwrap().open(&target)).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseTls, "an unknown authority: {error}");
    options.authorities = Some(authority);
    let mut encrypted = engine(&options).unwrap();
    wait(encrypted.open(&target)).unwrap();
    write(&mut *encrypted, 0, 1, vec![put("t", "a", "1", 1)]);
    assert_eq!(lab.ask("SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'millrace'"), ["1"]);
    // The certificate is not of this name.
    options.url = options.url.replace("localhost", "127.0.0.1");
    let error = wait(engine(&options).unwrap().open(&target)).unwrap_err();
    assert_eq!(error.code(), Code::DatabaseTls, "another name: {error}");
}
