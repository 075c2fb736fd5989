//! The constants and tables of the clients in Java and Python.

use crate::{
    schema::{Field, Map, Message, Presence, Schema, Type},
    text::between,
};

const JAVA_WIDTH: usize = 130;

/// `Messages.java` with its constants and tables replaced.
///
/// # Errors
///
/// If it has no marks for them, or if a message has a type that Java does not read.
pub fn java(schema: &Schema, text: &str) -> Result<String, String> {
    let within = |message: &&Message| message.within.iter().any(|language| language == "java");
    let mut constants = String::new();
    let mut table = String::new();
    for map in schema.maps_within(schema.messages.iter().filter(within)) {
        table += &java_call("nested", &format!("\"{}\"", map.name), &java_keys(map)?);
    }
    for message in schema.messages.iter().filter(within) {
        let name = message.map.name.to_uppercase();
        constants += &format!("    public static final int {name} = {};\n", message.kind);
        let keys = java_keys(&message.map)?;
        table += &java_call("type", &name, &keys);
        // Maps that are messages, too.
        let is_nested = |of: &Type| matches!(of, Type::Array(of) if **of == Type::Map(message.map.name.clone()));
        if schema
            .messages
            .iter()
            .any(|other| within(&other) && other.map.fields.iter().any(|field| is_nested(&field.of)))
        {
            table += &java_call("nested", &format!("\"{}\"", message.map.name), &keys);
        }
    }
    let text =
        between(text, "    // The types: generated from spec/messages.toml.", "    // The types: end.", &constants)?;
    between(&text, "        // The keys: generated from spec/messages.toml.", "        // The keys: end.", &table)
}

fn java_call(function: &str, name: &str, keys: &str) -> String {
    let mut lines = vec![String::new()];
    for word in keys.split_inclusive(' ') {
        if lines.last().is_some_and(|line| line.len() + word.len() > JAVA_WIDTH - 30) {
            lines.push(String::new());
        }
        lines.last_mut().expect("there is a line").push_str(word);
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("\"{line}\"")).collect();
    format!("        {function}({name}, {});\n", lines.join("\n                + "))
}

fn java_keys(map: &Map) -> Result<String, String> {
    let key = |field: &Field| {
        let optional = if field.presence == Presence::Required { "" } else { "?" };
        let of = java_type(&field.of)
            .ok_or_else(|| format!("Java reads no {} as '{}' of '{}'", field.of, field.key, map.name));
        of.map(|of| format!("{}{optional}:{of}", field.key))
    };
    Ok(map.fields.iter().map(key).collect::<Result<Vec<_>, _>>()?.join(" "))
}

fn java_type(of: &Type) -> Option<String> {
    Some(match of {
        Type::Number(64) | Type::Hlc => "N".into(),
        Type::Number(_) => "n".into(),
        Type::Flag => "f".into(),
        Type::Text => "t".into(),
        Type::Bytes => "b".into(),
        Type::Id => "i".into(),
        Type::Durability => "d".into(),
        Type::Map(name) => format!("{{{name}"),
        Type::Array(of) => match &**of {
            Type::Bytes => "a".into(),
            Type::Map(name) => format!("[{name}"),
            _ => return None,
        },
    })
}

/// `_messages.py`.
pub fn python(schema: &Schema) -> String {
    let mut out = String::from(
        "\"\"\"The types of the messages of the wire protocol. Generated from spec/messages.toml by `cargo run -p millrace-generate`.\"\"\"\n\n",
    );
    for message in &schema.messages {
        out += &format!("{} = {}\n", message.map.name.to_uppercase(), message.kind);
    }
    out
}
