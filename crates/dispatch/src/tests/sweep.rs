//! What is removed of the files of functions, and what stays.

use super::*;

#[test]
fn code_that_nothing_names_is_removed_after_a_day_and_what_runs_stays() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    let store = namespace.dir().join("functions");
    deploy(&namespace, "pass", |_| {});
    let old = only_code(&namespace);
    let shared = Shared::new(namespace.clone(), None, None).unwrap();
    let in_use = shared.state().runners.values().next().unwrap().starter.clone();
    deploy(&namespace, "return", |_| {});
    let day = Duration::from_secs(24 * 60 * 60);
    let age = |path: &std::path::Path, by: Duration| {
        let before = std::time::SystemTime::now() - by;
        std::fs::File::open(path).unwrap().set_modified(before).unwrap();
    };
    let codes = || crate::functions::stored_codes(namespace.dir()).unwrap().len();
    let unfinished = store.join(".incoming-1-1");
    std::fs::create_dir(&unfinished).unwrap();
    age(&unfinished, 2 * day);
    let compiled = |name: &str, days: u32| {
        std::fs::create_dir_all(namespace.dir().join("cache")).unwrap();
        std::fs::write(namespace.dir().join("cache").join(name), "").unwrap();
        age(&namespace.dir().join("cache").join(name), days * day);
    };
    compiled("used", 6);
    compiled("unused", 8);
    shared.sweep().unwrap();
    assert_eq!(codes(), 2, "it is no day old");
    assert!(!unfinished.exists());
    let cached = std::fs::read_dir(namespace.dir().join("cache")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(cached.collect::<Vec<_>>(), ["used"]);
    for code in crate::functions::stored_codes(namespace.dir()).unwrap() {
        age(&store.join(code), 2 * day);
    }
    shared.sweep().unwrap();
    assert_eq!(codes(), 2, "a run may still use the old code");
    shared.state().recover(&namespace).unwrap();
    drop(in_use);
    let lock = crate::functions::StoreLock::shared(namespace.dir()).unwrap();
    shared.sweep().unwrap();
    assert_eq!(codes(), 2, "somebody deploys");
    drop(lock);
    shared.sweep().unwrap();
    assert_eq!(codes(), 2, "a repair may replay runs of the old code, of which the journal has the definition");
    assert!(old.exists());
    // Code that no definition ever named.
    let never = store.join("ab".repeat(32));
    std::fs::create_dir(&never).unwrap();
    age(&never, 2 * day);
    shared.sweep().unwrap();
    assert!(!never.exists());
    assert_eq!(codes(), 2);
}

#[test]
fn code_stays_as_long_as_the_definition_that_replaced_its_own_does() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = small_namespace(dir.path(), &[("in", 10), ("out", 10)]);
    let store = namespace.dir().join("functions");
    let shared = Shared::new(namespace.clone(), None, None).unwrap();
    let sweep = || {
        for code in crate::functions::stored_codes(namespace.dir()).unwrap() {
            let before = std::time::SystemTime::now() - Duration::from_secs(48 * 60 * 60);
            std::fs::File::open(store.join(code)).unwrap().set_modified(before).unwrap();
        }
        shared.sweep().unwrap();
        crate::functions::stored_codes(namespace.dir()).unwrap().len()
    };
    let pass = || {
        let (of, first) = (namespace.journal().catalog_version(), || namespace.journal().first().get());
        while first() <= of {
            for _ in 0..16 {
                namespace.append("out", &[7; 64 << 10], AppendOptions::default()).unwrap();
            }
            shared.maintain().unwrap();
        }
    };
    deploy(&namespace, "pass", |_| {});
    pass();
    assert_eq!(sweep(), 1, "it is deployed");
    deploy(&namespace, "return", |_| {});
    assert_eq!(sweep(), 2, "the journal may have runs of the first");
    pass();
    assert_eq!(sweep(), 1);
}
