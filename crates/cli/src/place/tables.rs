//! Tables.

use super::Place;
use millrace_documents::{DatabaseDoc, TableDoc};
use millrace_node::{AppendOptions, Code, LogName, Result, databases::DatabaseSettings, documents, manage::Order};
use millrace_wire::{
    Address, DatabaseName, HISTORY_ALL,
    table::{TableAnswer, TableOptions, TableRequest},
};

impl Place {
    /// Creates a table; returns whether it existed already.
    pub fn create_table(&self, name: &LogName, history: u64, options: TableOptions) -> Result<bool> {
        match self {
            Place::Local(namespace) => {
                let existed = namespace.log(name).is_ok();
                namespace.create_table(name, history, options)?;
                Ok(existed)
            }
            Place::Remote(remote, _) => {
                let TableOptions { keys, codec, ttl_ms, database, mode } = options;
                let history = Some(if history == HISTORY_ALL { 0 } else { history });
                let made: serde_json::Value = remote.manage(&Order::CreateTable {
                    table: name.clone(),
                    history,
                    keys,
                    codec,
                    ttl_ms,
                    database,
                    mode,
                })?;
                Ok(made["change"] == "unchanged")
            }
        }
    }

    /// Begins a replica; returns what changed.
    pub fn mirror_table(&self, table: &LogName, from: &Address, history: u64, reload: bool) -> Result<String> {
        match self {
            Place::Local(namespace) => namespace.mirror_table(table, from, history, reload).map(str::to_owned),
            Place::Remote(remote, _) => {
                let history = Some(if history == HISTORY_ALL { 0 } else { history });
                let order = Order::MirrorTable { table: table.clone(), from: from.to_string(), history, reload };
                let made: serde_json::Value = remote.manage(&order)?;
                Ok(made["change"].as_str().unwrap_or_default().to_owned())
            }
        }
    }

    /// Ends a replica.
    pub fn unmirror_table(&self, table: &LogName) -> Result<()> {
        match self {
            Place::Local(namespace) => namespace.unmirror_table(table),
            Place::Remote(remote, _) => {
                remote.manage::<serde_json::Value>(&Order::UnmirrorTable { table: table.clone() }).map(drop)
            }
        }
    }

    /// Sets a database to which tables are written; returns what changed.
    pub fn set_database(&self, settings: &DatabaseSettings) -> Result<String> {
        match self {
            Place::Local(namespace) => namespace.set_database(settings).map(str::to_owned),
            Place::Remote(remote, _) => {
                let secret = settings.secret.as_deref().map(str::parse).transpose()?;
                let DatabaseSettings {
                    name,
                    url,
                    authorities,
                    in_flight,
                    rows,
                    unwritten_max,
                    accept_volatile,
                    on_refused,
                    refuse_outside,
                    ..
                } = settings.clone();
                let made: serde_json::Value = remote.manage(&Order::SetDatabase {
                    database: name,
                    url,
                    secret,
                    authorities,
                    in_flight,
                    rows,
                    unwritten_max,
                    accept_volatile,
                    on_refused,
                    refuse_outside,
                })?;
                Ok(made["change"].as_str().unwrap_or_default().to_owned())
            }
        }
    }

    /// Waits until everything that a table has, or that all have, is in their databases.
    pub fn externalize(&self, table: Option<&LogName>) -> Result<()> {
        match self {
            Place::Local(namespace) => {
                let database = match table {
                    None => None,
                    Some(table) => {
                        let database = namespace.table(table)?.table().and_then(|options| options.database);
                        let missing = || Code::DatabaseNotFound.error(format!("table '{table}' has no database"));
                        Some(database.ok_or_else(missing)?)
                    }
                };
                let needs = namespace.unwritten(database.as_ref())?;
                let tail = namespace.journal().tail();
                namespace.gate().hold_for(millrace_node::Site::Inspect, (), tail, needs).wait()
            }
            Place::Remote(remote, _) => {
                remote.manage::<serde_json::Value>(&Order::Externalize { table: table.cloned() }).map(drop)
            }
        }
    }

    /// Lets the writers of a database, or of all, try again at once.
    pub fn resume_databases(&self, database: Option<&DatabaseName>) -> Result<()> {
        match self {
            Place::Local(namespace) => namespace.resume_databases(database),
            Place::Remote(remote, _) => {
                remote.manage::<serde_json::Value>(&Order::ResumeDatabase { database: database.copied() }).map(drop)
            }
        }
    }

    /// Has every value of the tables of a database written to it again.
    pub fn resync_database(&self, database: &DatabaseName, previous_owner: Option<String>) -> Result<()> {
        match self {
            Place::Local(namespace) => namespace.resync_database(database, previous_owner),
            Place::Remote(remote, _) => {
                let order = Order::ResyncDatabase { database: *database, previous_owner };
                remote.manage::<serde_json::Value>(&order).map(drop)
            }
        }
    }

    /// The databases, and what they do not have.
    pub fn databases(&self) -> Result<Vec<DatabaseDoc>> {
        match self {
            Place::Local(namespace) => namespace.inspect(documents::databases),
            Place::Remote(remote, _) => {
                let invalid =
                    |error: serde_json::Error| Code::FrameMalformed.error(format!("the list of databases: {error}"));
                let mut document: serde_json::Value =
                    serde_json::from_str(&remote.client().show("databases")?).map_err(invalid)?;
                serde_json::from_value(document["databases"].take()).map_err(invalid)
            }
        }
    }

    /// Asks a table, or changes it.
    pub fn ask_table(
        &self,
        table: &str,
        request: &TableRequest<'_>,
        options: AppendOptions<'_>,
    ) -> Result<TableAnswer> {
        match self {
            Place::Local(namespace) => namespace.ask_table(table, request, options),
            Place::Remote(remote, _) => {
                let (durability, after) = (options.durability, options.after);
                let options = millrace_client::AppendOptions { durability, after, ..Default::default() };
                remote.client().table(table, request, options)
            }
        }
    }

    /// The tables.
    pub fn tables(&self) -> Result<Vec<TableDoc>> {
        match self {
            Place::Local(namespace) => namespace.inspect(|namespace| documents::tables(namespace, &|_| true)),
            Place::Remote(remote, _) => {
                let text = remote.client().show("tables")?;
                let mut document: serde_json::Value = serde_json::from_str(&text)
                    .map_err(|error| Code::FrameMalformed.error(format!("the list of tables: {error}")))?;
                serde_json::from_value(document["tables"].take())
                    .map_err(|error| Code::FrameMalformed.error(format!("the list of tables: {error}")))
            }
        }
    }
}
