//! `millrace table database`, `externalize` and `lag`.

use crate::{
    args::{DatabaseArgs, ExternalizeArgs, ResumeDatabaseArgs, ResyncArgs, TableNameArgs},
    out::{self, Out},
    place::{Place, local_only},
    report::Outcome,
    show,
};
use millrace_gateway::{Comparison, Difference, check_table, load_table};
use millrace_node::{Namespace, databases::DatabaseSettings};
use millrace_wire::{Code, Result, units};
use serde_json::json;
use std::{fs, path::Path, time::Duration};

pub fn set(place: &Place, args: &DatabaseArgs, out: &mut Out) -> Outcome {
    let settings = DatabaseSettings {
        secret: args.secret.as_ref().map(ToString::to_string),
        authorities: args.authorities.as_deref().map(authorities).transpose()?,
        in_flight: args.in_flight,
        rows: args.rows,
        unwritten_max: args.unwritten_max,
        accept_volatile: args.accept_volatile,
        on_refused: args.on_refused.into(),
        refuse_outside: args.refuse_outside,
        ..DatabaseSettings::new(args.name, args.url.clone())
    };
    let change = place.set_database(&settings)?;
    if out.json() {
        out.object(&json!({ "database": args.name, "change": change }))?;
    } else {
        out.line(format!("database {}: {change}", args.name))?;
    }
    Ok(())
}

/// The certificates in a file of this machine.
fn authorities(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| Code::DatabaseTls.error(format!("'{}': {error}", file.display())))
}

pub fn externalize(place: &Place, args: &ExternalizeArgs, out: &mut Out) -> Outcome {
    place.externalize(args.table.as_ref())?;
    if out.json() {
        out.object(&json!({ "externalized": true }))?;
    } else {
        out.line("everything is written")?;
    }
    Ok(())
}

pub fn lag(place: &Place, out: &mut Out) -> Outcome {
    let mut table = out::Table::new(&["database", "tables>", "unwritten>", "oldest>", "waiting>", "state"]);
    for doc in place.databases()? {
        if out.json() {
            out.object(&json!(doc))?;
            continue;
        }
        let state = match (&doc.trouble, &doc.server) {
            (Some(trouble), _) => format!("{}: {}", trouble.code, show::headline(&trouble.error, 200)),
            (None, Some(server)) => server.clone(),
            (None, None) => "not reached yet".to_owned(),
        };
        table.row(vec![
            doc.database.to_string(),
            show::grouped(doc.tables.len() as u64),
            show::grouped(doc.unwritten),
            doc.oldest_ms.map_or_else(|| "-".into(), |ms| units::show_duration(Duration::from_millis(ms))),
            show::grouped(doc.waiting),
            state,
        ]);
    }
    if out.json() {
        return Ok(());
    }
    if table.is_empty() {
        return Ok(out.line("no databases; `millrace table database NAME --url URL` sets one")?);
    }
    Ok(out.table(&table)?)
}

pub fn resume(place: &Place, args: &ResumeDatabaseArgs, out: &mut Out) -> Outcome {
    place.resume_databases(args.database.as_ref())?;
    if out.json() {
        out.object(&json!({ "resumed": true }))?;
    } else {
        out.line("the host tries again")?;
    }
    Ok(())
}

pub fn resync(place: &Place, args: &ResyncArgs, out: &mut Out) -> Outcome {
    place.resync_database(&args.database, args.previous_owner.clone())?;
    if out.json() {
        out.object(&json!({ "database": args.database, "resync": true }))?;
    } else {
        out.line(format!("the host writes all values to database {} again", args.database))?;
    }
    Ok(())
}

/// The namespace, in a directory of this machine.
fn local(place: &Place) -> Result<&Namespace> {
    match place {
        Place::Local(namespace) => Ok(namespace),
        Place::Remote(_, target) => Err(local_only(target)),
    }
}

pub fn check(place: &Place, args: &TableNameArgs, out: &mut Out) -> Outcome {
    let Comparison { keys, number, differences } = check_table(local(place)?, &args.table)?;
    let version = |version: Option<u64>| version.map_or_else(|| "-".to_owned(), show::grouped);
    let mut table = out::Table::new(&["key", "table>", "database>", "what"]);
    for difference in &differences {
        if out.json() {
            let Difference { key, expected, found, is_value } = difference;
            out.object(&json!({ "key": key, "expected": expected, "found": found, "value_differs": is_value }))?;
            continue;
        }
        let what = match (difference.expected, difference.found, difference.is_value) {
            (_, _, true) => "another value",
            (None, ..) => "a row that the table does not have",
            (_, None, _) => "no row",
            _ => "another version",
        };
        let (expected, found) = (version(difference.expected), version(difference.found));
        table.row(vec![difference.key.clone(), expected, found, what.to_owned()]);
    }
    if differences.is_empty() {
        if out.json() {
            out.object(&json!({ "table": args.table, "keys": keys, "number": number, "equal": true }))?;
        } else {
            out.line(format!("{} keys are equal in table and database", show::grouped(keys)))?;
        }
        return Ok(());
    }
    if !out.json() {
        out.table(&table)?;
    }
    let (count, table) = (differences.len(), &args.table);
    Err(Code::DatabaseDiffers
        .error(format!("keys that table '{table}' and its database have differently: {count}"))
        .into())
}

pub fn load(place: &Place, args: &TableNameArgs, out: &mut Out) -> Outcome {
    let loaded = load_table(local(place)?, &args.table)?;
    if out.json() {
        out.object(&json!({ "table": args.table, "loaded": loaded }))?;
    } else {
        out.line(format!("loaded {} rows into table {}", show::grouped(loaded), args.table))?;
    }
    Ok(())
}
