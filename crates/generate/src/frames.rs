//! The smallest and the fullest frame of each message, with their bytes: `spec/vectors/messages.json`.

use crate::schema::{Field, Map, Presence, Schema, Type};
use std::fmt::Write;

const ABOUT: &str = "Frames of spec/protocol/wire.md, made by crates/generate from spec/messages.toml: for each message the \
    smallest one, whose keys are left out or 0 or empty, and the fullest one, which has all keys. Writing the message gives hex, \
    reading hex gives the message; keys stand in the order in which they are written. Bytes are {\\\"hex\\\": …}. Numbers have up \
    to 64 bits.";
const ID: [u8; 16] = [16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1];
const CLOCK: u64 = 1_700_000_000_000_000 << 12;

enum Value {
    Number(u64),
    Flag(bool),
    Text(String),
    Bytes(Vec<u8>),
    Nil,
    Array(Vec<Value>),
    Map(Vec<(String, Value)>),
}

/// The file.
pub fn file(schema: &Schema) -> String {
    let mut frames = Vec::new();
    for message in &schema.messages {
        for full in [false, true] {
            let name = message.map.name.replace('_', "-") + if full { ".fullest" } else { ".smallest" };
            let (request, clock, cause) =
                if full { (1 << 40, CLOCK, Value::Bytes(ID.to_vec())) } else { (1, 0, Value::Nil) };
            let elements = [
                ("type", Value::Number(message.kind.into())),
                ("request", Value::Number(request)),
                ("hlc", Value::Number(clock)),
                ("cause", cause),
                ("message", value_of(schema, &message.map, full)),
            ];
            let mut members = String::new();
            let mut body = vec![0x90 | elements.len() as u8];
            for (key, value) in &elements {
                write!(members, "\"{key}\": ").expect("text can be written");
                json(value, &mut members);
                members += ", ";
                pack(value, &mut body);
            }
            let mut hex = String::new();
            for byte in (body.len() as u32).to_le_bytes().iter().chain(&body) {
                write!(hex, "{byte:02x}").expect("text can be written");
            }
            frames.push(format!("    {{\"name\": \"{name}\", {members}\"hex\": \"{hex}\"}}"));
        }
    }
    format!("{{\n  \"about\": \"{ABOUT}\",\n  \"frames\": [\n{}\n  ]\n}}\n", frames.join(",\n"))
}

fn value_of(schema: &Schema, map: &Map, full: bool) -> Value {
    let is_written = |field: &&Field| full || matches!(field.presence, Presence::Required | Presence::Defaulted);
    let fields = map.fields.iter().filter(is_written);
    Value::Map(fields.map(|field| (field.key.clone(), typed(schema, &field.key, &field.of, full))).collect())
}

fn typed(schema: &Schema, key: &str, of: &Type, full: bool) -> Value {
    match of {
        Type::Number(bits) => Value::Number(if full { u64::MAX >> (64 - bits) } else { 0 }),
        Type::Hlc => Value::Number(if full { u64::MAX } else { 0 }),
        Type::Flag => Value::Flag(full),
        Type::Text => Value::Text(if full { format!("{key} \"ключ\" 水") } else { String::new() }),
        Type::Bytes => Value::Bytes(if full { vec![0, 127, 128, 255] } else { Vec::new() }),
        Type::Id => Value::Bytes(if full { ID.to_vec() } else { vec![0; 16] }),
        Type::Durability => Value::Text(if full { "disk" } else { "memory" }.into()),
        Type::Map(name) => value_of(schema, schema.map(name).expect("types were checked"), full),
        Type::Array(_) if !full => Value::Array(Vec::new()),
        Type::Array(of) => Value::Array([true, false].map(|full| typed(schema, key, of, full)).into()),
    }
}

fn json(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => write!(out, "{number}").expect("text can be written"),
        Value::Flag(flag) => write!(out, "{flag}").expect("text can be written"),
        Value::Text(text) => write!(out, "\"{}\"", text.replace('"', "\\\"")).expect("text can be written"),
        Value::Bytes(bytes) => {
            out.push_str("{\"hex\": \"");
            for byte in bytes {
                write!(out, "{byte:02x}").expect("text can be written");
            }
            out.push_str("\"}");
        }
        Value::Nil => out.push_str("null"),
        Value::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                json(value, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (at, (key, value)) in entries.iter().enumerate() {
                write!(out, "{}\"{key}\": ", if at > 0 { ", " } else { "" }).expect("text can be written");
                json(value, out);
            }
            out.push('}');
        }
    }
}

/// Writes MessagePack, each value in its shortest form.
fn pack(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Number(number) => match *number {
            0..=0x7f => out.push(*number as u8),
            0x80..=0xff => out.extend([0xcc, *number as u8]),
            0x100..=0xffff => head(0xcd, 2, *number, out),
            0x1_0000..=0xffff_ffff => head(0xce, 4, *number, out),
            _ => head(0xcf, 8, *number, out),
        },
        Value::Flag(flag) => out.push(0xc2 | u8::from(*flag)),
        Value::Text(text) => {
            match text.len() {
                0..=31 => out.push(0xa0 | text.len() as u8),
                _ => head(0xd9, 1, text.len() as u64, out),
            }
            out.extend(text.as_bytes());
        }
        Value::Bytes(bytes) => {
            head(0xc4, 1, bytes.len() as u64, out);
            out.extend(bytes);
        }
        Value::Nil => out.push(0xc0),
        Value::Array(values) => {
            out.push(0x90 | short(values.len(), 15));
            values.iter().for_each(|value| pack(value, out));
        }
        Value::Map(entries) => {
            match entries.len() {
                0..=15 => out.push(0x80 | entries.len() as u8),
                count => head(0xde, 2, count as u64, out),
            }
            for (key, value) in entries {
                pack(&Value::Text(key.clone()), out);
                pack(value, out);
            }
        }
    }
}

fn head(marker: u8, bytes: usize, number: u64, out: &mut Vec<u8>) {
    assert!(bytes == 8 || number >> (8 * bytes) == 0, "{number} is too long for this file");
    out.push(marker);
    out.extend(&number.to_be_bytes()[8 - bytes..]);
}

fn short(length: usize, max: usize) -> u8 {
    assert!(length <= max, "{length} is too long for this file");
    length as u8
}
