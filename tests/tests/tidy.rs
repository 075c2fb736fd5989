//! Enforces the rules of the repository: the imports between crates, sizes, the files with `unsafe`, and texts that must not be committed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The crates of ours that each crate may import. A crate that is not listed is rejected, so that adding one is a decision. Every crate may
/// import `features`, which has no code.
const ARROWS: &[(&str, &[&str])] = &[
    ("features", &[]),
    ("generate", &[]),
    ("wire", &[]),
    ("threads", &["wire"]),
    ("journal", &["wire", "threads"]),
    ("causality", &["wire", "journal"]),
    ("device", &["wire"]),
    ("documents", &["wire"]),
    ("egress", &["wire"]),
    ("entities", &["wire"]),
    ("runtime", &["wire", "threads"]),
    ("tables", &["wire", "threads", "journal"]),
    ("namespace", &["wire", "threads", "journal", "tables"]),
    ("group", &["wire"]),
    ("sim", &["wire", "group"]),
    ("links", &["wire", "journal", "namespace"]),
    ("mqtt", &["wire"]),
    ("nats", &["wire", "threads"]),
    ("writebehind", &["wire"]),
    ("databases", &["wire", "threads", "writebehind"]),
    ("security", &["wire"]),
    ("application", &["wire", "journal", "mqtt", "namespace"]),
    ("dispatch", &["wire", "threads", "journal", "namespace", "runtime"]),
    ("repair", &["wire", "journal", "namespace", "runtime"]),
    (
        "node",
        &[
            "Read",
            "application",
            "causality",
            "device",
            "dispatch",
            "documents",
            "egress",
            "entities",
            "group",
            "journal",
            "links",
            "mqtt",
            "namespace",
            "repair",
            "runtime",
            "security",
            "threads",
            "wire",
        ],
    ),
    ("client", &["wire", "security"]),
    ("web", &[]),
    (
        "gateway",
        &[
            "Asked",
            "Bounded",
            "Page",
            "Wanted",
            "client",
            "databases",
            "documents",
            "mqtt",
            "nats",
            "node",
            "security",
            "threads",
            "web",
            "wire",
        ],
    ),
    (
        "cli",
        &[
            "Status",
            "Within",
            "causality",
            "client",
            "device",
            "documents",
            "gateway",
            "journal",
            "node",
            "threads",
            "wire",
        ],
    ),
    ("bench", &["wire", "journal", "causality", "group", "runtime", "security", "node", "client"]),
];

/// The files that may have `unsafe` blocks, by the end of their path.
const UNSAFE_FILES: &[&str] = &[
    "gateway/src/server/allocator.rs",
    "journal/src/medium/bus.rs",
    "journal/src/medium/file.rs",
    "journal/src/medium/mod.rs",
    "journal/src/medium/view.rs",
    "journal/src/store/control.rs",
    "journal/src/store/arena.rs",
    "journal/src/store/sealed.rs",
    "journal/src/store/segments.rs",
    "journal/src/write/commit.rs",
    "journal/src/write/lock.rs",
    "runtime/src/child/spawn.rs",
    "runtime/src/sandbox/system.rs",
    "runtime/src/wasm/engine.rs",
    "runtime/src/wasm/lend.rs",
    "sdk/c/local/src/abi.rs",
    "sdk/c/local/src/files.rs",
    "sdk/c/local/src/lib.rs",
    "threads/src/system.rs",
];

/// The places that may start threads and tasks, each with the call. All other code uses these places, so that the unexpected end of a
/// thread or task is detected.
const STARTS: [(&str, &str); 15] = [
    ("crates/threads/src/lib.rs", ".spawn("), // in a table that two watchers check
    ("crates/gateway/src/server/tasks.rs", ".spawn("), // its panic ends the host
    ("crates/gateway/src/server/tasks.rs", "tokio::spawn("), // of one connection
    ("crates/nats/src/lib.rs", ".spawn("),    // on its one thread; waiters get an error when it is dropped
    ("crates/client/src/connector.rs", ".spawn("), // its waiter has a timeout
    ("crates/client/src/session/mod.rs", "tokio::spawn("), // when it is dropped, all waiters get an error
    // The caller that opens a namespace waits for it, and sees its panic.
    ("crates/journal/src/recovery/ahead.rs", "scope("),
    ("crates/journal/src/recovery/ahead.rs", "_scoped("),
    // The command waits for the readers of journals, and propagates their panics.
    ("crates/cli/src/commands/history/sources.rs", "scope("),
    ("crates/cli/src/commands/history/sources.rs", ".spawn("),
    // Not of a thread: whose memory is used within it.
    ("crates/gateway/src/memory.rs", "scope("),
    // The caller of a long operation waits for it.
    ("crates/gateway/src/documents/mod.rs", "spawn_blocking("),
    ("crates/gateway/src/http/api/mod.rs", "spawn_blocking("),
    ("crates/gateway/src/hosted.rs", "spawn_blocking("),
    ("crates/runtime/src/sandbox/confine.rs", "scope("), // starts nothing: Landlock's name for the processes that a signal may reach
];

const FILE_LINES_MAX: usize = 800;
const FOLDER_FILES_MAX: usize = 12;
const LINE_CHARS_MAX: usize = 160;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_owned()
}

/// Every file that git tracks or would add.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the repository's files");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let files: Vec<String> =
        String::from_utf8(listed.stdout).expect("names are UTF-8").lines().map(String::from).collect();
    assert!(files.iter().any(|file| file == "ARCHITECTURE.md"), "this is not the repository");
    files.into_iter().filter(|file| root().join(file).is_file()).collect()
}

fn is_source(file: &str) -> bool {
    [".rs", ".py", ".c", ".h", ".java", ".sh", ".ts", ".tsx"].iter().any(|end| file.ends_with(end))
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn crates_import_only_along_the_arrows() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut seen = 0;
    for manifest in files().iter().filter(|file| file.starts_with("crates/") && file.ends_with("Cargo.toml")) {
        let name = manifest.split('/').nth(1).expect("crates/NAME/Cargo.toml");
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("crate '{name}' has no arrows in {}", file!()));
        seen += 1;
        let manifest = text(manifest);
        let section = manifest.split("[dependencies]").nth(1).unwrap_or("").split("\n[").next().unwrap_or("");
        for import in section.lines().filter_map(|line| line.trim().strip_prefix("millrace-")) {
            let import = import.split(['.', ' ', '=']).next().expect("split gives at least one part");
            assert!(
                import == "features" || allowed.contains(&import),
                "crate '{name}' must not import '{import}'; see ARCHITECTURE.md"
            );
        }
    }
    assert_eq!(seen, ARROWS.len(), "a crate in {} does not exist", file!());
}

/// What the gateway gets from a namespace has passed the gate, or is one of `ServedFacts`.
#[test]
fn the_gateway_does_not_reach_around_the_gate() {
    let sources = files().into_iter().filter(|file| file.starts_with("crates/gateway/src/") && !file.contains("tests"));
    for file in sources.filter(|file| is_source(file)) {
        let code: String = text(&file).split_whitespace().collect();
        assert!(
            !code.contains("served().namespace()") && !code.contains("served.namespace()"),
            "{file}: answers are made by an `Access`, or from `Served::facts`"
        );
    }
}

/// The server reads the table of protocols that it is given.
#[test]
fn the_server_knows_no_protocol() {
    let folder = "crates/gateway/src/server/";
    for file in files().into_iter().filter(|file| file.starts_with(folder) && !file.contains("/tests")) {
        let source = text(&file);
        let product = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or(&source);
        let code: String = product.lines().filter(|line| !line.trim_start().starts_with("//")).map(str::trim).collect();
        let grouped = code.split("use crate::{").skip(1).filter_map(|rest| rest.split("};").next());
        let imports: Vec<&str> =
            grouped.flat_map(|group| group.split([',', ' '])).chain(code.split("crate::").skip(1)).collect();
        for name in ["wire", "http", "mqtt", "protocols", "cluster", "documents", "links"] {
            let is_used = imports.iter().any(|import| import.split([':', ';', ',', '}']).next() == Some(name));
            assert!(!is_used, "{file} uses {name}: the server knows a protocol only by its row in protocols.rs");
        }
    }
}

#[test]
fn the_objects_of_a_host_know_its_cluster_and_not_the_other_way_round() {
    for file in files().into_iter().filter(|file| file.starts_with("crates/node/src/cluster/")) {
        let source = text(&file);
        for around in ["crate::objects", "super::super::objects", "super::super::super::objects"] {
            assert!(!source.contains(around), "{file} uses {around}; what both need is in node/src/slot.rs");
        }
    }
}

#[test]
fn files_lines_and_folders_keep_their_size() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for file in files().iter().filter(|file| is_source(file)) {
        let text = text(file);
        assert!(
            text.lines().count() <= FILE_LINES_MAX,
            "{file} has more than {FILE_LINES_MAX} lines: what is its second subject?"
        );
        let long = text.lines().position(|line| line.chars().count() > LINE_CHARS_MAX);
        assert!(long.is_none(), "{file}:{} is longer than {LINE_CHARS_MAX}", long.unwrap_or(0) + 1);
        *folders.entry(file.rsplit_once('/').map_or("", |(folder, _)| folder).into()).or_default() += 1;
    }
    for (folder, count) in folders {
        assert!(count <= FOLDER_FILES_MAX, "{folder} has {count} source files; {FOLDER_FILES_MAX} is the most");
    }
}

#[test]
fn unsafe_stands_in_named_files_only_and_says_why() {
    for file in
        files().iter().filter(|file| !file.starts_with("tests/") && file.contains("/src/") && file.ends_with(".rs"))
    {
        let text = text(file);
        let code = text.lines().map(|line| line.split("//").next().unwrap_or("").trim());
        let blocks = code.filter(|line| line.contains("unsafe {") || line.contains("unsafe impl")).count();
        let reasons = text.matches("// SAFETY:").count();
        if blocks > 0 {
            let named = file.starts_with("crates/bench/") || UNSAFE_FILES.iter().any(|end| file.ends_with(end));
            assert!(named, "{file} has `unsafe`; if it must, name it in {}", file!());
            assert!(reasons >= blocks, "{file}: {blocks} unsafe blocks, {reasons} reasons");
        }
    }
}

#[test]
fn threads_and_tasks_start_where_they_are_missed() {
    let starts =
        ["thread::spawn(", "tokio::spawn(", "task::spawn(", ".spawn(", "scope(", "_scoped(", "_blocking(", "JoinSet"];
    let is_product = |file: &&String| {
        let outside = ["crates/bench/", "sdk/", "tests/", "fuzz/", "examples/"];
        file.ends_with(".rs") && file.contains("/src/") && !outside.iter().any(|folder| file.starts_with(folder))
    };
    let mut found = 0;
    for file in files().iter().filter(is_product).filter(|file| !file.contains("/tests")) {
        let text = text(file);
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(&text);
        for line in product.lines().map(|line| line.split("//").next().unwrap_or("")) {
            for start in starts.iter().filter(|start| line.contains(**start)) {
                let allowed = STARTS.iter().any(|(at, what)| file == at && what.contains(start));
                // `tokio::spawn(` and the like are distinguished from `millrace_threads::spawn(` by the prefix.
                assert!(
                    allowed,
                    "{file} starts a thread or task nobody would miss: use millrace_threads or tasks: {line}"
                );
                found += 1;
            }
        }
    }
    assert!(found >= STARTS.len(), "a place in {} starts nothing", file!());
    for (file, start) in STARTS {
        assert!(text(file).contains(start), "{file} has no `{start}`");
    }
}

#[test]
fn nothing_half_done_is_committed() {
    // Put together here so that this file does not find itself.
    let marks =
        ["TO".to_owned() + "DO", "FIX".to_owned() + "ME", "todo".to_owned() + "!(", "unimplemented".to_owned() + "!("];
    let ignored = "#[ign".to_owned() + "ore";
    for file in files().iter().filter(|file| is_source(file) || file.ends_with(".toml") || file.ends_with("Makefile")) {
        let text = text(file);
        for mark in marks.iter().chain([&ignored]) {
            assert!(!text.contains(mark.as_str()), "{file} contains '{mark}'");
        }
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    for file in files().iter().filter(|file| file.ends_with(".md")) {
        let text = text(file);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let folder = Path::new(file).parent().expect("a file has a folder");
            assert!(root().join(folder).join(target).exists(), "{file} links to '{target}', which is not there");
        }
    }
}

/// Each point of the page of promises names tests, unless it is a limit, and each test exists.
#[test]
fn every_promise_names_tests_that_exist() {
    let page = text("docs/operating/durability.md");
    let points = page.split("\n* ").skip(1).map(|point| point.split("\n\n").next().unwrap_or(point));
    let mut named = 0;
    for point in points {
        let tests: Vec<(&str, &str)> =
            point.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::")).collect();
        assert!(!tests.is_empty() || point.starts_with("**Limit**: "), "this names no test: {point}");
        for (file, name) in tests {
            let word = if file.ends_with(".py") { "def" } else { "fn" };
            assert!(root().join(file).is_file(), "there is no file '{file}' for the promise: {point}");
            assert!(text(file).contains(&format!("{word} {name}(")), "{file} has no test '{name}': {point}");
            named += 1;
        }
    }
    assert!(named >= 80, "only {named} tests are named");
}

/// The names of types that several modules of a crate declare. A name says what its type is without its module: this list only gets shorter.
const NOT_UNIQUE: &[(&str, &[&str])] = &[
    ("bench", &["Asker", "Cluster", "Connection", "Served", "Site"]),
    (
        "cli",
        &[
            "Column",
            "Columns",
            "Format",
            "Functions",
            "Lines",
            "Logs",
            "Names",
            "Plan",
            "Rows",
            "Shape",
            "Source",
            "Status",
            "Table",
            "Tally",
            "Within",
        ],
    ),
    ("client", &["Client", "Host", "Inner", "Safe", "Stream", "Tail"]),
    ("dispatch", &["State", "Stop"]),
    (
        "gateway",
        &[
            "Answer", "Change", "Follow", "Line", "Part", "Place", "Rationed", "Records", "Running", "Shared",
            "Silent", "Source", "State", "Stream", "Tail",
        ],
    ),
    ("journal", &["Before", "Found", "Slot", "State", "Upkeep", "Writer"]),
    ("namespace", &["Answer", "Found", "Note", "Notes"]),
    (
        "node",
        &[
            "Answer", "Asked", "Blocked", "Group", "Inner", "Key", "Known", "Progress", "Read", "Running", "Shared",
            "Slot", "Source", "State", "Waiting", "Wanted", "Work",
        ],
    ),
    ("repair", &["Correction", "Line"]),
    ("runtime", &["Conversation", "Ended", "Fault", "Plan", "Running", "Shared", "Slot"]),
];

#[test]
fn a_types_name_is_unique_in_its_crate() {
    let mut declared: BTreeMap<(String, String), usize> = BTreeMap::new();
    for file in files().iter().filter(|file| file.starts_with("crates/") && file.ends_with(".rs")) {
        let (name, inside) = file["crates/".len()..].split_once('/').expect("crates/NAME/…");
        if !inside.starts_with("src/") || inside.contains("/tests/") || inside.ends_with("/tests.rs") {
            continue;
        }
        let text = text(file);
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines() {
            let words = line.split_once(") ").filter(|_| line.starts_with("pub(")).map_or(line, |(_, words)| words);
            let words = words.strip_prefix("pub ").unwrap_or(words);
            let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
            let Some(declaration) = kinds.iter().find_map(|kind| words.strip_prefix(kind)) else { continue };
            let end = declaration.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(declaration.len());
            *declared.entry((name.to_owned(), declaration[..end].to_owned())).or_default() += 1;
        }
    }
    assert!(declared.len() > 500, "only {} types were found", declared.len());
    let found: Vec<_> = declared.into_iter().filter(|(_, times)| *times > 1).map(|(declared, _)| declared).collect();
    let listed: Vec<(String, String)> = NOT_UNIQUE
        .iter()
        .flat_map(|(name, types)| types.iter().map(|declared| (name.to_string(), declared.to_string())))
        .collect();
    let new: Vec<_> = found.iter().filter(|one| !listed.contains(one)).collect();
    assert!(new.is_empty(), "give these types names that say what they are: {new:?}");
    let unique: Vec<_> = listed.iter().filter(|one| !found.contains(one)).collect();
    assert!(unique.is_empty(), "these are unique now; take them off the list: {unique:?}");
}
