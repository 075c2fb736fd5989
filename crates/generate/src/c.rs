//! The messages in C: `messages.h` with their structs, `shapes.inc` with the tables that say how each is written.

use crate::schema::{Field, Map, Message, Presence, Schema, Type};

const WIDTH: usize = 118;
const ABOUT: &str = "Generated from spec/messages.toml by `cargo run -p millrace-generate`.";

/// What a program in C has of the protocol.
struct Part<'s> {
    messages: Vec<&'s Message>,
    /// All maps, each behind those that it needs.
    maps: Vec<&'s Map>,
    /// Those of them that are elements of arrays.
    elements: Vec<&'s str>,
}

fn part(schema: &Schema) -> Part<'_> {
    let messages: Vec<&Message> =
        schema.messages.iter().filter(|message| message.within.iter().any(|language| language == "c")).collect();
    let mut maps = Vec::new();
    for message in &messages {
        for field in &message.map.fields {
            collect(schema, &field.of, &mut maps);
        }
        add(&message.map, &mut maps);
    }
    let mut elements = Vec::new();
    for field in maps.iter().flat_map(|map| &map.fields) {
        if let Type::Array(of) = &field.of
            && let Type::Map(name) = &**of
            && !elements.contains(&name.as_str())
        {
            elements.push(name.as_str());
        }
    }
    Part { messages, maps, elements }
}

fn collect<'s>(schema: &'s Schema, of: &Type, maps: &mut Vec<&'s Map>) {
    match of {
        Type::Map(name) => {
            let map = schema.map(name).expect("types were checked");
            map.fields.iter().for_each(|field| collect(schema, &field.of, maps));
            add(map, maps);
        }
        Type::Array(of) => collect(schema, of, maps),
        _ => {}
    }
}

fn add<'s>(map: &'s Map, maps: &mut Vec<&'s Map>) {
    if !maps.iter().any(|known| known.name == map.name) {
        maps.push(map);
    }
}

/// The member of a struct for a key: words of C and C++ are no names.
fn member(field: &Field) -> String {
    match (field.key.as_str(), &field.of) {
        ("namespace", Type::Text) => "namespace_name".into(),
        ("namespace", _) => "namespace_id".into(),
        ("void", _) => "is_void".into(),
        (key @ ("class" | "new" | "default" | "register" | "delete" | "template" | "operator" | "this"), _) => {
            format!("{key}_")
        }
        (key, _) => key.into(),
    }
}

/// The type of a member and the kind of the field.
fn typed(map: &Map, field: &Field) -> Result<(String, &'static str), String> {
    let optional = field.presence == Presence::Optional;
    Ok(match &field.of {
        Type::Number(32) if optional => ("mrw_optional_u32".into(), "MRW_OPTIONAL_U32"),
        Type::Number(16) if !optional => ("uint16_t".into(), "MRW_U16"),
        Type::Number(32) => ("uint32_t".into(), "MRW_U32"),
        Type::Number(64) | Type::Hlc if !optional => ("uint64_t".into(), "MRW_U64"),
        Type::Flag if !optional => ("bool".into(), "MRW_FLAG"),
        Type::Text if field.presence != Presence::Spared => ("mrw_bytes".into(), "MRW_TEXT"),
        Type::Bytes if !optional => ("mrw_bytes".into(), "MRW_BIN"),
        Type::Id if !optional => ("mrw_id".into(), "MRW_ID"),
        Type::Durability => ("uint8_t".into(), "MRW_LEVEL"),
        Type::Map(name) if optional => (format!("mrw_{name}"), "MRW_MAP"),
        Type::Array(of) if matches!(**of, Type::Map(_)) => ("mrw_array".into(), "MRW_ARRAY"),
        of => return Err(format!("C has no {of}{} for '{}' of '{}'", field.presence.mark(), field.key, map.name)),
    })
}

/// Whether a map is a member of a struct, which says then whether it is given.
fn is_member(part: &Part<'_>, map: &Map) -> bool {
    part.maps.iter().flat_map(|of| &of.fields).any(|field| field.of == Type::Map(map.name.clone()))
}

/// `sdk/c/wire/messages.h`.
///
/// # Errors
///
/// If a message has a type that C does not have.
pub fn header(schema: &Schema) -> Result<String, String> {
    let part = part(schema);
    let mut out = format!(
        "/* messages.h - the messages of the wire protocol; wire.h includes it.\n * {ABOUT} */\n\
         #ifndef MILLRACE_MESSAGES_H\n#define MILLRACE_MESSAGES_H\n\nenum {{\n"
    );
    let mut row = String::from("   ");
    for message in &part.messages {
        let entry = format!(" MRW_{} = {},", message.map.name.to_uppercase(), message.kind);
        if row.len() + entry.len() > WIDTH {
            out += &format!("{row}\n");
            row = String::from("   ");
        }
        row += &entry;
    }
    out += &format!("{}\n", row.trim_end_matches(','));
    out += "};\n\n";
    for map in &part.maps {
        if map.fields.is_empty() {
            continue;
        }
        let mut members = Vec::new();
        if is_member(&part, map) {
            members.push(("bool".to_owned(), "given".to_owned(), String::new()));
        }
        for field in &map.fields {
            let of = match &field.of {
                Type::Array(of) => format!(" /* mrw_{of} */"),
                _ => String::new(),
            };
            members.push((typed(map, field)?.0, member(field), of));
        }
        let list: Vec<String> = members.iter().map(|(of, name, note)| format!("{of} {name};{note}")).collect();
        let short = format!("typedef struct mrw_{} {{ {} }} mrw_{};", map.name, list.join(" "), map.name);
        if short.len() <= WIDTH {
            out += &format!("{short}\n");
        } else {
            out += &format!("typedef struct mrw_{} {{\n", map.name);
            for line in list {
                out += &format!("    {line}\n");
            }
            out += &format!("}} mrw_{};\n", map.name);
        }
    }
    out += "\n/* The structs that are elements of arrays. */\n#define MRW_ELEMENTS(with)";
    for name in &part.elements {
        out += &format!(" with({name})");
    }
    Ok(out + "\n\n#endif\n")
}

/// `sdk/c/wire/shapes.inc`.
///
/// # Errors
///
/// If a message has a type that C does not have.
pub fn shapes(schema: &Schema) -> Result<String, String> {
    let part = part(schema);
    let mut out = format!("/* How each message is written; wire.c includes it.\n * {ABOUT} */\n");
    for map in &part.maps {
        if map.fields.is_empty() {
            continue;
        }
        out += &format!("static const mrw_field {}_fields[] = {{\n", map.name);
        for field in &map.fields {
            let presence = match field.presence {
                Presence::Required => "MRW_REQUIRED",
                Presence::Optional => "MRW_OPTIONAL",
                Presence::Spared => "MRW_SPARED",
                Presence::Defaulted => "MRW_DEFAULTED",
            };
            let (kind, key) = (typed(map, field)?.1, &field.key);
            let start = format!("mrw_{}, {}, \"{key}\", {kind}, {presence}", map.name, member(field));
            let line = match &field.of {
                Type::Map(of) => format!("NESTED({start}, &{of}_shape)"),
                Type::Array(of) => format!("NESTED({start}, &{of}_shape)"),
                _ => format!("FIELD({start})"),
            };
            out += &format!("    {line},\n");
        }
        out += "};\n";
        out += &format!("static const mrw_shape {}_shape = SHAPE({});\n", map.name, map.name);
    }
    out += "\nstatic const mrw_shape *const shapes[] = {\n";
    for message in &part.messages {
        let name = if message.map.fields.is_empty() { "empty" } else { &message.map.name };
        out += &format!("    &{name}_shape,\n");
    }
    out += "};\n\n/* By type: the place in `shapes`, from 1. */\nstatic const uint8_t places[] = {\n";
    for (at, message) in part.messages.iter().enumerate() {
        out += &format!("    [MRW_{}] = {},\n", message.map.name.to_uppercase(), at + 1);
    }
    Ok(out + "};\n")
}
