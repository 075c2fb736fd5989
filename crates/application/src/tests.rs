//! What an application file may declare, and how mistakes in it are reported.

use super::*;
use millrace_namespace::definition::Runtime;
use millrace_wire::HISTORY_ALL;
use proptest::prelude::*;

const GOOD: &str = r#"
[namespace]
path = "data/ns"
segment_size = "1MiB"
retain_bytes = "16MiB"
retain_age = "7d"
durability = "memory"

[logs."raw/kitchen"]
history = 500
[logs.model]
[logs.orders]
history = "all"

[functions.smooth]
runtime = "python"
code = "functions/"
handler = "smooth:smooth"
python = "venv/bin/python"
on = ["raw/kitchen"]
ordered = false
concurrency = 4
timeout = "5s"
memory = "64MiB"
output = 1024
retries = 0
backoff = "1ms"
dead_letter = "dead/all"
pending_max = 10
env = { KEY = "value" }

[functions.train]
runtime = "wasm"
code = "train.wasm"
on = ["model", "dead/all"]
monitor = "model"

[functions.alarm]
runtime = "oneshot"
code = "."
command = ["./alarm.sh", "-v"]
"#;

fn parse_there(text: &str) -> Result<Application, Problems> {
    Application::parse_with(text, Path::new("app/millrace.toml"), &|_| true)
}

/// The problems of a text as `line:column: message`.
fn problems(text: &str) -> Vec<String> {
    let problems = parse_there(text).expect_err("the text has a mistake");
    problems.list.iter().map(|p| format!("{}:{}: {}", p.line, p.column, p.message)).collect()
}

/// The one problem of a text.
fn problem(text: &str) -> String {
    let mut all = problems(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// A function with these lines, bound to nothing.
fn function(lines: &str) -> String {
    format!("[functions.f]\nruntime = \"oneshot\"\ncode = \".\"\ncommand = [\"./x\"]\n{lines}\n")
}

#[test]
fn everything_it_says_is_read() {
    let application = parse_there(GOOD).unwrap();
    assert_eq!(application.namespace, Path::new("app/data/ns"));
    assert_eq!(application.settings.segment_bytes, Some(1 << 20));
    assert_eq!(application.settings.retain_bytes, Some(16 << 20));
    assert_eq!(application.settings.retain_age, Some(Duration::from_secs(7 * 86_400)));
    assert!(matches!(application.settings.durability, Some(Durability::Memory)));
    let logs: Vec<_> = application.logs.iter().map(|log| (&*log.name, log.history)).collect();
    assert_eq!(logs, [("raw/kitchen", 500), ("model", HISTORY_DEFAULT), ("orders", HISTORY_ALL)]);
    let [smooth, train, alarm] = &application.functions[..] else { panic!("three functions") };
    assert_eq!(smooth.source, Path::new("app/functions/"));
    assert_eq!((smooth.spec.concurrency, smooth.spec.ordered, smooth.spec.retries), (4, false, 0));
    assert_eq!((smooth.spec.memory_max_bytes, smooth.spec.output_max_bytes), (64 << 20, 1024));
    assert!(Path::new(&smooth.spec.python).is_absolute() && smooth.spec.python.ends_with("app/venv/bin/python"));
    assert_eq!(smooth.spec.env["KEY"], "value");
    assert_eq!((train.spec.runtime, &*train.spec.handler), (Runtime::Wasm, "handle"));
    assert_eq!(train.spec.monitor.as_deref(), Some("model"));
    assert_eq!(&*train.spec.dead_letter, "dead/train");
    assert_eq!(alarm.spec.command, ["./alarm.sh", "-v"]);
    for declared in &application.functions {
        declared.spec.validate().unwrap();
    }
}

#[test]
fn a_file_has_no_more_than_so_many_logs_and_functions() {
    let many = |section: &str, count: usize| (0..count).map(|at| format!("[{section}.a{at}]\n")).collect::<String>();
    assert_eq!(parse_there(&many("logs", LOGS_MAX)).unwrap().logs.len(), LOGS_MAX);
    let reported = problem(&many("logs", LOGS_MAX + 1));
    assert!(reported.ends_with("the file has 10001 logs; the limit is 10000"), "{reported}");
    let reported = problem(&many("functions", FUNCTIONS_MAX + 1));
    assert!(reported.ends_with("the file has 1001 functions; the limit is 1000"), "{reported}");
    // Of many problems some are noted.
    let reported = parse_there(&many("functions", FUNCTIONS_MAX)).unwrap_err().to_string();
    assert!(reported.ends_with("and at least 50 more"), "{reported}");
}

#[test]
fn a_function_that_says_nothing_else_may_use_the_logs_of_its_file_and_sends_nowhere() {
    let rights = |lines: &str| {
        let logs = "[logs.raw]\n[logs.\"raw/a\"]\n";
        parse_there(&format!("{logs}{}", function(lines))).unwrap().functions[0].spec.rights.clone()
    };
    let texts = |scopes: Option<Vec<LogScope>>| scopes.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    let silent = rights("");
    assert_eq!(texts(silent.reads), ["dead/f", "raw", "raw/a"]);
    assert_eq!(texts(silent.appends), ["dead/f", "raw", "raw/a"]);
    assert!(silent.sends.is_empty() && silent.secrets.is_empty());
    let said =
        rights("reads = [\"raw/\", \"raw/\"]\nappends = []\nsends = [\"mr://b/farm/x\"]\nsecrets = [\"b\", \"a\"]");
    assert_eq!((texts(said.reads), texts(said.appends)), (vec!["raw/".to_string()], Vec::new()));
    assert_eq!(said.sends[0].to_string(), "mr://b:7070/farm/x");
    assert_eq!(said.secrets.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
    for wrong in ["reads = [\"_keys\"]", "appends = [\"raw/*\"]", "sends = [\"raw\"]", "secrets = [\"../x\"]"] {
        let key = wrong.split(' ').next().unwrap();
        assert!(problem(&function(wrong)).contains(&format!("{key} in [functions.f]")), "{wrong}");
    }
}

#[test]
fn a_pool_runs_for_its_tasks_and_uses_no_other_logs() {
    let pool = |name: &str, lines: &str| {
        format!("[logs.raw]\n[functions.{name}]\nruntime = \"process\"\ncode = \".\"\ncommand = [\"java\"]\n{lines}\n")
    };
    let spec = parse_there(&pool("pool-lab", "pool = true")).unwrap().functions.remove(0).spec;
    assert_eq!(spec.on.iter().map(|log| &**log).collect::<Vec<_>>(), ["_tasks/lab"]);
    assert_eq!((spec.rights.reads.clone(), spec.rights.appends.clone()), (Some(Vec::new()), Some(Vec::new())));
    spec.validate().unwrap();
    let plain = parse_there(&pool("pool-lab", "pool = false")).unwrap().functions.remove(0).spec;
    assert!(plain.on.is_empty() && plain.rights.reads.is_some_and(|reads| !reads.is_empty()));
    let reported = problem(&pool("lab", "pool = true"));
    assert!(reported.contains("the function of pool 'NAME' is called 'pool-NAME'"), "{reported}");
    let reported = problem(&pool("pool-lab", "pool = true\non = [\"raw\"]"));
    assert!(reported.contains("on in [functions.pool-lab]: a pool cannot have it"), "{reported}");
    let reported = problem(&function("pool = true"));
    assert!(reported.contains("pool in [functions.f]: only the runtimes 'wasm', 'process' use it"), "{reported}");
    // The module of a class.
    let module = "[functions.pool-gates]\nruntime = \"wasm\"\ncode = \"gate.wasm\"\npool = true\n";
    let spec = parse_there(module).unwrap().functions.remove(0).spec;
    assert_eq!(
        (spec.on.iter().map(|log| &**log).collect::<Vec<_>>(), &*spec.handler),
        (vec!["_tasks/gates"], "handle")
    );
}

#[test]
fn an_empty_file_is_an_empty_application() {
    let application = parse_there("").unwrap();
    assert_eq!(application.namespace, Path::new("app/.millrace"));
    assert!(application.logs.is_empty() && application.functions.is_empty());
}

#[test]
fn a_typo_is_told_with_its_place_and_what_was_meant() {
    let text = "[logs.\"raw/a\"]\nhitory = 5\n";
    assert_eq!(problem(text), "2:1: unknown key 'hitory' in [logs.\"raw/a\"]; did you mean 'history'?");
    assert!(problem("[fucntions.x]\n").starts_with("1:2: unknown section 'fucntions'; did you mean 'functions'?"));
    let text = "[functions.f]\nruntime = \"pyhton\"\ncode = \".\"\n";
    assert!(problem(text).starts_with("2:11: runtime in [functions.f]: 'pyhton' is not one of"), "{}", problem(text));
    assert!(problem(text).ends_with("did you mean 'python'?"));
    let text = format!("[logs.inbox]\n{}", function("on = [\"inbix\"]"));
    assert!(problem(&text).starts_with("6:7: no log 'inbix' is declared; did you mean 'inbox'?"), "{}", problem(&text));
    assert_eq!(problem("[logs.a]\namend_count = 5"), "2:1: amend_count in [logs.\"a\"] needs `amendable = true`");
    let amendable = |text: &str| Application::parse(text, Path::new("x")).unwrap().logs[0].amendable.unwrap();
    let policy = amendable("[logs.a]\namendable = true\namend_count = 5\namend_age = \"2s\"");
    assert_eq!((policy.count, policy.age_ms), (5, 2000));
    assert_eq!(amendable("[logs.a]\namendable = true"), AmendPolicy::default());
    assert_eq!(
        problem("[logs.a]\nhistory = \"every\""),
        "2:11: history in [logs.\"a\"]: 'every' is not a whole number such as '10000' or '10k', nor 'all'"
    );
    assert_eq!(
        problem("[logs.a]\nhistory = true"),
        "2:11: history in [logs.\"a\"]: expected a whole number or \"all\", not true or false"
    );
    assert_eq!(Application::parse("[logs.a]\nhistory = \"10k\"", Path::new("x")).unwrap().logs[0].history, 10_000);
    assert_eq!(problem("[namespace]\ndurability = \"disc\"").split("; ").nth(1), Some("did you mean 'disk'?"));
}

#[test]
fn an_unquoted_word_as_a_value_is_refused_with_the_rule_and_the_expected_type() {
    let rule = "must be a number, true, false or a string in quotes, not";
    let history = "1 to 268435456, a string such as \"10k\" or \"2M\", or \"all\"";
    for (word, shown) in
        [("ten", "ten"), ("10k", "10k"), ("all # of them", "all"), ("nano", "nano"), ("1_000x", "1_000x")]
    {
        let expected = format!("2:11: the value of 'history' {rule} {shown}; expected: {history}");
        assert_eq!(problem(&format!("[logs.a]\nhistory = {word}\n")), expected);
    }
    assert_eq!(problem("[logs.a]\nhistory =\n"), format!("2:10: 'history' has no value; expected: {history}"));
    assert!(problem("[logs.a]\namendable = True").ends_with(&format!("{rule} True; expected: true or false")));
    assert!(
        problem(&function("timeout = 5s")).contains(&format!("the value of 'timeout' {rule} 5s; expected: duration"))
    );
    assert!(problem("[logs.a]\nhitory = ten").ends_with(&format!("the value of 'hitory' {rule} ten")));
    assert!(problem(&function("on = [\"a\", ten]")).ends_with(&format!("each value in 'on' {rule} ten")));
    assert!(problem(&function("on = [\n  ten,\n]")).ends_with(&format!("a value {rule} ten")));
    // What the parser says of numbers and strings is true.
    assert!(problem("[logs.a]\nhistory = 99999999999999999999").contains("integer number overflowed"));
    assert!(problem("[logs.a]\nhistory = \"x").contains("invalid basic string"));
}

#[test]
fn every_mistake_of_a_file_is_told_at_once_and_in_order() {
    let text = "[logs.a]\nhistory = 0\n[logs.\"b c\"]\n[functions.f]\nruntime = \"wasm\"\ncode = \"x\"\non = [\"zzz\"]\n\
                timeout = 5\nretries = \"3\"\nwhat = 1\n";
    let lines: Vec<_> =
        problems(text).iter().map(|p| p.split(':').next().unwrap().parse().unwrap()).collect::<Vec<usize>>();
    assert_eq!(lines, [2, 3, 7, 8, 9, 10]);
}

#[test]
fn names_given_twice_are_told() {
    let text = format!("{}{}", function(""), function(""));
    assert!(problem(&text).contains("6:12: [functions.f] is defined twice"), "{}", problem(&text));
    assert!(problem("[logs.a]\nhistory = 1\nhistory = 2\n").contains("3:1: 'history' is given twice"));
    assert!(problem(&format!("[logs.a]\n{}", function("on = [\"a\", \"a\"]"))).contains("'a' is listed twice"));
}

#[test]
fn names_with_slashes_or_dots_must_be_quoted_and_the_message_shows_how() {
    assert!(problem("[logs.raw/kitchen]\n").contains("[logs.\"raw/kitchen\"]"), "{}", problem("[logs.raw/kitchen]\n"));
    assert!(problem("[logs.raw.kitchen]\n").contains("[logs.\"raw/kitchen\"]"));
}

#[test]
fn names_that_could_climb_or_hide_are_refused() {
    for name in ["../x", "", ".hidden", "a b", "лог", &"x".repeat(300)] {
        assert!(problem(&format!("[logs.\"{name}\"]\n")).contains("is not a log name"), "{name}");
        let text = function("").replace("functions.f", &format!("functions.\"{name}\""));
        assert!(problem(&text).contains("is not a name"), "{name}");
        let text = function(&format!("dead_letter = \"{name}\""));
        assert!(problem(&text).contains("is not a log name"), "{name}");
        assert!(problem(&function(&format!("monitor = \"{name}\""))).contains("is not a name"), "{name}");
    }
}

#[test]
fn values_of_the_wrong_kind_or_out_of_range_are_told_with_what_was_expected() {
    for (line, expected) in [
        ("timeout = 5", "write \"5s\" or \"5ms\""),
        ("timeout = \"5\"", "'5' has no unit"),
        ("timeout = \"48h\"", "outside 1.0 ms to 1d 0h"),
        ("timeout = true", "expected a string in quotes, not true or false"),
        ("memory = \"1KiB\"", "1 KiB is outside 64 KiB to 1 TiB"),
        ("memory = \"lots\"", "'lots' is not a size"),
        ("memory = -1", "-1 is outside"),
        ("retries = 1.5", "expected a whole number, not a fraction"),
        ("retries = -1", "-1 is outside 0 to 100"),
        ("concurrency = 0", "0 is outside 1 to 64"),
        ("concurrency = 4", "add 'ordered = false'"),
        ("ordered = \"yes\"", "expected true or false, not a string"),
        ("on = \"a\"", "write [\"a\"]"),
        ("on = [1]", "quote each of them"),
        ("handler = \"a:b\"", "only the runtimes 'python', 'wasm' use it"),
        ("python = \"python3\"", "only the runtimes 'python' use it"),
        ("env = { A = 1 }", "the value of 'A' is a whole number; quote it"),
        ("env = { \"A=B\" = \"1\" }", "is not a valid name of an environment variable"),
        ("env = []", "expected a table, not a list"),
    ] {
        let problem = problem(&function(line));
        assert!(problem.starts_with("5:") && problem.contains(expected), "{line}: {problem}");
    }
}

#[test]
fn a_wrong_runtime_hides_no_other_mistake() {
    let text = "[functions.f]\nruntime = \"pyton\"\ncode = \".\"\nhandler = \"smooth\"\ntimeout = 5\nretries = -1\n";
    let reported = problems(text);
    for (problem, expected) in
        reported.iter().zip(["did you mean 'python'", "module:function", "no unit", "outside 0 to 100"])
    {
        assert!(problem.contains(expected), "{expected}: {reported:?}");
    }
    assert_eq!(reported.len(), 4, "{reported:?}");
    let reported = problems(&text.replace("pyton", "ruby").replace("[functions.f]", "[functions.\"a b\"]"));
    assert!(reported.len() == 4 && reported[2].contains("no unit"), "{reported:?}");
}

#[test]
fn what_a_runtime_needs_is_asked_for() {
    let head = "[functions.f]\n";
    assert!(problems(head).iter().any(|p| p.contains("lacks 'runtime'")));
    assert!(problems(head).iter().any(|p| p.contains("lacks 'code'")));
    for (runtime, expected) in
        [("python", "lacks 'handler'"), ("process", "lacks 'command'"), ("oneshot", "lacks 'command'")]
    {
        let text = format!("{head}runtime = \"{runtime}\"\ncode = \".\"\n");
        assert!(problem(&text).contains(expected), "{runtime}");
    }
    assert!(parse_there("[functions.f]\nruntime = \"wasm\"\ncode = \"f.wasm\"\n").is_ok());
    let text = "[functions.f]\nruntime = \"python\"\ncode = \".\"\nhandler = \"smooth.py\"\n";
    assert!(problem(text).contains("'smooth.py' is not \"module:function\""));
    let text = function("").replace("[\"./x\"]", "[]");
    assert!(problem(&text).contains("it names no program"));
}

#[test]
fn code_that_is_not_there_is_told_where_it_was_looked_for() {
    let missing = Application::parse_with(&function(""), Path::new("app/millrace.toml"), &|_| false).unwrap_err();
    assert!(missing.to_string().contains("millrace.toml:3:8: code in [functions.f]: there is no file or directory"));
}

#[test]
fn a_section_that_is_no_table_is_refused() {
    for text in ["logs = 1", "functions = []", "namespace = 3", "[logs]\na = 1", "[functions]\nf = 2", "[[functions]]"]
    {
        assert!(!problems(text).is_empty(), "{text}");
    }
}

#[test]
fn bytes_that_are_not_text_are_told_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    fs::write(&path, b"[logs.a]\n# \xff\n").unwrap();
    let error = Application::load(&path).unwrap_err();
    assert_eq!(error.code(), Code::ApplicationInvalid);
    assert!(error.detail().contains(":2:3: this byte is not UTF-8"), "{error}");
    assert_eq!(Application::load(dir.path()).unwrap_err().code(), Code::ApplicationUnreadable);
    assert_eq!(Application::load(&dir.path().join("no")).unwrap_err().code(), Code::ApplicationNotFound);
}

#[test]
fn the_namespaces_place_is_known_even_when_the_file_is_wrong_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_NAME);
    for (text, expected) in [
        ("[namespace]\npath = \"ns\"\n[functions.f]\nrntime = 1\n", "ns"),
        ("[functions.f]\n", NAMESPACE_DIR),
        ("not toml at all [", NAMESPACE_DIR),
    ] {
        fs::write(&path, text).unwrap();
        assert_eq!(Application::namespace_of(&path), Some(dir.path().join(expected)), "{text}");
    }
    assert_eq!(Application::namespace_of(&dir.path().join("no")), None);
}

/// Lines that are nearly right, so that the reader and not only the TOML parser is exercised.
fn nearly_toml() -> impl Strategy<Value = String> {
    let key = prop::sample::select(
        [keys::NAMESPACE, keys::LOG, keys::DATABASE, keys::TABLE, keys::FUNCTION]
            .concat()
            .iter()
            .map(|key| key.name)
            .collect::<Vec<_>>(),
    );
    let value = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:?}")),
        any::<bool>().prop_map(|b| b.to_string()),
        "[a-z0-9/.:µ]{0,12}".prop_map(|s| format!("\"{s}\"")),
        "[0-9.]{1,20}(ms|s|d|KiB|TiB|B)".prop_map(|s| format!("\"{s}\"")),
        Just("[]".to_string()),
        Just("[\"a\", \"../b\", 3]".to_string()),
        Just("{ a = \"b\", c = 1 }".to_string()),
        Just("1979-05-27".to_string()),
    ];
    let header = prop::sample::select(vec![
        "[namespace]",
        "[logs.a]",
        "[logs.\"a/b\"]",
        "[logs.a.b]",
        "[functions.f]",
        "[functions.\"é\"]",
        "[[logs]]",
        "[x]",
    ]);
    let line = prop_oneof![
        4 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => header.prop_map(String::from),
    ];
    prop::collection::vec(line, 0..20).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_places_inside_it(text in prop_oneof![any::<String>(), nearly_toml()]) {
        match parse_there(&text) {
            Ok(application) => {
                for declared in application.functions {
                    prop_assert!(declared.spec.validate().is_ok(), "{:?}", declared.spec);
                }
            }
            Err(problems) => {
                prop_assert!(!problems.list.is_empty());
                for problem in problems.list {
                    prop_assert!(problem.line >= 1 && problem.line <= text.matches('\n').count() + 1);
                    prop_assert!(!problem.message.contains('\n') && problem.message.len() < 1000);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        fs::write(&path, &bytes).unwrap();
        if let Err(error) = Application::load(&path) {
            prop_assert_eq!(error.code(), Code::ApplicationInvalid);
        }
    }
}

#[test]
fn topics_are_declared_like_logs_and_named_where_functions_are_bound() {
    let text = r#"
[logs."out/cpu"]
[topics.cpu_raw]
[topics.kept]
engine = "nats"
[topics."farm/cpu"]
history = "all"
durability = "leader"
group = "farm"
fed_by = ["out/cpu"]
[functions.f]
runtime = "oneshot"
code = "."
command = ["./x"]
on = ["out/cpu", "topic:cpu_raw", "topic:elsewhere"]
"#;
    let application = parse_there(text).unwrap();
    assert!(application.has_topics());
    let [raw, kept, cpu] = &application.topics[..] else { panic!("{:?}", application.topics) };
    assert_eq!((&*raw.name, raw.history, raw.durability, raw.group.as_deref()), ("cpu_raw", 10_000, "quorum", None));
    assert_eq!((raw.engine, &*kept.name, kept.engine), ("builtin", "kept", "nats"));
    assert_eq!((&*cpu.name, cpu.history, cpu.durability), ("farm/cpu", HISTORY_ALL, "leader"));
    let fed_by =
        |topic: &TopicDeclaration| topic.fed_by.as_ref().map(|logs| logs.iter().map(|log| log.to_string()).collect());
    assert_eq!((cpu.group.as_deref(), fed_by(cpu)), (Some("farm"), Some(vec!["out/cpu".to_owned()])));
    assert_eq!(fed_by(raw), None);
    let [function] = &application.functions[..] else { panic!("{:?}", application.functions) };
    assert_eq!(function.spec.on.iter().map(|log| &**log).collect::<Vec<_>>(), ["out/cpu"]);
    assert_eq!(function.topics.iter().map(|topic| &**topic).collect::<Vec<_>>(), ["cpu_raw", "elsewhere"]);
    assert!(!parse_there(GOOD).unwrap().has_topics());
    assert!(parse_there(&function_on("topic:t")).unwrap().has_topics());
}

fn function_on(name: &str) -> String {
    function(&format!("on = [\"{name}\"]"))
}

#[test]
fn mistakes_in_topics_are_reported() {
    assert!(problem("[topics.t]\nhitory = 3\n").contains("did you mean 'history'"));
    assert!(problem("[topics.t]\ndurability = \"disk\"\n").contains("not one of 'quorum', 'leader'"));
    assert!(problem("[topics.t]\nengine = \"kafka\"\n").contains("not one of 'builtin', 'nats'"));
    let leader = problem("[topics.t]\nengine = \"nats\"\ndurability = \"leader\"\n");
    assert!(leader.contains("does not apply to the engine 'nats'"), "{leader}");
    assert!(problem("[topics.t]\nfed_by = [\"nothing\"]\n").contains("2:11: no log 'nothing' is declared"));
    assert!(problem("[logs.a]\n[topics.t]\nfed_by = [\"a\", \"a\"]\n").contains("'a' is listed twice"));
    assert!(problem("[topics._t]\n").contains("begins with '_'"));
    assert!(problem("[topics.a/b]\n").contains("[topics.\"a/b\"]"));
    assert!(problem("[topics.a.b]\n").contains("[topics.\"a/b\"]"));
    assert!(problem(&function_on("topic:")).contains("on in [functions.f]"));
    assert!(problem(&function_on("topic:_x")).contains("begins with '_'"));
    let twice = function("on = [\"topic:a\", \"topic:a\"]");
    assert!(problem(&twice).contains("topic 'a' is listed twice"));
}
