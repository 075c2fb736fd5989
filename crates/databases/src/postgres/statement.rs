//! The statement of a transaction, and that of a page.

use super::{key_type, quoted, value_type};
use crate::engine::{Keys, Table, Values};
use bytes::{Bytes, BytesMut};
use millrace_wire::{Code, Result};
use millrace_writebehind::{Row, Transaction};
use std::{collections::BTreeMap, error::Error, fmt::Write as _};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// The statement of a transaction, with its parameters.
pub struct Write {
    pub sql: String,
    number: i64,
    after: i64,
    stream: String,
    owner: String,
    columns: Vec<Column>,
}

/// An array with a key, value or version of each row.
enum Column {
    Texts(Vec<Raw>),
    Bytes(Vec<Raw>),
    Numbers(Vec<i64>),
}

/// Bytes as they are. Whether they are valid text is for the database to say, which refuses the row otherwise.
#[derive(Debug)]
struct Raw(Bytes);

impl ToSql for Raw {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        [Type::TEXT, Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}

impl Column {
    fn of(is_text: bool, parts: Vec<Raw>) -> Self {
        if is_text { Self::Texts(parts) } else { Self::Bytes(parts) }
    }

    fn parameter(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Texts(texts) => (texts, Type::TEXT_ARRAY),
            Self::Bytes(bytes) => (bytes, Type::BYTEA_ARRAY),
            Self::Numbers(numbers) => (numbers, Type::INT8_ARRAY),
        }
    }
}

impl Write {
    /// # Errors
    ///
    /// A table does not belong to the stream, or a number is too large.
    pub fn new(transaction: &Transaction, tables: &BTreeMap<String, Table>, stream: &str, owner: &str) -> Result<Self> {
        let large = |_| Code::DatabaseLimit.error("a number exceeds 2^63 - 1");
        let mut write = Self {
            sql:
                "WITH adv AS (UPDATE millrace.streams SET number = $1 WHERE stream = $2 AND owner = $3 AND number = $4 \
                  RETURNING 1)"
                    .into(),
            number: i64::try_from(transaction.number).map_err(large)?,
            after: i64::try_from(transaction.after).map_err(large)?,
            stream: stream.into(),
            owner: owner.into(),
            columns: Vec::new(),
        };
        let mut by_table: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        transaction.rows.iter().for_each(|row| by_table.entry(&row.table).or_default().push(row));
        for (at, (name, rows)) in by_table.into_iter().enumerate() {
            let unknown = || Code::DatabaseSchema.error(format!("table '{name}' does not belong to the stream"));
            let table = tables.get(name).ok_or_else(unknown)?;
            let (deletes, puts): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(|row| row.value().is_none());
            if !puts.is_empty() {
                let versions =
                    puts.iter().map(|row| i64::try_from(row.version).map_err(large)).collect::<Result<_>>()?;
                write.put(at, table, &puts, versions);
            }
            if !deletes.is_empty() {
                write.delete(at, table, &deletes);
            }
        }
        write.sql += " SELECT count(*) FROM adv";
        Ok(write)
    }

    /// Adds a parameter, and returns its number.
    fn add(&mut self, column: Column) -> usize {
        self.columns.push(column);
        4 + self.columns.len()
    }

    fn keys(&mut self, table: &Table, rows: &[&Row]) -> usize {
        let keys = rows.iter().map(|row| Raw(row.key.clone())).collect();
        self.add(Column::of(table.keys == Keys::Text, keys))
    }

    fn put(&mut self, at: usize, table: &Table, rows: &[&Row], versions: Vec<i64>) {
        let values = rows.iter().filter_map(|row| row.value().cloned()).map(Raw).collect();
        let keys = self.keys(table, rows);
        let values = self.add(Column::of(table.values != Values::Bytes, values));
        let versions = self.add(Column::Numbers(versions));
        let (name, kind) = (quoted(&table.name), value_type(table.values));
        let _ = write!(
            self.sql,
            ", put{at} AS (INSERT INTO {name} (key, value, version) SELECT k, v::{kind}, n FROM unnest(${keys}, ${values}, \
             ${versions}) u (k, v, n) WHERE EXISTS (SELECT FROM adv) ON CONFLICT (key) DO UPDATE SET value = excluded.value, \
             version = excluded.version)"
        );
    }

    fn delete(&mut self, at: usize, table: &Table, rows: &[&Row]) {
        let (keys, name) = (self.keys(table, rows), quoted(&table.name));
        let _ = write!(
            self.sql,
            ", del{at} AS (DELETE FROM {name} WHERE key = ANY (${keys}) AND EXISTS (SELECT FROM adv))"
        );
    }

    /// The parameters, with their types.
    pub fn parameters(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&self.number, Type::INT8),
            (&self.stream, Type::TEXT),
            (&self.owner, Type::TEXT),
            (&self.after, Type::INT8),
        ];
        parameters.extend(self.columns.iter().map(Column::parameter));
        parameters
    }
}

/// Reads the number of the stream $1 and at most $2 rows behind the key $3, in one snapshot. The row with the number has no key.
pub fn page(table: &Table, is_behind: bool) -> String {
    let name = quoted(&table.name);
    let bytes =
        |column: &str, is_text| if is_text { format!("convert_to({column}::text, 'UTF8')") } else { column.into() };
    let (is_text, key) = (table.keys == Keys::Text, bytes("key", table.keys == Keys::Text));
    let value = bytes("value", table.values != Values::Bytes);
    let limit = if is_text { "convert_from($3, 'UTF8')" } else { "$3" };
    let behind = if is_behind { format!("WHERE key > {limit}::{}", key_type(table.keys)) } else { String::new() };
    format!(
        "SELECT NULL::bytea, NULL::bytea, number FROM millrace.streams WHERE stream = $1 UNION ALL (SELECT {key}, {value}, \
         version FROM {name} {behind} ORDER BY key LIMIT $2)"
    )
}
