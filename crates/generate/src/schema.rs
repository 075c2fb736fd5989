//! `spec/messages.toml`, checked.

use std::{collections::BTreeMap, fmt};

/// A value's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A whole number of so many bits.
    Number(u32),
    /// True or false.
    Flag,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// The id of an event.
    Id,
    /// A time.
    Hlc,
    /// `memory` or `disk`.
    Durability,
    /// A map of this name.
    Map(String),
    /// An array.
    Array(Box<Type>),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(bits) => write!(f, "u{bits}"),
            Self::Flag => f.write_str("flag"),
            Self::Text => f.write_str("text"),
            Self::Bytes => f.write_str("bytes"),
            Self::Id => f.write_str("id"),
            Self::Hlc => f.write_str("hlc"),
            Self::Durability => f.write_str("durability"),
            Self::Map(name) => f.write_str(name),
            Self::Array(of) => write!(f, "[{of}]"),
        }
    }
}

/// When a key is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Never.
    Required,
    /// `?`: if it has no value.
    Optional,
    /// `~`: if it is 0, false or empty.
    Spared,
    /// `=`: never, but it may be absent.
    Defaulted,
}

impl Presence {
    /// The mark behind the key.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Required => "",
            Self::Optional => "?",
            Self::Spared => "~",
            Self::Defaulted => "=",
        }
    }
}

/// A key of a map.
#[derive(Clone, Debug)]
pub struct Field {
    /// The key.
    pub key: String,
    /// Its type.
    pub of: Type,
    /// When it is left out.
    pub presence: Presence,
    /// What it means.
    pub doc: String,
    /// Whether only this map says so, and not `[key]`.
    pub own_doc: bool,
}

/// A map: a message, or a part of one.
#[derive(Clone, Debug)]
pub struct Map {
    /// Its name, such as `append_many`.
    pub name: String,
    /// Its keys in the order on the wire.
    pub fields: Vec<Field>,
    /// What it is or does; may be empty.
    pub doc: String,
    /// Whether it owns its text in Rust.
    pub owned: bool,
    /// Further traits in Rust.
    pub derive: Vec<String>,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its number.
    pub kind: u8,
    /// Its keys.
    pub map: Map,
    /// Its section.
    pub section: String,
    /// The messages that answer it.
    pub answers: Vec<String>,
    /// What the answer means here.
    pub note: String,
    /// `client`, `host` or `both`.
    pub from: String,
    /// Its name on the page.
    pub called: String,
    /// The languages that have it.
    pub within: Vec<String>,
}

/// A section of the page.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its name, that of a module in Rust.
    pub name: String,
    /// Its title.
    pub title: String,
}

/// A member of the JSON of a verb of MANAGE.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: String,
    /// Whether it may be missing.
    pub optional: bool,
    /// What it means; may be empty.
    pub doc: String,
}

/// A verb of MANAGE.
#[derive(Clone, Debug)]
pub struct Verb {
    /// Its place in the table.
    pub order: i64,
    /// Its name, as `do` has it.
    pub name: String,
    /// The members beside `do`.
    pub members: Vec<Member>,
    /// What the caller needs.
    pub right: String,
    /// What it answers.
    pub answer: String,
}

/// The protocol.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The sections, in order.
    pub sections: Vec<Section>,
    /// The messages, by number.
    pub messages: Vec<Message>,
    /// The maps inside of messages, by name.
    pub maps: BTreeMap<String, Map>,
    /// The verbs of MANAGE, in order.
    pub verbs: Vec<Verb>,
}

type Result<T> = std::result::Result<T, String>;

impl Schema {
    /// Reads and checks the file.
    pub fn parse(text: &str) -> Result<Self> {
        let file: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        only(&file, &["section", "key", "message", "map", "manage"], "the file")?;
        let shared = texts(table(&file, "key")?, "[key]")?;
        let sections = file.get("section").and_then(toml::Value::as_array).ok_or("there are no sections")?;
        let mut within = BTreeMap::new();
        let mut listed = Vec::new();
        for section in sections {
            let section = section.as_table().ok_or("a section is a table")?;
            only(section, &["name", "title", "in"], "a section")?;
            let name = string(section, "name", "a section")?;
            within.insert(name.clone(), list(section, "in", &name)?);
            listed.push(Section { title: string(section, "title", &name)?, name });
        }
        let mut maps = BTreeMap::new();
        for (name, map) in table(&file, "map")? {
            let at = format!("[map.{name}]");
            let map = map.as_table().ok_or_else(|| format!("{at} is no table"))?;
            only(map, &["fields", "doc", "keys", "owned", "derive"], &at)?;
            maps.insert(name.clone(), read_map(name, map, &shared, &at)?);
        }
        let mut messages = Vec::new();
        for (name, message) in table(&file, "message")? {
            let at = format!("[message.{name}]");
            let message = message.as_table().ok_or_else(|| format!("{at} is no table"))?;
            let keys = ["type", "section", "fields", "answer", "from", "called", "doc", "note", "in", "keys"];
            only(message, &keys, &at)?;
            let kind = message.get("type").and_then(toml::Value::as_integer).and_then(|kind| u8::try_from(kind).ok());
            let section = string(message, "section", &at)?;
            let of_section = within.get(&section).ok_or_else(|| format!("{at}: no section '{section}'"))?;
            let answers = match message.get("answer") {
                None => Vec::new(),
                Some(toml::Value::String(one)) => vec![one.clone()],
                Some(_) => list(message, "answer", &at)?,
            };
            let text = |key: &str| message.get(key).and_then(toml::Value::as_str).map(String::from);
            messages.push(Message {
                kind: kind.ok_or_else(|| format!("{at}: its type is no number from 0 to 255"))?,
                map: read_map(name, message, &shared, &at)?,
                answers,
                note: text("note").unwrap_or_default(),
                from: text("from").unwrap_or_default(),
                called: text("called").unwrap_or_else(|| name.to_uppercase().replace('_', " ")),
                within: if message.contains_key("in") { list(message, "in", &at)? } else { of_section.clone() },
                section,
            });
        }
        messages.sort_by_key(|message| message.kind);
        let mut verbs = Vec::new();
        for (name, verb) in table(&file, "manage")? {
            let at = format!("[manage.{name}]");
            verbs.push(read_verb(name, verb.as_table().ok_or_else(|| format!("{at} is no table"))?, &at)?);
        }
        verbs.sort_by_key(|verb| verb.order);
        let mut schema = Self { sections: listed, messages, maps, verbs };
        schema.check(&shared)?;
        Ok(schema)
    }

    fn check(&mut self, keys: &BTreeMap<String, String>) -> Result<()> {
        for pair in self.messages.windows(2) {
            if pair[0].kind == pair[1].kind {
                return Err(format!("'{}' and '{}' have one type", pair[0].map.name, pair[1].map.name));
            }
        }
        let answers: Vec<String> = self.messages.iter().flat_map(|message| message.answers.clone()).collect();
        if let Some(odd) = answers.iter().find(|answer| !self.messages.iter().any(|one| one.map.name == **answer)) {
            return Err(format!("there is no message '{odd}' to answer with"));
        }
        for message in &mut self.messages {
            if message.from.is_empty() {
                message.from = if answers.contains(&message.map.name) { "host" } else { "client" }.into();
            }
            if !["client", "host", "both"].contains(&message.from.as_str()) {
                return Err(format!("'{}' is from '{}'", message.map.name, message.from));
            }
            if message.map.doc.is_empty() && !answers.contains(&message.map.name) {
                return Err(format!("'{}' has no doc", message.map.name));
            }
        }
        for map in self.messages.iter().map(|message| &message.map).chain(self.maps.values()) {
            for field in &map.fields {
                if let Some(odd) = inner(&field.of).filter(|name| self.map(name).is_none()) {
                    return Err(format!("'{}' of '{}' is of the unknown type '{odd}'", field.key, map.name));
                }
            }
        }
        let all = self.messages.iter().map(|message| &message.map).chain(self.maps.values());
        let shared: Vec<&str> =
            all.flat_map(|map| &map.fields).filter(|field| !field.own_doc).map(|field| &*field.key).collect();
        if let Some(odd) = keys.keys().find(|key| !shared.contains(&key.as_str())) {
            return Err(format!("[key] explains '{odd}', which no map leaves to it"));
        }
        if let Some(both) = self.messages.iter().find(|message| self.maps.contains_key(&message.map.name)) {
            return Err(format!("'{}' is a message and a map", both.map.name));
        }
        Ok(())
    }

    /// The map of this name, be it a message or not.
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.maps.get(name).or_else(|| self.messages.iter().map(|message| &message.map).find(|map| map.name == name))
    }

    /// The message of this name.
    pub fn message(&self, name: &str) -> &Message {
        self.messages.iter().find(|message| message.map.name == name).expect("answers were checked")
    }

    /// The messages that this one answers.
    pub fn requests<'s>(&'s self, answer: &'s str) -> impl Iterator<Item = &'s Message> {
        self.messages.iter().filter(move |message| message.answers.iter().any(|one| one == answer))
    }

    /// The messages of a section.
    pub fn of_section<'s>(&'s self, section: &'s str) -> impl Iterator<Item = &'s Message> {
        self.messages.iter().filter(move |message| message.section == section)
    }

    /// The maps that are not messages, in the order in which messages of `of` name them first, each behind those that it needs.
    pub fn maps_within<'s>(&'s self, of: impl Iterator<Item = &'s Message>) -> Vec<&'s Map> {
        let mut found = Vec::new();
        for message in of {
            self.collect(&message.map, &mut found);
        }
        found
    }

    fn collect<'s>(&'s self, map: &'s Map, found: &mut Vec<&'s Map>) {
        for name in map.fields.iter().filter_map(|field| inner(&field.of)) {
            let Some(map) = self.maps.get(name) else { continue };
            self.collect(map, found);
            if !found.iter().any(|known| known.name == map.name) {
                found.push(map);
            }
        }
    }
}

/// The name of the map that a type has.
pub fn inner(of: &Type) -> Option<&str> {
    match of {
        Type::Map(name) => Some(name),
        Type::Array(of) => inner(of),
        _ => None,
    }
}

fn read_map(name: &str, from: &toml::Table, shared: &BTreeMap<String, String>, at: &str) -> Result<Map> {
    let mut docs = match from.contains_key("keys") {
        true => texts(table(from, "keys")?, at)?,
        false => BTreeMap::new(),
    };
    let mut fields: Vec<Field> = Vec::new();
    for field in list(from, "fields", at)? {
        let (key, of) = field.split_once(": ").ok_or_else(|| format!("{at}: '{field}' is not KEY: TYPE"))?;
        let (key, presence) = match key.split_at(key.len() - 1) {
            (key, "?") => (key, Presence::Optional),
            (key, "~") => (key, Presence::Spared),
            (key, "=") => (key, Presence::Defaulted),
            _ => (key, Presence::Required),
        };
        let own = docs.remove(key);
        let own_doc = own.is_some();
        let doc = own.or_else(|| shared.get(key).cloned()).ok_or_else(|| format!("{at}: '{key}' is not explained"))?;
        if fields.iter().any(|known| known.key == key) {
            return Err(format!("{at}: '{key}' stands twice"));
        }
        fields.push(Field { key: key.into(), of: type_of(of, at)?, presence, doc, own_doc });
    }
    if let Some(odd) = docs.keys().next() {
        return Err(format!("{at} explains '{odd}', which it does not have"));
    }
    Ok(Map {
        name: name.into(),
        fields,
        doc: from.get("doc").and_then(toml::Value::as_str).unwrap_or_default().into(),
        owned: from.get("owned").and_then(toml::Value::as_bool).unwrap_or_default(),
        derive: if from.contains_key("derive") { list(from, "derive", at)? } else { Vec::new() },
    })
}

fn read_verb(name: &str, from: &toml::Table, at: &str) -> Result<Verb> {
    only(from, &["order", "members", "right", "answer", "keys"], at)?;
    let mut docs = match from.contains_key("keys") {
        true => texts(table(from, "keys")?, at)?,
        false => BTreeMap::new(),
    };
    let mut members = Vec::new();
    for member in list(from, "members", at)? {
        let (key, of) = member.split_once(": ").ok_or_else(|| format!("{at}: '{member}' is not MEMBER: TYPE"))?;
        let name = key.trim_end_matches('?');
        if !["u64", "flag", "text", "id", "object"].contains(&of) {
            return Err(format!("{at}: '{name}' is of the unknown type '{of}'"));
        }
        let doc = docs.remove(name).unwrap_or_default();
        members.push(Member { name: name.into(), of: of.into(), optional: key != name, doc });
    }
    if let Some(odd) = docs.keys().next() {
        return Err(format!("{at} explains '{odd}', which it does not have"));
    }
    Ok(Verb {
        order: from.get("order").and_then(toml::Value::as_integer).ok_or_else(|| format!("{at} has no order"))?,
        name: name.into(),
        members,
        right: string(from, "right", at)?,
        answer: string(from, "answer", at)?,
    })
}

fn type_of(text: &str, at: &str) -> Result<Type> {
    if let Some(of) = text.strip_prefix('[') {
        let of = of.strip_suffix(']').ok_or_else(|| format!("{at}: '{text}' has no end"))?;
        return Ok(Type::Array(Box::new(type_of(of, at)?)));
    }
    Ok(match text {
        "u8" => Type::Number(8),
        "u16" => Type::Number(16),
        "u32" => Type::Number(32),
        "u64" => Type::Number(64),
        "flag" => Type::Flag,
        "text" => Type::Text,
        "bytes" => Type::Bytes,
        "id" => Type::Id,
        "hlc" => Type::Hlc,
        "durability" => Type::Durability,
        name => Type::Map(name.into()),
    })
}

fn table<'t>(of: &'t toml::Table, key: &str) -> Result<&'t toml::Table> {
    of.get(key).and_then(toml::Value::as_table).ok_or_else(|| format!("there is no [{key}]"))
}

fn string(of: &toml::Table, key: &str, at: &str) -> Result<String> {
    of.get(key).and_then(toml::Value::as_str).map(String::from).ok_or_else(|| format!("{at} lacks the text `{key}`"))
}

fn list(of: &toml::Table, key: &str, at: &str) -> Result<Vec<String>> {
    let array = of.get(key).and_then(toml::Value::as_array).ok_or_else(|| format!("{at} lacks the list `{key}`"))?;
    let text = |value: &toml::Value| value.as_str().map(String::from);
    array.iter().map(text).collect::<Option<_>>().ok_or_else(|| format!("{at}: `{key}` has something but texts"))
}

fn texts(of: &toml::Table, at: &str) -> Result<BTreeMap<String, String>> {
    let text = |(key, value): (&String, &toml::Value)| {
        let value = value.as_str().ok_or_else(|| format!("{at}: `{key}` is no text"))?;
        Ok((key.clone(), value.to_owned()))
    };
    of.iter().map(text).collect()
}

fn only(of: &toml::Table, keys: &[&str], at: &str) -> Result<()> {
    match of.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(odd) => Err(format!("{at} has `{odd}`")),
        None => Ok(()),
    }
}
