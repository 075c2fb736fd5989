//! The tables of `spec/protocol/wire.md`.

use crate::{
    schema::{Map, Member, Message, Schema, Type, inner},
    text::between,
};

/// The page with its tables replaced: each stands between two marks, which name its section.
///
/// # Errors
///
/// If the page has no marks for a section.
pub fn page(schema: &Schema, page: &str) -> Result<String, String> {
    let mut page = page.to_owned();
    let mut described: Vec<&str> = Vec::new();
    for section in &schema.sections {
        let mut table = String::from("| type | message | from | keys | answer |\n|--:|---|---|---|---|\n");
        for message in schema.of_section(&section.name) {
            table += &row(schema, message);
        }
        for map in schema.maps_within(schema.of_section(&section.name)) {
            if described.contains(&&*map.name) {
                continue;
            }
            described.push(&map.name);
            table += &format!("\n`{}` is a map. {} {}\n", map.name, map.doc, keys(schema, map));
        }
        page = marked(&page, &section.name, &table)?;
    }
    let mut shared = String::new();
    let all = schema.messages.iter().map(|message| &message.map).chain(schema.maps.values());
    let mut known: Vec<(&str, &str)> = all
        .flat_map(|map| &map.fields)
        .filter(|field| !field.own_doc)
        .map(|field| (&*field.key, &*field.doc))
        .collect();
    known.sort_unstable();
    known.dedup();
    shared += "| key | meaning |\n|---|---|\n";
    for (key, doc) in known {
        shared += &format!("| `{key}` | {doc} |\n");
    }
    let page = marked(&page, "keys", &shared)?;
    let mut verbs = String::from("| `do` | members | right | answer |\n|---|---|---|---|\n");
    for verb in &schema.verbs {
        let members: Vec<String> = verb.members.iter().map(member).collect();
        let members = members.join(" ").trim_end_matches('.').to_owned();
        verbs += &format!("| `{}` | {members} | {} | {} |\n", verb.name, verb.right, verb.answer);
    }
    marked(&page, "verbs", &verbs)
}

fn member(of: &Member) -> String {
    let (name, mark) = (&of.name, if of.optional { "?" } else { "" });
    let doc = if of.doc.is_empty() { String::new() } else { format!(": {}.", of.doc) };
    format!("`{name}{mark}: {}`{doc}", of.of)
}

/// Replaces what stands between the marks of this name.
///
/// # Errors
///
/// If they are missing.
pub fn marked(page: &str, name: &str, table: &str) -> Result<String, String> {
    between(
        page,
        &format!("<!-- {name}: generated from spec/messages.toml -->"),
        &format!("<!-- {name}: end -->"),
        table,
    )
}

fn row(schema: &Schema, message: &Message) -> String {
    let keys = keys(schema, &message.map);
    let described = [&message.map.doc, &keys].map(|text| text.trim()).into_iter().filter(|text| !text.is_empty());
    let mut described = described.collect::<Vec<_>>().join(" ");
    if message.map.fields.is_empty() {
        described += if described.is_empty() { "No keys." } else { " No keys." };
    }
    let answers: Vec<String> = message
        .answers
        .iter()
        .map(|name| schema.message(name))
        .map(|answer| format!("{} {}", answer.kind, answer.called))
        .collect();
    let mut answers = answers.join(" or ");
    if !message.note.is_empty() {
        answers = format!("{answers}: {}", message.note);
    }
    format!("| {} | {} | {} | {described} | {answers} |\n", message.kind, message.called, message.from)
}

/// The keys of a map, each with its type and, unless all messages share it, its meaning.
fn keys(schema: &Schema, map: &Map) -> String {
    let mut out = String::new();
    let mut open = false;
    for field in &map.fields {
        if open {
            out += ". ";
        } else if !out.is_empty() {
            out.push(' ');
        }
        out += &format!("`{}{}: {}`", field.key, field.presence.mark(), shown(schema, &field.of));
        if field.own_doc {
            out += &format!(": {}", field.doc);
        }
        open = field.own_doc;
    }
    if open {
        out.push('.');
    }
    out
}

fn shown(schema: &Schema, of: &Type) -> String {
    match inner(of).and_then(|name| schema.messages.iter().find(|message| message.map.name == name)) {
        Some(message) => of.to_string().replace(&message.map.name, &message.called),
        None => of.to_string(),
    }
}
