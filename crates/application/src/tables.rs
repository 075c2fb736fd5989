//! The databases and the tables of an application file.

use super::{
    LogDeclaration, entries, keys,
    problem::{Collector, shown},
    section::{Section, Span, parse},
};
use millrace_namespace::databases::{DatabaseSettings, WhenRefused};
use millrace_wire::{
    Address, DatabaseName, HISTORY_DEFAULT, LogName, TableMode,
    table::{KeyType, TableCodec, TableOptions},
};
use std::time::Duration;
use toml_edit::{Item, TableLike};

/// The longest lifetime of a value: a hundred years.
const TTL_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Most unanswered transactions.
const IN_FLIGHT_MAX: u64 = 1000;
const ROWS_MAX: u64 = 65_536;
const UNWRITTEN_LEAST_BYTES: u64 = 1 << 20;

/// The databases of the file.
pub(super) fn databases(root: &dyn TableLike, problems: &mut Collector<'_>) -> Vec<DatabaseSettings> {
    let all = entries(root, "databases", problems).into_iter();
    all.filter_map(|(name, item, span)| {
        let parsed = name.parse::<DatabaseName>().map_err(|error| problems.add(span.clone(), error.detail())).ok();
        let section =
            Section::open(item, span.clone(), format!("[databases.{}]", shown(name)), keys::DATABASE, problems)?;
        let url = section.text("url", problems);
        if url.is_none() && !section.has("url") {
            problems.add(span.clone(), format!("{} needs `url`", section.label()));
        }
        let secret = section.text("secret", problems).map(|placed| placed.value.to_owned());
        let authorities = section.text("authorities", problems).map(|placed| placed.value.to_owned());
        let in_flight = section.number("in_flight", 1, IN_FLIGHT_MAX, problems);
        let rows = section.number("rows", 1, ROWS_MAX, problems);
        let unwritten_max = section.size("unwritten_max", UNWRITTEN_LEAST_BYTES, u64::MAX >> 1, problems);
        let refused = [("stop", WhenRefused::Stop), ("dead-letter", WhenRefused::DeadLetter)];
        let settings = DatabaseSettings {
            secret,
            authorities,
            in_flight,
            rows,
            unwritten_max: unwritten_max.map(|placed| placed.value),
            accept_volatile: section.flag("accept_volatile", problems).unwrap_or(false),
            refuse_outside: section.flag("refuse_outside", problems).unwrap_or(false),
            on_refused: section.word("on_refused", &refused, problems).map_or(WhenRefused::Stop, |placed| placed.value),
            ..DatabaseSettings::new(parsed?, url?.value.to_owned())
        };
        match settings.check() {
            Ok(()) => Some(settings),
            Err(error) => {
                problems.add(section.place_of("url"), error.detail());
                None
            }
        }
    })
    .collect()
}

/// The tables of the file, each as the log that it is.
pub(super) fn read(root: &dyn TableLike, problems: &mut Collector<'_>) -> Vec<LogDeclaration> {
    let logs = root.get("logs").and_then(Item::as_table_like);
    let all = entries(root, "tables", problems).into_iter();
    all.filter_map(|(name, item, span)| {
        if logs.is_some_and(|logs| logs.contains_key(name)) {
            let name = shown(name);
            problems.add(span, format!("'{name}' is declared as a log and as a table; a table is a log with keys"));
            return None;
        }
        read_table(name, item, span, problems)
    })
    .collect()
}

fn read_table(name: &str, item: &Item, span: Span, problems: &mut Collector<'_>) -> Option<LogDeclaration> {
    let parsed = match parse::<LogName>(name) {
        Ok(parsed) if LogName::is_internal(&parsed) => {
            problems.add(span.clone(), format!("'{}' begins with '_'", shown(name)));
            None
        }
        parsed => parsed.map_err(|message| problems.add(span.clone(), message)).ok(),
    };
    let nested = item.as_table_like().and_then(|table| table.iter().find(|(_, value)| value.is_table_like()));
    if let Some((inner, _)) = nested {
        let (name, inner) = (shown(name), shown(inner));
        problems.add(span, format!("a table's name with '/' or '.' needs quotes: [tables.\"{name}/{inner}\"]"));
        return None;
    }
    let section = Section::open(item, span, format!("[tables.\"{}\"]", shown(name)), keys::TABLE, problems)?;
    let codecs = [("json", TableCodec::Json), ("text", TableCodec::Text), ("bytes", TableCodec::Bytes)];
    let codec = section.word("codec", &codecs, problems).map_or(TableCodec::Json, |placed| placed.value);
    let kinds = [("text", KeyType::Text), ("bytes", KeyType::Bytes)];
    let keys = section.word("keys", &kinds, problems).map_or(KeyType::Text, |placed| placed.value);
    let ttl = section.duration("ttl", Duration::from_millis(1), TTL_MAX, problems);
    let ttl_ms = ttl.map_or(0, |ttl| ttl.as_millis() as u64); // at most TTL_MAX
    let history = section.history("history", problems).unwrap_or(HISTORY_DEFAULT);
    let database = section.text("database", problems);
    let label = section.label();
    let modes = [
        ("external", TableMode::External),
        ("asynchronous", TableMode::Asynchronous),
        ("synchronous", TableMode::Synchronous),
    ];
    let mode = section.word("mode", &modes, problems).map_or(TableMode::External, |placed| placed.value);
    if database.is_none() && section.has("mode") {
        problems.add(section.place_of("mode"), format!("mode in {label} needs `database`"));
    }
    let database = database.and_then(|named| match named.value.parse::<DatabaseName>() {
        Ok(database) => Some(database),
        Err(error) => {
            problems.add(named.span, error.detail());
            None
        }
    });
    let from = section.text("from", problems);
    for key in ["codec", "keys", "ttl", "database", "mode"].into_iter().filter(|key| from.is_some() && section.has(key))
    {
        problems
            .add(section.place_of(key), format!("{key} in {label}: the owner of a replica decides that; leave it out"));
    }
    let from = from.and_then(|named| match named.value.parse::<Address>() {
        Ok(from) => Some(from),
        Err(error) => {
            problems.add(named.span, error.detail());
            None
        }
    });
    let name = parsed?;
    let from = from.map(|from| Address { log: from.log.or_else(|| Some(name.clone())), ..from });
    let table = Some(TableOptions { keys, codec, ttl_ms, database, mode });
    Some(LogDeclaration { name, history, table, amendable: None, time: None, from })
}
