//! Which databases a namespace has.

use super::{DATABASES_MAX, Progress, progress::ProgressFile};
use crate::{Namespace, names};
use millrace_journal::{Log, Position, Transaction};
use millrace_wire::{Code, DatabaseName, Defence, Name, NamespaceId, Result, table::TableOptions};
use serde::{Deserialize, Serialize};

/// The log of the settings.
const LOG: &str = "_databases";
const HISTORY: u64 = 16;
/// How far the journal may get ahead of a database by default, in bytes.
pub const UNWRITTEN_MAX_BYTES: u64 = 256 << 20;
/// How addresses begin.
const SCHEMES: [&str; 7] = ["postgresql", "postgres", "redis", "rediss", "etcd", "etcds", "dynamodb"];
/// The longest name of a table in a database: PostgreSQL cuts off longer ones.
const TABLE_NAME_MAX_BYTES: usize = 63;
/// How a certificate in PEM begins.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
const AUTHORITIES_MAX_BYTES: usize = 64 << 10;

/// What happens to a batch that a database refuses for its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenRefused {
    /// Nothing is written until the database accepts it.
    #[default]
    Stop,
    /// Its writes become dead letters, and the next batch is written.
    DeadLetter,
}

impl WhenRefused {
    /// Whether it is the default.
    pub fn is_stop(&self) -> bool {
        *self == Self::Stop
    }
}

/// Every value of the tables is to be written again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resync {
    /// The namespace that has written the stream so far, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_owner: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The settings of a database. Its password is a secret of the namespace, of which only the name stands here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseSettings {
    /// Its name in the namespace, which is also that of the stream.
    pub name: DatabaseName,
    /// Its address.
    pub url: String,
    /// The secret with its password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Certificates of authorities to trust besides those of the system, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Most unanswered transactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// The usual number of rows of a transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// How many bytes the journal may be ahead of the database before appends to its tables are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritten_max: Option<u64>,
    /// Whether it may acknowledge writes that are not durable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_volatile: bool,
    /// What happens to a batch that the database refuses for its content.
    #[serde(default, skip_serializing_if = "WhenRefused::is_stop")]
    pub on_refused: WhenRefused,
    /// Whether the database is to refuse changes of the tables by anybody else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuse_outside: bool,
    /// Counts the requests to try again at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resumed: u64,
    /// Every value is to be written to it again, by whichever host finds this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync: Option<Resync>,
    /// No write to it stands before this position of the journal.
    #[serde(default)]
    pub since: u64,
    /// The namespace in whose journal that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

impl DatabaseSettings {
    /// A database at an address, with the usual settings.
    pub fn new(name: DatabaseName, url: String) -> Self {
        Self {
            name,
            url,
            secret: None,
            authorities: None,
            in_flight: None,
            rows: None,
            unwritten_max: None,
            accept_volatile: false,
            on_refused: WhenRefused::Stop,
            refuse_outside: false,
            resumed: 0,
            resync: None,
            since: 0,
            of: None,
        }
    }

    /// The same, without what its user did not set.
    fn chosen(&self) -> Self {
        Self { resumed: 0, resync: None, since: 0, of: None, ..self.clone() }
    }

    /// The most rows, bytes, and bytes of a value that one transaction of it can have. A test compares them with those of the engines.
    pub fn limits(&self) -> (usize, usize, usize) {
        match self.url.split("://").next().unwrap_or_default() {
            "redis" | "rediss" => (4096, 16 << 20, 16 << 20),
            "etcd" | "etcds" => (127, 1 << 20, 1 << 20),
            "dynamodb" => (99, 3_900_000, 390_000),
            _ => (65_536, 64 << 20, 16 << 20),
        }
    }

    /// No write to it stands before this position.
    pub(super) fn since(&self, namespace: NamespaceId) -> Position {
        // In a journal that was salvaged, positions are others.
        Position::from_bytes(if self.of == Some(namespace.get()) { self.since } else { 0 })
    }

    /// Refuses settings that cannot be used, and an address with a password: this one is in the journal. The errors do not contain the address.
    ///
    /// # Errors
    ///
    /// MR7312; MR7324: the database cannot refuse changes of others.
    pub fn check(&self) -> Result<()> {
        let invalid = |detail: String| Err(Code::DatabaseUrl.error(detail));
        let Some((scheme, rest)) = self.url.split_once("://") else {
            return invalid("the address has no '://'".into());
        };
        if !SCHEMES.contains(&scheme) {
            return invalid(format!("the address begins with none of '{}://'", SCHEMES.join("://', '")));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
        let (user, server) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            return invalid("the address contains a password, which must be given as a secret".into());
        }
        if server.is_empty() {
            return invalid("the address has no host".into());
        }
        if query.split('&').any(|option| !option.is_empty() && !option.starts_with("sslmode=")) {
            return invalid("the address has another option than 'sslmode'".into());
        }
        if self.refuse_outside && !matches!(scheme, "postgresql" | "postgres") {
            let detail = format!("`refuse_outside` is for PostgreSQL, and the address begins with '{scheme}://'");
            return Err(Code::TableSettingUnavailable.error(detail));
        }
        if let Some(secret) = &self.secret {
            secret.parse::<Name>()?;
        }
        if let Some(authorities) = self.authorities.as_ref().filter(|_| Defence::HostFiles.stands()) {
            check_authorities(authorities)?;
        }
        let counts = [("in_flight", self.in_flight), ("rows", self.rows), ("unwritten_max", self.unwritten_max)];
        match counts.into_iter().find(|(_, count)| *count == Some(0)) {
            Some((name, _)) => invalid(format!("{name} is 0; it is at least 1")),
            None => Ok(()),
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.chosen() == other.chosen()
    }
}

/// Refuses anything but certificates, such as the name of a file, which the host must not open.
fn check_authorities(text: &str) -> Result<()> {
    if !text.contains(CERTIFICATE) {
        let detail =
            "`authorities` contains no certificate in PEM; it is the text of the certificates, not a file's name";
        return Err(Code::DatabaseUrl.error(detail));
    }
    if text.len() > AUTHORITIES_MAX_BYTES {
        let length = text.len();
        let detail = format!("`authorities` has {length} bytes; the limit is {AUTHORITIES_MAX_BYTES}");
        return Err(Code::DatabaseUrl.error(detail));
    }
    Ok(())
}

/// The log of the settings, if there ever was a database.
pub(super) fn log(namespace: &Namespace) -> Result<Option<Log>> {
    Ok(namespace.journal().catalog()?.log(LOG).cloned())
}

impl Namespace {
    /// The databases, by name.
    pub fn databases(&self) -> Result<Vec<DatabaseSettings>> {
        let Some(newest) = names::newest_note(self, LOG)? else { return Ok(Vec::new()) };
        serde_json::from_slice(&newest).map_err(|error| Code::EntryDamaged.error(format!("log '{LOG}': {error}")))
    }

    /// The database of this name.
    pub fn database(&self, name: &str) -> Result<DatabaseSettings> {
        let found = self.databases()?.into_iter().find(|database| &*database.name == name);
        found.ok_or_else(|| Code::DatabaseNotFound.error(format!("no database '{}'", name.escape_debug())))
    }

    /// Whether [`Namespace::set_database`] would change something.
    pub fn has_database(&self, settings: &DatabaseSettings) -> Result<Option<bool>> {
        Ok(self.databases()?.iter().find(|known| known.name == settings.name).map(|known| known.is_like(settings)))
    }

    /// Sets a database, new or with other settings. Returns what changed: `created`, `changed` or `unchanged`.
    pub fn set_database(&self, settings: &DatabaseSettings) -> Result<&'static str> {
        settings.check()?;
        let name = names::internal(LOG);
        let committed = self.journal().commit(|tx| {
            // Nobody else can change them before this commit ends.
            let mut all = self.databases()?;
            let own = Some(self.journal().namespace().get());
            let count = all.len();
            let change = match all.iter_mut().find(|known| known.name == settings.name) {
                Some(known) if known.is_like(settings) => return Ok("unchanged"),
                Some(known) => {
                    let (since, of, resumed, resync) = (known.since, known.of, known.resumed, known.resync.clone());
                    *known = DatabaseSettings { since, of, resumed, resync, ..settings.clone() };
                    "changed"
                }
                None if count == DATABASES_MAX => {
                    let detail = format!("the namespace has {DATABASES_MAX} databases, which is the limit");
                    return Err(Code::DatabaseUrl.error(detail));
                }
                None => {
                    all.push(DatabaseSettings { since: tx.tail().get(), of: own, ..settings.clone() });
                    "created"
                }
            };
            let note = serde_json::to_vec(&all).expect("text and numbers always make JSON");
            names::note(tx, &name, HISTORY, &note)?;
            Ok(change)
        })?;
        self.settle(crate::Site::CreateLog, crate::Shows::Report(committed.end), None)?;
        Ok(committed.value)
    }

    /// Lets the writers of a database, or of all, try again at once.
    pub fn resume_databases(&self, database: Option<&DatabaseName>) -> Result<()> {
        self.change_databases(database, |settings| settings.resumed += 1)
    }

    /// Has every value of the tables of a database written to it again.
    pub fn resync_database(&self, database: &DatabaseName, previous_owner: Option<String>) -> Result<()> {
        let resync = Resync { previous_owner };
        self.change_databases(Some(database), |settings| settings.resync = Some(resync.clone()))
    }

    /// Notes that this was done: the database has everything up to the batch with this number.
    pub fn resynced(&self, database: &DatabaseName, resync: &Resync, number: u64) -> Result<()> {
        let position = self.journal().entry_of_sequence(number)?.map_or(Position::default(), |entry| entry.end);
        let failed = |error: std::io::Error| Code::HostStart.error(format!("the progress of a database: {error}"));
        let file = ProgressFile::open(self, database).map_err(failed)?;
        file.note(Progress { number, position }).map_err(failed)?;
        self.change_databases(Some(database), |settings| {
            settings.resync.take_if(|wanted| wanted == resync);
        })
    }

    fn change_databases(&self, only: Option<&DatabaseName>, change: impl Fn(&mut DatabaseSettings)) -> Result<()> {
        if let Some(name) = only {
            self.database(name)?;
        }
        let committed = self.journal().commit(|tx| {
            let mut all = self.databases()?;
            all.iter_mut().filter(|known| only.is_none_or(|name| known.name == *name)).for_each(&change);
            let note = serde_json::to_vec(&all).expect("text and numbers always make JSON");
            names::note(tx, &names::internal(LOG), HISTORY, &note)
        })?;
        self.settle(crate::Site::CreateLog, crate::Shows::Report(committed.end), None)
    }

    /// Refuses a table that its database cannot have.
    pub(crate) fn check_table_database(&self, name: &str, options: &TableOptions) -> Result<()> {
        let Some(database) = options.database else {
            return match options.mode.is_external() {
                true => Ok(()),
                false => Err(Code::TableSettingUnavailable.error("a mode belongs to a table with a database")),
            };
        };
        self.database(&database)?;
        if name.len() > TABLE_NAME_MAX_BYTES {
            let length = name.len();
            let detail =
                format!("a table's name of {length} bytes; with a database, the limit is {TABLE_NAME_MAX_BYTES}");
            return Err(Code::DatabaseLimit.error(detail));
        }
        Ok(())
    }

    /// Notes where the writes of a database begin, in the batch that creates its first table.
    pub(crate) fn begin_database(&self, tx: &mut Transaction<'_>, options: &TableOptions) -> Result<()> {
        let Some(database) = options.database else { return Ok(()) };
        let is_its = |log: &Log| log.table().is_some_and(|table| table.database == Some(database));
        if tx.catalog().logs().any(is_its) {
            return Ok(());
        }
        let (since, of) = (tx.tail().get(), Some(self.journal().namespace().get()));
        let mut all = self.databases()?;
        all.iter_mut().filter(|known| known.name == database).for_each(|known| (known.since, known.of) = (since, of));
        let note = serde_json::to_vec(&all).expect("text and numbers always make JSON");
        names::note(tx, &names::internal(LOG), HISTORY, &note)
    }

    /// Up to here retention keeps everything, because a database does not have it.
    pub(crate) fn unwritten_from(&self) -> Result<Option<Position>> {
        if log(self)?.is_none() {
            return Ok(None);
        }
        let catalog = self.journal().catalog()?;
        let has_tables = |settings: &DatabaseSettings| {
            catalog.logs().any(|log| log.table().is_some_and(|table| table.database == Some(settings.name)))
        };
        let all = self.databases()?;
        Ok(all.iter().filter(|one| has_tables(one)).map(|one| Progress::of(self, one).position).min())
    }

    /// Refuses a change while its database is too far behind.
    pub(crate) fn check_backlog(&self, settings: &DatabaseSettings, tail: Position) -> Result<()> {
        let database = settings.name;
        let most = settings.unwritten_max.unwrap_or(UNWRITTEN_MAX_BYTES);
        let written = Progress::of(self, settings).position;
        let ahead = tail.get().saturating_sub(written.get());
        if ahead <= most {
            return Ok(());
        }
        let code = Code::DatabaseBacklog;
        let detail = format!("database '{database}' is {ahead} bytes of the journal behind; the limit is {most}");
        Err(code.error(detail).retry_after(crate::admission::retry_after_ms()))
    }
}
