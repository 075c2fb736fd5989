//! `spec/objects.toml` lists the types and methods that there are.

use millrace_entities::{METHODS, Method};
use std::{collections::BTreeMap, fs, path::Path};

#[test]
fn the_list_of_types_and_methods_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/objects.toml");
    let text = fs::read_to_string(path).expect("spec/objects.toml is part of the repository");
    let listed: BTreeMap<String, BTreeMap<String, Vec<String>>> = toml::from_str(&text).unwrap();
    let kind = |method: &Method| match method {
        Method { waits: true, .. } => "waits",
        Method { reads: true, .. } => "reads",
        _ => "changes",
    };
    let mut table: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (of, methods) in METHODS {
        for method in *methods {
            let methods = table.entry(of.name().into()).or_default().entry(kind(method).into()).or_default();
            methods.push(method.name.into());
        }
    }
    assert_eq!(listed, table);
}
