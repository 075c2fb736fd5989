//! The schema: Millrace's own table, and those of the user.

use super::{PostgresFault, key_type, quoted, value_type};
use crate::engine::{Standing, Table, Target};
use millrace_wire::{Code, Error};
use std::collections::BTreeMap;
use tokio_postgres::{Client, Row, types::Type};

const STREAMS: &str = "CREATE SCHEMA IF NOT EXISTS millrace; CREATE TABLE IF NOT EXISTS millrace.streams (stream text PRIMARY \
                       KEY, owner text NOT NULL, number bigint NOT NULL);";
/// The first version with everything that is used here.
const VERSION_MIN: i32 = 130_000;

/// The columns of a table, with their types, collations, and whether a row can be inserted without them.
const COLUMNS: &str = "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(c.collname::text, ''), NOT \
                       a.attnotnull OR a.atthasdef OR a.attidentity <> '' FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = \
                       a.attcollation WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";
/// Whether the key alone is unique.
const UNIQUE: &str = "SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE \
                      i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND \
                      i.indnkeyatts = 1 AND a.attname = 'key'";

/// Constraints by which the key alone is unique, but only at the end of a transaction: ON CONFLICT cannot use them.
const DEFERRABLE: &str = "SELECT c.conname::text FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND \
                          c.conkey = ARRAY[a.attnum] WHERE c.conrelid = to_regclass($1) AND c.condeferrable AND a.attname = 'key' \
                          AND c.contype IN ('p', 'u')";

/// What statements say that meet the same ones of another connection.
const IN_BETWEEN: &[&str] = &["23505", "42710", "42723", "42704", "XX000"];

/// The stream whose changes alone the trigger of a table admits.
const GUARDED: &str = "SELECT convert_from(substring(tgargs FROM 1 FOR length(tgargs) - 1), 'UTF8') FROM pg_trigger WHERE tgrelid = \
                       to_regclass($1) AND tgname = 'millrace_refuse_outside' AND NOT tgisinternal";
/// The function of the trigger: a connection says which stream it writes. This keeps accidents away, and nobody who wants to deceive it.
const GUARD: &str = "CREATE FUNCTION millrace.refuse_outside() RETURNS trigger LANGUAGE plpgsql AS $guard$ BEGIN IF \
                     coalesce(current_setting('millrace.stream', true), '') <> TG_ARGV[0] THEN RAISE EXCEPTION 'table % is written by \
                     Millrace, as database %, and by nobody else', TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = \
                     'object_not_in_prerequisite_state', HINT = 'Change it with millrace table put, or through a function.'; END IF; \
                     RETURN NULL; END $guard$; ";

/// Checks and completes the schema, and claims the stream.
pub async fn open(client: &Client, target: &Target) -> Result<Standing, PostgresFault> {
    let setting = "SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_setting('fsync') = \
                   'on', current_setting('synchronous_commit') IN ('off', 'local'), pg_is_in_recovery()";
    let settings = client.query_typed(setting, &[]).await?;
    let settings = settings.first().ok_or_else(|| Code::DatabaseProtocol.error("no settings"))?;
    let version: String = settings.try_get(0)?;
    if settings.try_get::<_, i32>(1)? < VERSION_MIN {
        return Err(Code::DatabaseProtocol.error(format!("PostgreSQL {version} is older than 13")).into());
    }
    if settings.try_get(4)? {
        return Err(Code::DatabaseUnreachable.error("this server is a standby, which accepts no writes").into());
    }
    let is_durable: bool = settings.try_get(2)?;
    target.check_durable(is_durable, "PostgreSQL runs with fsync = off")?;
    if settings.try_get(3)? {
        client.batch_execute("SET synchronous_commit = on").await?;
    }
    create(client, "millrace.streams", STREAMS).await?;
    // The triggers know by it who writes.
    client.query_typed("SELECT set_config('millrace.stream', $1, false)", &[(&target.stream, Type::TEXT)]).await?;
    let (mut ddl, mut faults) = (Vec::new(), Vec::new());
    for table in &target.tables {
        create(client, &quoted(&table.name), &definition(table)).await?;
        check(client, table, &mut faults, &mut ddl).await?;
        guard(client, target, table, &mut faults, &mut ddl).await?;
    }
    if !ddl.is_empty() {
        return Err(Code::DatabaseSchema.error(format!("{}. Execute: {}", faults.join("; "), ddl.join(" "))).into());
    }
    Ok(Standing { number: claim(client, target).await?, is_durable, server: format!("PostgreSQL {version}") })
}

/// Creates a table that does not exist.
async fn create(client: &Client, name: &str, ddl: &str) -> Result<(), PostgresFault> {
    let found = client.query_typed("SELECT to_regclass($1) IS NOT NULL", &[(&name, Type::TEXT)]).await?;
    if found.first().map(|row| row.try_get(0)).transpose()? == Some(true) {
        return Ok(());
    }
    match client.batch_execute(ddl).await {
        // Somebody else has created it meanwhile.
        Err(error) if error.code().is_some_and(|code| matches!(code.code(), "23505" | "42P07" | "42P06")) => Ok(()),
        Err(error) if error.code().is_some_and(|code| matches!(code.code(), "42501" | "3F000")) => {
            let words = super::words(&error);
            Err(Code::DatabaseSchema.error(format!("table {name} does not exist ({words}). Execute: {ddl}")).into())
        }
        done => Ok(done?),
    }
}

/// The table as Millrace creates it.
fn definition(table: &Table) -> String {
    let (name, value) = (quoted(&table.name), value_type(table.values));
    let collation = if key_type(table.keys) == "text" { " COLLATE \"C\"" } else { "" };
    let key = key_type(table.keys);
    format!("CREATE TABLE {name} (key {key}{collation} PRIMARY KEY, value {value} NOT NULL, version bigint NOT NULL);")
}

/// Compares a table with what it should be: adds what differs, and the statements that change it.
async fn check(
    client: &Client,
    table: &Table,
    faults: &mut Vec<String>,
    ddl: &mut Vec<String>,
) -> Result<(), PostgresFault> {
    let name = quoted(&table.name);
    let rows = client.query_typed(COLUMNS, &[(&name, Type::TEXT)]).await?;
    let mut columns = BTreeMap::new();
    for row in &rows {
        let column = |row: &Row| Ok::<_, tokio_postgres::Error>((row.try_get(1)?, row.try_get(2)?, row.try_get(3)?));
        columns.insert(row.try_get::<_, String>(0)?, column(row)?);
    }
    let mut fault = |what: String, statement: String| {
        faults.push(format!("table {name}: {what}"));
        ddl.push(format!("ALTER TABLE {name} {statement};"));
    };
    let wanted = [("key", key_type(table.keys)), ("value", value_type(table.values)), ("version", "bigint")];
    for (column, kind) in wanted {
        let collation = if column == "key" && kind == "text" { " COLLATE \"C\"" } else { "" };
        match columns.remove(column) {
            None => {
                let statement = format!("ADD COLUMN {column} {kind}{collation} NOT NULL");
                fault(format!("it has no column '{column}'"), statement);
            }
            Some((found, collated, _)) => {
                let (found, collated): (String, String) = (found, collated);
                let is_collated = collation.is_empty() || ["C", "POSIX"].contains(&collated.as_str());
                if found != kind || !is_collated {
                    let what = format!(
                        "column '{column}' has the type {found}, collation '{collated}'; needed is {kind}{collation}"
                    );
                    fault(what, format!("ALTER COLUMN {column} TYPE {kind}{collation} USING {column}::{kind}"));
                }
            }
        }
    }
    for (column, (_, _, is_optional)) in columns {
        let is_optional: bool = is_optional;
        if !is_optional {
            let column = quoted(&column);
            let what = format!("column {column} has neither a default nor NULL");
            fault(what, format!("ALTER COLUMN {column} DROP NOT NULL"));
        }
    }
    for row in client.query_typed(DEFERRABLE, &[(&name, Type::TEXT)]).await? {
        let constraint = quoted(row.try_get(0)?);
        fault(format!("constraint {constraint} is deferrable"), format!("DROP CONSTRAINT {constraint}"));
    }
    if client.query_typed(UNIQUE, &[(&name, Type::TEXT)]).await?.is_empty() {
        fault("its column 'key' is not unique".into(), "ADD UNIQUE (key)".into());
    }
    Ok(())
}

/// Makes the table have the trigger that refuses changes by others, or not, as the target says.
async fn guard(
    client: &Client,
    target: &Target,
    table: &Table,
    faults: &mut Vec<String>,
    ddl: &mut Vec<String>,
) -> Result<(), PostgresFault> {
    let name = quoted(&table.name);
    let rows = client.query_typed(GUARDED, &[(&name, Type::TEXT)]).await?;
    let found = rows.first().map(|row| row.try_get::<_, String>(0)).transpose()?;
    let wanted = target.refuse_outside.then(|| format!("'{}'", target.stream.replace('\'', "''")));
    if found.as_deref() == wanted.as_ref().map(|_| target.stream.as_str()) {
        return Ok(());
    }
    let mut statements = String::new();
    if found.is_some() {
        statements += &format!("DROP TRIGGER millrace_refuse_outside ON {name}; ");
    }
    if let Some(stream) = wanted {
        let has_function =
            client.query_typed("SELECT to_regprocedure('millrace.refuse_outside()') IS NOT NULL", &[]).await?;
        if has_function.first().map(|row| row.try_get(0)).transpose()? != Some(true) {
            statements += GUARD;
        }
        statements += &format!(
            "CREATE TRIGGER millrace_refuse_outside BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {name} FOR EACH STATEMENT \
             EXECUTE FUNCTION millrace.refuse_outside({stream});"
        );
    }
    match client.batch_execute(&statements).await {
        // The next attempt finds what it has done.
        Err(error) if error.code().is_some_and(|code| IN_BETWEEN.contains(&code.code())) => {
            Err(Code::DatabaseUnreachable.error(format!("another connection changes the trigger of {name}")).into())
        }
        Err(error) if error.code().is_some_and(|code| matches!(code.code(), "42501" | "3F000")) => {
            faults.push(format!("table {name}: its trigger cannot be changed ({})", super::words(&error)));
            ddl.push(statements);
            Ok(())
        }
        done => Ok(done?),
    }
}

/// Makes the stream the owner's, if nobody else has it. Returns its number.
async fn claim(client: &Client, target: &Target) -> Result<u64, PostgresFault> {
    let (stream, owner) = (&target.stream, &target.owner);
    let insert = "INSERT INTO millrace.streams VALUES ($1, $2, 0) ON CONFLICT (stream) DO NOTHING";
    client.execute_typed(insert, &[(stream, Type::TEXT), (owner, Type::TEXT)]).await?;
    if let Some(previous) = &target.previous_owner {
        let update = "UPDATE millrace.streams SET owner = $2 WHERE stream = $1 AND owner = $3";
        client.execute_typed(update, &[(stream, Type::TEXT), (owner, Type::TEXT), (previous, Type::TEXT)]).await?;
    }
    let select = "SELECT owner, number FROM millrace.streams WHERE stream = $1";
    let found = client.query_typed(select, &[(stream, Type::TEXT)]).await?;
    let row = found.first().ok_or_else(|| Code::DatabaseUnreachable.error("the stream's row was deleted"))?;
    target.check_owner(row.try_get(0)?)?;
    let negative =
        |number: i64| -> Error { Code::DatabaseProtocol.error(format!("the stream has the number {number}")) };
    let number: i64 = row.try_get(1)?;
    Ok(u64::try_from(number).map_err(|_| negative(number))?)
}
