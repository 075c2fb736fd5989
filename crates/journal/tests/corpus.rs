//! The fuzzers' corpus, run as a test.

#[path = "../../../fuzz/targets.rs"]
mod targets;

use std::{fs, path::Path};

fn each(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for file in fs::read_dir(&folder).expect("the corpus is part of the repository") {
        let path = file.expect("the folder can be read").path();
        println!("{}", path.display());
        run(&fs::read(&path).expect("a file of the corpus can be read"));
        count += 1;
    }
    assert!(count >= 5, "{} holds {count} inputs", folder.display());
}

#[test]
fn manifests() {
    each("manifest", targets::manifest);
}

#[test]
fn recoveries() {
    each("recovery", targets::recovery);
}

#[test]
fn maps() {
    each("map", targets::map);
}
