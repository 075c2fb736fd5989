//! Tables against a map: random changes, by two processes that share the journal, with retention and restarts between them.

use millrace_namespace::{AppendOptions, Code, CreateOptions, Durability, Namespace, Position, tables::When};
use millrace_wire::table::{
    Condition, KeyRange, TableAnswer, TableCodec, TableOptions, TableRequest, after_prefix, counter,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A sequence of random numbers that a seed determines.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % sides
    }
}

/// A key, its version and its value.
type Shown = (Vec<u8>, u64, Vec<u8>);
type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn ask(namespace: &Namespace, request: &TableRequest<'_>) -> Result<TableAnswer, Code> {
    let options = AppendOptions { durability: Some(Durability::Memory), ..AppendOptions::default() };
    namespace.ask_table("t", request, options).map_err(|error| {
        if error.code() == Code::BelowHistory {
            eprintln!("{error}")
        }
        error.code()
    })
}

fn shown(answer: TableAnswer) -> Vec<Shown> {
    answer.entries.into_iter().map(|entry| (entry.key, entry.version, entry.value.unwrap_or_default())).collect()
}

fn as_of(namespace: &Namespace, upto: Position, range: KeyRange<'_>) -> Result<Vec<Shown>, Code> {
    let (table, when) = (namespace.table("t").unwrap(), When { upto: Some(upto), now_us: 0 });
    let scan = TableRequest::Scan { range, limit: 1000, keys_only: false };
    let read = namespace.read_table(&table, &scan, when);
    read.map(|(answer, _)| shown(answer)).map_err(|error| error.code())
}

fn within(model: &Model, range: KeyRange<'_>, limit: usize) -> Vec<Shown> {
    let inside = |key: &[u8]| key >= range.from && (range.to.is_empty() || key < range.to);
    let rows = model.iter().filter(|(key, _)| inside(key)).take(limit);
    rows.map(|(key, (version, value))| (key.clone(), *version, value.clone())).collect()
}

/// Changes or cuts off bytes of a file of the table's view.
fn damage(place: &Path, dice: &mut Dice) {
    let files = std::fs::read_dir(place.join("index")).unwrap().map(|file| file.unwrap().path());
    let views: Vec<PathBuf> = files.filter(|path| path.to_str().unwrap().contains("/table-")).collect();
    let Some(path) = views.get(dice.roll(views.len().max(1) as u64) as usize) else { return };
    let mut bytes = std::fs::read(path).unwrap();
    let at = dice.roll(bytes.len().max(1) as u64) as usize;
    match dice.roll(2) {
        0 => bytes.truncate(at),
        _ if bytes.is_empty() => {}
        _ => bytes[at] ^= 1 << dice.roll(8),
    }
    std::fs::write(path, bytes).unwrap();
}

/// A load of the table as it was at a position, page by page while it changes.
struct Load {
    upto: Position,
    then: Model,
    above: u64,
    loaded: Vec<Shown>,
}

impl Load {
    fn begun(upto: Position, then: Model) -> Self {
        Self { upto, then, above: 0, loaded: Vec::new() }
    }

    /// Loads a page; returns whether it was the last one, and if so, whether the whole was still there.
    fn go_on(&mut self, namespace: &Namespace, limit: usize) -> Option<bool> {
        let (journal, table) = (namespace.journal(), namespace.table("t").unwrap());
        let page = match namespace.tables().above(journal, &table, self.above, (limit, 1 << 20), self.upto) {
            Ok(page) => page,
            // A deletion was dropped with its segment.
            Err(error) if error.code() == Code::TableVersionGone => return Some(false),
            Err(error) => panic!("{error}"),
        };
        if self.upto < journal.first() {
            return Some(false);
        }
        assert!(page.entries.len() <= limit && (!page.more || !page.entries.is_empty()));
        self.above = page.entries.last().map_or(self.above, |entry| entry.version);
        self.loaded.extend(page.entries.into_iter().map(|entry| (entry.key, entry.version, entry.value.unwrap())));
        (!page.more).then(|| {
            let mut all = within(&self.then, KeyRange::default(), usize::MAX);
            all.sort_by_key(|(_, version, _)| *version);
            assert_eq!(self.loaded, all);
            true
        })
    }
}

/// What a run has met.
#[derive(Default)]
struct Met {
    /// How many loads were whole.
    loads: usize,
    /// How many past states were read.
    past: usize,
    /// How often a namespace was opened whose view had one file, or two.
    one_file: usize,
    two_files: usize,
}

fn run(seed: u64, steps: u64, met: &mut Met) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("n");
    let options = CreateOptions {
        durability: Durability::Memory,
        segment_bytes: 1 << 20,
        retain_bytes: 2 << 20,
        ..CreateOptions::default()
    };
    let mut one = Namespace::create(&place, &options).unwrap();
    one.create_table(&"t".parse().unwrap(), 3, TableOptions::default()).unwrap();
    one.create_log(&"filler".parse().unwrap(), 1).unwrap();
    let mut two = Namespace::open(&place).unwrap();
    let mut dice = Dice(seed);
    let mut model = Model::new();
    let mut past: Vec<(Position, Model)> = Vec::new();
    let (mut load, mut of_loads): (Option<Load>, _) = (None, Dice(!seed));
    // With many keys, of which few change, a view has a second file.
    let keys = [60, 600][seed as usize % 2];
    for number in (0..keys).filter(|_| keys > 60) {
        let (key, value) = (format!("k{number:03}").into_bytes(), b"0".to_vec());
        let put = TableRequest::Put { key: &key, value: &value, condition: Condition::Always, ttl_ms: 0 };
        model.insert(key.clone(), (ask(&one, &put).unwrap().entries[0].version, value));
    }
    for step in 0..steps {
        let namespace = if dice.roll(3) == 0 { &two } else { &one };
        let key = format!("k{:03}", dice.roll(keys)).into_bytes();
        let known = model.get(&key).map_or(0, |(version, _)| *version);
        let value = step.to_string().into_bytes();
        let condition = match dice.roll(6) {
            0 => Condition::Absent,
            1 => Condition::Version(known.max(1)),
            2 => Condition::Version(1 + dice.roll(step + 1)),
            _ => Condition::Always,
        };
        let is_met = match condition {
            Condition::Always => true,
            Condition::Absent => known == 0,
            Condition::Version(version) => known == version,
        };
        let context = format!("seed {seed}, step {step}");
        if of_loads.roll(4) == 0 {
            let loading = load.get_or_insert_with(|| Load::begun(namespace.journal().tail(), model.clone()));
            if let Some(is_whole) = loading.go_on(namespace, 1 + of_loads.roll(12) as usize) {
                met.loads += usize::from(is_whole);
                load = None;
            }
        }
        match dice.roll(13) {
            0..5 => {
                let put = ask(namespace, &TableRequest::Put { key: &key, value: &value, condition, ttl_ms: 0 });
                match (is_met, put) {
                    (true, Ok(answer)) => drop(model.insert(key, (answer.entries[0].version, value))),
                    (false, Err(Code::TableVersionDiffers)) => {}
                    (_, other) => panic!("{context}: {other:?}"),
                }
            }
            5..7 => match (is_met, ask(namespace, &TableRequest::Delete { key: &key, condition })) {
                (true, Ok(answer)) => assert_eq!(answer.entries.len(), model.remove(&key).iter().len(), "{context}"),
                (false, Err(Code::TableVersionDiffers)) => {}
                (_, other) => panic!("{context}: {other:?}"),
            },
            7 => {
                let before = model.get(&key).map_or(Some(0), |(_, value)| counter(value));
                let (amount, added) = (step as i64 % 7 - 3, before);
                match (added, ask(namespace, &TableRequest::Increment { key: &key, amount })) {
                    (Some(before), Ok(answer)) => {
                        let sum = (before + amount).to_string().into_bytes();
                        assert_eq!(answer.entries[0].value.as_ref(), Some(&sum), "{context}");
                        model.insert(key, (answer.entries[0].version, sum));
                    }
                    (_, other) => panic!("{context}: {other:?}"),
                }
            }
            8 => {
                let found = shown(ask(namespace, &TableRequest::Get { key: &key }).unwrap());
                let end = [&*key, &[0]].concat();
                assert_eq!(found, within(&model, KeyRange { from: &key, to: &end }, 1), "{context}");
            }
            9 => {
                let prefix = format!("k{:02}", dice.roll(7)).into_bytes();
                let end = after_prefix(&prefix);
                let (range, limit) = (KeyRange { from: &prefix, to: &end }, 1 + dice.roll(12) as u32);
                let answer = ask(namespace, &TableRequest::Scan { range, limit, keys_only: false }).unwrap();
                let all = within(&model, range, usize::MAX);
                assert_eq!(answer.more, all.len() > limit as usize, "{context}");
                assert_eq!(shown(answer), within(&model, range, limit as usize), "{context}");
            }
            10 => {
                // Retention drops most of what was written before.
                for _ in 0..dice.roll(24) {
                    namespace.append("filler", &[7; 200_000], AppendOptions::default()).unwrap();
                }
                namespace.reclaim().unwrap();
                past.clear();
            }
            11 => namespace.tables().freeze(namespace.journal(), &namespace.table("t").unwrap()).unwrap(),
            _ if dice.roll(8) == 0 => {
                drop((one, two));
                if dice.roll(3) == 0 {
                    damage(&place, &mut dice);
                }
                if dice.roll(2) == 0 {
                    // As after a crash: the indexes are made anew.
                    std::fs::remove_file(place.join("control")).unwrap();
                }
                one = Namespace::open(&place).unwrap();
                two = Namespace::open(&place).unwrap();
                let (journal, table) = (one.journal(), one.table("t").unwrap());
                match one.tables().files(journal, &table).unwrap() {
                    0 => {}
                    1 => met.one_file += 1,
                    _ => met.two_files += 1,
                }
                let everything = as_of(&one, journal.tail(), KeyRange::default()).unwrap();
                assert_eq!(everything, within(&model, KeyRange::default(), 1000), "{context}");
            }
            _ => past.push((namespace.journal().tail(), model.clone())),
        }
    }
    for namespace in [&one, &two] {
        assert_eq!(
            as_of(namespace, namespace.journal().tail(), KeyRange::default()).unwrap(),
            within(&model, KeyRange::default(), 1000)
        );
        for (upto, then) in &past {
            match as_of(namespace, *upto, KeyRange::default()) {
                Ok(found) => {
                    assert_eq!(found, within(then, KeyRange::default(), 1000), "seed {seed}");
                    met.past += 1;
                }
                // A deletion was dropped with its segment.
                Err(Code::TableVersionGone) => {}
                Err(other) => panic!("seed {seed}: {other:?}"),
            }
        }
    }
}

#[test]
fn tables_agree_with_a_map() {
    let mut met = Met::default();
    (0..10).for_each(|seed| run(seed, 400, &mut met));
    let Met { loads, past, one_file, two_files } = met;
    assert!(past > 5 && one_file > 5 && two_files > 5, "{past} past states, {one_file} and {two_files} files");
    assert!(loads > 20, "{loads} loads");
}

#[test]
fn values_expire_and_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
    let namespace = Namespace::create(&dir.path().join("n"), &options).unwrap();
    let of_table = TableOptions { ttl_ms: 3_600_000, ..TableOptions::default() };
    namespace.create_table(&"t".parse().unwrap(), 10, of_table).unwrap();
    let put = |key: &'static str, ttl_ms| {
        let request = TableRequest::Put { key: key.as_bytes(), value: b"1", condition: Condition::Always, ttl_ms };
        ask(&namespace, &request).unwrap().entries[0].expires_us
    };
    let hour_us = put("long", 0);
    assert!(hour_us > millrace_namespace::now_us() + 3_500_000_000);
    put("short", 1);
    while !ask(&namespace, &TableRequest::Get { key: b"short" }).unwrap().entries.is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(
        ask(&namespace, &TableRequest::Increment { key: b"long", amount: 4 }).unwrap().entries[0].expires_us,
        hour_us
    );
    assert_eq!(namespace.expire_tables().unwrap(), 1);
    assert_eq!(namespace.expire_tables().unwrap(), 0);
    let versions = TableRequest::Versions { key: b"short", below: 0, limit: 10 };
    let versions: Vec<bool> =
        ask(&namespace, &versions).unwrap().entries.iter().map(|entry| entry.value.is_some()).collect();
    assert_eq!(versions, [false, true]);
}

#[test]
fn what_a_table_cannot_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = Namespace::create(&dir.path().join("n"), &CreateOptions::default()).unwrap();
    let of_table = TableOptions::default();
    let text = TableOptions { codec: TableCodec::Text, ..TableOptions::default() };
    let name = "t".parse().unwrap();
    namespace.create_table(&name, 10, of_table).unwrap();
    namespace.create_table(&name, 10, of_table).unwrap();
    assert_eq!(namespace.create_table(&name, 10, text).unwrap_err().code(), Code::LogExists);
    assert_eq!(namespace.create_log(&name, 10).unwrap_err().code(), Code::LogExists);
    assert_eq!(namespace.append("t", b"1", AppendOptions::default()).unwrap_err().code(), Code::LogIsTable);
    namespace.create_log(&"plain".parse().unwrap(), 10).unwrap();
    assert_eq!(namespace.table("plain").unwrap_err().code(), Code::NotATable);
    let put = |key: &[u8], value: &[u8]| {
        ask(&namespace, &TableRequest::Put { key, value, condition: Condition::Always, ttl_ms: 0 }).unwrap_err()
    };
    let long = [b'k'; 1025];
    assert_eq!([put(b"", b"1"), put(&long, b"1"), put(b"\xFF", b"1"), put(b"a\0", b"1")], [Code::TableKeyInvalid; 4]);
    assert_eq!([put(b"k", b"{"), put(b"k", b""), put(b"k", b"\xFF")], [Code::TableValueInvalid; 3]);
    ask(&namespace, &TableRequest::Put { key: b"k", value: b"\"text\"", condition: Condition::Always, ttl_ms: 0 })
        .unwrap();
    assert_eq!(ask(&namespace, &TableRequest::Increment { key: b"k", amount: 1 }).unwrap_err(), Code::TableNotCounter);
    let max = i64::MAX.to_string();
    ask(&namespace, &TableRequest::Put { key: b"k", value: max.as_bytes(), condition: Condition::Always, ttl_ms: 0 })
        .unwrap();
    assert_eq!(ask(&namespace, &TableRequest::Increment { key: b"k", amount: 1 }).unwrap_err(), Code::TableNotCounter);
}

#[test]
fn a_deleted_key_stays_deleted_after_retention_has_copied_its_value() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("n");
    let options = CreateOptions {
        durability: Durability::Memory,
        segment_bytes: 1 << 20,
        retain_bytes: 2 << 20,
        ..CreateOptions::default()
    };
    let namespace = Namespace::create(&place, &options).unwrap();
    namespace.create_table(&"t".parse().unwrap(), 20, TableOptions::default()).unwrap();
    namespace.create_log(&"filler".parse().unwrap(), 1).unwrap();
    let fill = |count: u32| {
        for _ in 0..count {
            namespace.append("filler", &[7; 200_000], AppendOptions::default()).unwrap();
        }
        namespace.reclaim().unwrap();
    };
    let put = |key: &'static [u8]| {
        let request = TableRequest::Put { key, value: b"1", condition: Condition::Always, ttl_ms: 0 };
        ask(&namespace, &request).unwrap();
    };
    let first = namespace.journal().first();
    put(b"a");
    fill(6);
    ask(&namespace, &TableRequest::Delete { key: b"a", condition: Condition::Always }).unwrap();
    // The log still has the put: it is copied behind the deletion.
    while namespace.journal().first() == first {
        fill(1);
    }
    (0..25).for_each(|_| put(b"b"));
    fill(40);
    let get = |namespace: &Namespace, key| ask(namespace, &TableRequest::Get { key }).unwrap().entries.len();
    assert_eq!((get(&namespace, b"a"), get(&namespace, b"b")), (0, 1));
    let other = Namespace::open(&place).unwrap();
    assert_eq!((get(&other, b"a"), get(&other, b"b")), (0, 1), "what reads the journal anew");
}

#[test]
fn views_are_written_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("n");
    let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
    let files = || {
        let files = std::fs::read_dir(place.join("index")).unwrap().map(|file| file.unwrap().file_name());
        files.filter(|name| name.to_str().unwrap().starts_with("table-")).count()
    };
    {
        let namespace = Namespace::create(&place, &options).unwrap();
        namespace.create_table(&"t".parse().unwrap(), 10, TableOptions::default()).unwrap();
        for number in 0..140_000u64 {
            let key = (number % 100_000 * 7919 % 100_003).to_string().into_bytes();
            let value = number.to_string().into_bytes();
            ask(&namespace, &TableRequest::Put { key: &key, value: &value, condition: Condition::Always, ttl_ms: 0 })
                .unwrap();
        }
    }
    assert!(files() > 0);
    let namespace = Namespace::open(&place).unwrap();
    let (journal, table) = (namespace.journal(), namespace.table("t").unwrap());
    let mut keys = 0;
    let (mut from, mut more) = (Vec::new(), true);
    while more {
        let range = KeyRange { from: &from, to: b"" };
        let answer = ask(&namespace, &TableRequest::Scan { range, limit: 1000, keys_only: false }).unwrap();
        for entry in &answer.entries {
            let number = std::str::from_utf8(entry.value.as_ref().unwrap()).unwrap().parse::<u64>().unwrap();
            assert_eq!((number % 100_000 * 7919 % 100_003).to_string().as_bytes(), entry.key);
            assert!(number >= 40_000, "an older value of {:?}", entry.key);
        }
        keys += answer.entries.len();
        more = answer.more;
        from = answer.entries.last().map_or(Vec::new(), |entry| [&*entry.key, &[0]].concat());
    }
    assert_eq!((keys, namespace.tables().keys(journal, &table).unwrap()), (100_000, 100_000));
}

#[test]
fn a_damaged_view_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("n");
    let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
    let then = {
        let namespace = Namespace::create(&place, &options).unwrap();
        namespace.create_table(&"t".parse().unwrap(), 10, TableOptions::default()).unwrap();
        let put = |number: u64, ttl_ms| {
            let (key, value) = (number.to_string().into_bytes(), number.to_string().into_bytes());
            let request = TableRequest::Put { key: &key, value: &value, condition: Condition::Always, ttl_ms };
            ask(&namespace, &request).unwrap();
        };
        (0..200).for_each(|number| put(number, if number % 3 == 0 { 3_600_000_000 } else { 0 }));
        let then = namespace.journal().tail();
        (150..300).for_each(|number| put(number, 0));
        namespace.tables().freeze(namespace.journal(), &namespace.table("t").unwrap()).unwrap();
        then
    };
    let file = std::fs::read_dir(place.join("index")).unwrap().map(|file| file.unwrap().path());
    let file = file.into_iter().find(|path| path.to_str().unwrap().contains("/table-")).unwrap();
    let sound = std::fs::read(&file).unwrap();
    let content = || {
        let namespace = Namespace::open(&place).unwrap();
        let (journal, table) = (namespace.journal(), namespace.table("t").unwrap());
        let everything = TableRequest::Scan { range: KeyRange::default(), limit: 1000, keys_only: false };
        let now = ask(&namespace, &everything).unwrap().entries;
        let past = as_of(&namespace, then, KeyRange::default()).unwrap();
        let later = namespace.tables().expired(journal, &table, u64::MAX >> 1, 1000).unwrap().len();
        (now, past, later, namespace.tables().files(journal, &table).unwrap())
    };
    let (now, past, later, files) = content();
    assert_eq!((now.len(), past.len(), later, files), (300, 200, 50, 1));
    let mut anew = 0;
    for at in (0..sound.len()).step_by(61) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&file, &bytes).unwrap();
        let found = content();
        anew += usize::from(found.3 == 0);
        assert_eq!((&found.0, &found.1, found.2), (&now, &past, later), "byte {at} of {}", sound.len());
        std::fs::write(&file, &sound).unwrap();
    }
    assert!(anew > 10);
    for bytes in [0, 1, sound.len() / 2, sound.len() - 1] {
        std::fs::write(&file, &sound[..bytes]).unwrap();
        assert_eq!(content().3, 0);
    }
}
