//! The messages in Rust: a struct each, by section.

use crate::{
    schema::{Field, Map, Message, Presence, Schema, Type, inner},
    text::{camel, lines, sentence},
};

const WIDTH: usize = 140;
/// The longest line of code, as `rustfmt.toml` has it.
const CODE_WIDTH: usize = 120;
/// What the files below `coding` need.
const CODING_USE: &str =
    "use crate::protocol::{\n    codec::{Decode, Encode, Fields, Malformed, MessageReader},\n    messages::*,\n};\n";
const ABOUT: &str = "// Generated from spec/messages.toml by `cargo run -p millrace-generate`.\n";

/// The files of `crates/wire/src/protocol/messages`: name and text.
pub fn files(schema: &Schema) -> Vec<(String, String)> {
    let mut files = Vec::new();
    // A map belongs to the first section that has it.
    let mut placed: Vec<&str> = Vec::new();
    let mut sections: Vec<_> = schema.sections.iter().collect();
    for section in &sections {
        let messages: Vec<&Message> = schema.of_section(&section.name).collect();
        let maps: Vec<&Map> = schema
            .maps_within(messages.iter().copied())
            .into_iter()
            .filter(|map| !placed.contains(&&*map.name))
            .collect();
        placed.extend(maps.iter().map(|map| &*map.name));
        files.push((format!("{}.rs", section.name), module(schema, &section.title, &messages, &maps)));
        let all = messages.iter().map(|message| &message.map).chain(maps.iter().copied());
        let codecs: String = all.map(|map| codec(schema, map)).collect();
        let about = format!("//! {}: how they are encoded and decoded.", section.title);
        files.push((format!("coding/{}.rs", section.name), format!("{ABOUT}{about}\n\n{CODING_USE}{codecs}")));
    }
    sections.sort_by_key(|section| &section.name);
    let mut names: Vec<&str> = sections.iter().map(|section| &*section.name).collect();
    let listed = |names: &[&str]| names.iter().map(|name| format!("mod {name};\n")).collect::<String>();
    let about = "//! How messages are encoded and decoded, by section.";
    files.push(("coding/mod.rs".into(), format!("{ABOUT}{about}\n\n{}", listed(&names))));
    let uses: String = names.iter().map(|name| format!("pub use {name}::*;\n")).collect();
    names.push("coding");
    names.sort_unstable();
    let modules = listed(&names);
    let mut arms = String::new();
    for message in &schema.messages {
        arms += &format!("            {} => $then!({}),\n", message.kind, camel(&message.map.name));
    }
    files.push((
        "mod.rs".into(),
        format!(
            "{ABOUT}//! The messages of the protocol, by section of `spec/protocol/wire.md`.\n\n{modules}\n{uses}\n\
             /// Calls the macro `$then` with the message that has the number `$kind`; without one, the value is `$otherwise`. For tests.\n\
             #[macro_export]\nmacro_rules! message_of_type {{\n    ($kind:expr, $then:ident, $otherwise:expr) => {{\n        \
             match $kind {{\n{arms}            _ => $otherwise,\n        }}\n    }};\n}}\n"
        ),
    ));
    files
}

fn module(schema: &Schema, title: &str, messages: &[&Message], maps: &[&Map]) -> String {
    let mut items = String::new();
    for message in messages {
        let doc = match message.map.doc.is_empty() {
            true => format!("The answer to {}.", requests(schema, message)),
            false => message.map.doc.clone(),
        };
        let answer = match message.answers.iter().map(linked).collect::<Vec<_>>().join(" or ") {
            none if none.is_empty() => String::new(),
            answer => format!(" Answered with {answer}."),
        };
        items += &structure(schema, &message.map, &(doc + &answer));
        let life = if borrows(schema, &message.map) { "<'_>" } else { "" };
        let name = camel(&message.map.name);
        items += &format!("\nimpl Message for {name}{life} {{\n    const TYPE: u8 = {};\n}}\n", message.kind);
    }
    for map in maps {
        items += &structure(schema, map, &map.doc);
    }
    let used = |word: &str| items.contains(&format!(": {word}")) || items.contains(&format!("<{word}>"));
    let crate_types: Vec<&str> = ["Durability", "EventId", "Hlc"].into_iter().filter(|word| used(word)).collect();
    let crate_use = match crate_types.as_slice() {
        [] => "use crate::protocol::Message;\n".into(),
        some => format!("use crate::{{{}, protocol::Message}};\n", some.join(", ")),
    };
    // Maps and messages of other sections.
    let own: Vec<&str> =
        messages.iter().map(|message| &*message.map.name).chain(maps.iter().map(|map| &*map.name)).collect();
    let all = messages.iter().map(|message| &message.map).chain(maps.iter().copied());
    let mut others: Vec<String> = all
        .flat_map(|map| map.fields.iter().filter_map(|field| inner(&field.of)))
        .filter(|name| !own.contains(name))
        .map(camel)
        .collect();
    others.sort();
    others.dedup();
    let others = match others.as_slice() {
        [] => String::new(),
        [one] => format!("use super::{one};\n"),
        several => format!("use super::{{{}}};\n", several.join(", ")),
    };
    let serde = if items.contains("Serialize, Deserialize") { "use serde::{Deserialize, Serialize};\n" } else { "" };
    format!("{ABOUT}//! {title}.\n\n{others}{crate_use}{serde}{items}")
}

/// A link to a message in the documentation of another.
fn linked(name: impl AsRef<str>) -> String {
    format!("[`super::{}`]", camel(name.as_ref()))
}

fn requests(schema: &Schema, answer: &Message) -> String {
    schema.requests(&answer.map.name).map(|request| linked(&request.map.name)).collect::<Vec<_>>().join(" and ")
}

fn documented(out: &mut String, indent: &str, doc: &str) {
    for line in lines(doc, WIDTH - indent.len() - 4) {
        *out += &format!("{indent}/// {line}\n");
    }
}

fn structure(schema: &Schema, map: &Map, doc: &str) -> String {
    let mut out = String::from("\n");
    documented(&mut out, "", doc);
    let copy = if map.derive.iter().any(|name| name == "Copy") { "Copy, " } else { "" };
    let hash = if map.derive.iter().any(|name| name == "Hash") { ", Hash" } else { "" };
    let json = if has_json(map) { ", Serialize, Deserialize" } else { "" };
    out += &format!("#[derive(Clone, {copy}Debug, Default, PartialEq, Eq{hash}{json})]\n");
    let life = if borrows(schema, map) { "<'b>" } else { "" };
    let name = camel(&map.name);
    if map.fields.is_empty() {
        return out + &format!("pub struct {name}{life} {{}}\n");
    }
    out += &format!("pub struct {name}{life} {{\n");
    for field in &map.fields {
        documented(&mut out, "    ", &sentence(&field.doc));
        let attributes = if has_json(map) { attributes(map, field) } else { Vec::new() };
        if !attributes.is_empty() {
            out += &format!("    #[serde({})]\n", attributes.join(", "));
        }
        let of = rust_type(schema, map, &field.of);
        let of = if field.presence == Presence::Optional { format!("Option<{of}>") } else { of };
        out += &format!("    pub {}: {of},\n", field.key);
    }
    out + "}\n"
}

/// Whether a map is also written as JSON, in files.
fn has_json(map: &Map) -> bool {
    map.derive.iter().any(|name| name == "Json")
}

/// How a map is written and read.
fn codec(schema: &Schema, map: &Map) -> String {
    let name = camel(&map.name);
    let (any, life) = if borrows(schema, map) { ("<'_>", "<'b>") } else { ("", "") };
    let mut out = format!("\nimpl Encode for {name}{any} {{\n    fn encode(&self, out: &mut Vec<u8>) {{\n");
    out += match map.fields.is_empty() {
        true => "        Fields::begin(out).end();\n",
        false => "        let mut fields = Fields::begin(out);\n",
    };
    for Field { key, of, presence, .. } in &map.fields {
        let is_there = match (presence, of) {
            (Presence::Required | Presence::Defaulted, _) => {
                out += &format!("        fields.put(\"{key}\", &self.{key});\n");
                continue;
            }
            (Presence::Optional, _) => {
                out += &format!("        fields.put_some(\"{key}\", &self.{key});\n");
                continue;
            }
            (Presence::Spared, Type::Flag) => format!("self.{key}"),
            (Presence::Spared, Type::Text | Type::Bytes | Type::Array(_)) => format!("!self.{key}.is_empty()"),
            (Presence::Spared, Type::Id) => format!("!self.{key}.is_none()"),
            (Presence::Spared, Type::Number(_)) => format!("self.{key} != 0"),
            (Presence::Spared, _) => panic!("'{key}' of '{}' cannot have the mark ~", map.name),
        };
        out += &format!("        fields.put_if({is_there}, \"{key}\", &self.{key});\n");
    }
    if !map.fields.is_empty() {
        out += "        fields.end();\n";
    }
    let (of, reader) = if life.is_empty() { ("<'_>", "<'_>") } else { (life, life) };
    let begin = if life.is_empty() { "impl".into() } else { format!("impl{life}") };
    out += &format!(
        "    }}\n}}\n\n{begin} Decode{of} for {name}{life} {{\n    fn decode(reader: &mut MessageReader{reader}) -> Result<Self, Malformed> {{\n"
    );
    if map.fields.is_empty() {
        return out + "        reader.map(|reader, _| reader.skip())?;\n        Ok(Self {})\n    }\n}\n";
    }
    for Field { key, .. } in &map.fields {
        out += &format!("        let mut {key} = None;\n");
    }
    out += "        reader.map(|reader, member| match member {\n";
    for Field { key, .. } in &map.fields {
        out += &format!("            \"{key}\" => reader.set(&mut {key}),\n");
    }
    out += "            _ => reader.skip(),\n        })?;\n";
    let value = |Field { key, presence, .. }: &Field| match presence {
        Presence::Required => format!("{key}: {key}.ok_or_else(|| Malformed::missing(\"{key}\"))?"),
        _ => format!("{key}: {key}.unwrap_or_default()"),
    };
    let values: Vec<String> = map.fields.iter().map(value).collect();
    let short = format!("        Ok(Self {{ {} }})\n", values.join(", "));
    match short.len() <= CODE_WIDTH + 1 {
        true => out += &short,
        false => {
            out += "        Ok(Self {\n";
            values.iter().for_each(|value| out += &format!("            {value},\n"));
            out += "        })\n";
        }
    }
    out + "    }\n}\n"
}

/// Whether a map borrows from the frame.
fn borrows(schema: &Schema, map: &Map) -> bool {
    map.fields.iter().any(|field| borrows_in(schema, map, &field.of))
}

fn borrows_in(schema: &Schema, map: &Map, of: &Type) -> bool {
    match of {
        Type::Text | Type::Bytes => !map.owned,
        Type::Array(of) => borrows_in(schema, map, of),
        Type::Map(name) => borrows(schema, schema.map(name).expect("types were checked")),
        _ => false,
    }
}

fn rust_type(schema: &Schema, map: &Map, of: &Type) -> String {
    match of {
        Type::Number(bits) => format!("u{bits}"),
        Type::Flag => "bool".into(),
        Type::Text if map.owned => "String".into(),
        Type::Text => "&'b str".into(),
        Type::Bytes => "&'b [u8]".into(),
        Type::Id => "EventId".into(),
        Type::Hlc => "Hlc".into(),
        Type::Durability => "Durability".into(),
        Type::Map(name) if borrows(schema, schema.map(name).expect("types were checked")) => {
            format!("{}<'b>", camel(name))
        }
        Type::Map(name) => camel(name),
        Type::Array(of) if **of == Type::Bytes => "Vec<&'b serde_bytes::Bytes>".into(),
        Type::Array(of) => format!("Vec<{}>", rust_type(schema, map, of)),
    }
}

/// How serde writes a key as JSON.
fn attributes(map: &Map, field: &Field) -> Vec<&'static str> {
    match (field.presence, &field.of) {
        (_, Type::Bytes) => panic!("'{}' of '{}' cannot be JSON", field.key, map.name),
        (Presence::Required, _) => vec![],
        (Presence::Optional, _) => vec!["default", "skip_serializing_if = \"Option::is_none\""],
        (Presence::Defaulted, _) => vec!["default"],
        (Presence::Spared, Type::Flag) => vec!["default", "skip_serializing_if = \"std::ops::Not::not\""],
        (Presence::Spared, _) => panic!("'{}' of '{}' cannot have the mark ~ in JSON", field.key, map.name),
    }
}

/// `crates/node/src/manage/verbs.rs`: what a test compares with the code that reads the JSON of MANAGE.
pub fn verbs(schema: &Schema) -> String {
    let mut out = format!(
        "{ABOUT}//! The verbs of MANAGE.\n\n/// A member: its name, its type, and whether it may be missing.\n\
         pub type Member = (&'static str, &'static str, bool);\n\n/// Each verb and its members.\n\
         #[rustfmt::skip]\npub const VERBS: &[(&str, &[Member])] = &[\n"
    );
    for verb in &schema.verbs {
        out += &format!("    (\"{}\", &[\n", verb.name);
        for member in &verb.members {
            out += &format!("        (\"{}\", \"{}\", {}),\n", member.name, member.of, member.optional);
        }
        out += "    ]),\n";
    }
    out + "];\n"
}
