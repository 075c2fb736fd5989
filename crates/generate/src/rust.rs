//! The messages in Rust: a struct each, by section.

use crate::{
    schema::{Field, Map, Message, Presence, Schema, Type, inner},
    text::{camel, lines, sentence},
};

const WIDTH: usize = 140;
const ABOUT: &str = "// Generated from spec/messages.toml by `cargo run -p millrace-generate`.\n";

/// The files of `crates/wire/src/protocol/messages`: name and text.
pub fn files(schema: &Schema) -> Vec<(String, String)> {
    let mut modules = String::new();
    let mut uses = String::new();
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
    }
    sections.sort_by_key(|section| &section.name);
    for section in sections {
        modules += &format!("mod {};\n", section.name);
        uses += &format!("pub use {}::*;\n", section.name);
    }
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
    let mut helpers = String::new();
    for (name, of) in [("u8", "u8"), ("u32", "u32"), ("u64", "u64")] {
        if items.contains(&format!("\"is_zero_{name}\"")) {
            helpers += &format!("\nfn is_zero_{name}(number: &{of}) -> bool {{\n    *number == 0\n}}\n");
        }
    }
    if items.contains("\"no_event\"") {
        helpers += "\nfn no_event(id: &EventId) -> bool {\n    id.is_none()\n}\n";
    }
    format!("{ABOUT}//! {title}.\n\n{others}{crate_use}use serde::{{Deserialize, Serialize}};\n{items}{helpers}")
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
    let hash = if map.derive.iter().any(|name| name == "Hash") { "Hash, " } else { "" };
    out += &format!("#[derive(Clone, {copy}Debug, Default, PartialEq, Eq, {hash}Serialize, Deserialize)]\n");
    let life = if borrows(schema, map) { "<'b>" } else { "" };
    let name = camel(&map.name);
    if map.fields.is_empty() {
        return out + &format!("pub struct {name}{life} {{}}\n");
    }
    out += &format!("pub struct {name}{life} {{\n");
    for field in &map.fields {
        documented(&mut out, "    ", &sentence(&field.doc));
        let attributes = attributes(schema, map, field);
        if !attributes.is_empty() {
            out += &format!("    #[serde({})]\n", attributes.join(", "));
        }
        let of = rust_type(schema, map, &field.of);
        let of = if field.presence == Presence::Optional { format!("Option<{of}>") } else { of };
        out += &format!("    pub {}: {of},\n", field.key);
    }
    out + "}\n"
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

fn attributes(schema: &Schema, map: &Map, field: &Field) -> Vec<&'static str> {
    let mut found = Vec::new();
    // Text is borrowed unasked.
    if field.of != Type::Text && borrows_in(schema, map, &field.of) {
        found.push("borrow");
    }
    if field.presence != Presence::Required {
        found.push("default");
    }
    if field.of == Type::Bytes {
        found.push("with = \"serde_bytes\"");
    }
    match (field.presence, &field.of) {
        (Presence::Optional, _) => found.push("skip_serializing_if = \"Option::is_none\""),
        (Presence::Spared, Type::Flag) => found.push("skip_serializing_if = \"std::ops::Not::not\""),
        (Presence::Spared, Type::Text) => found.push("skip_serializing_if = \"str::is_empty\""),
        (Presence::Spared, Type::Bytes) => found.push("skip_serializing_if = \"<[u8]>::is_empty\""),
        (Presence::Spared, Type::Id) => found.push("skip_serializing_if = \"no_event\""),
        (Presence::Spared, Type::Array(_)) => found.push("skip_serializing_if = \"Vec::is_empty\""),
        (Presence::Spared, Type::Number(8)) => found.push("skip_serializing_if = \"is_zero_u8\""),
        (Presence::Spared, Type::Number(32)) => found.push("skip_serializing_if = \"is_zero_u32\""),
        (Presence::Spared, Type::Number(64)) => found.push("skip_serializing_if = \"is_zero_u64\""),
        (Presence::Spared, _) => panic!("'{}' of '{}' cannot have the mark ~", field.key, map.name),
        _ => {}
    }
    found
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
