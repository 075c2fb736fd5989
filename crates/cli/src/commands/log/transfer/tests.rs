//! Whatever bytes records have, they come back from every format as they were.

use super::{
    Sink, Source,
    csv::{Rows, Survey, Table},
    ndjson::{Lines, Objects},
    parquet,
};
use millrace_node::{Code, EventId, Hlc, Record};
use proptest::prelude::*;
use std::{fs::File, path::PathBuf};

fn records(payloads: &[Vec<u8>]) -> Vec<Record> {
    let record = |(i, payload): (usize, &Vec<u8>)| Record {
        seqno: u64::MAX - i as u64,
        id: EventId::from_bits(1 << 90 | i as u128),
        hlc: Hlc::from_wall_us(1_700_000_000_000_000 + i as u64),
        cause: EventId::from_bits(if i % 2 == 0 { 0 } else { 7 << 80 }),
        payload: payload.clone(),
    };
    payloads.iter().enumerate().map(record).collect()
}

fn put(mut sink: Box<dyn Sink + '_>, payloads: &[Vec<u8>]) {
    for record in records(payloads) {
        sink.put(&record).unwrap();
    }
    sink.end().unwrap();
}

fn all(mut source: impl Source) -> millrace_node::Result<Vec<Vec<u8>>> {
    std::iter::from_fn(|| source.next().transpose()).collect()
}

fn path() -> PathBuf {
    "test".into()
}

fn ndjson(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    put(Box::new(Lines { log: "a/b".into(), writer: &mut file }), payloads);
    file
}

fn csv(payloads: &[Vec<u8>], whole: bool) -> Vec<u8> {
    let mut survey = Survey::default();
    let looked = payloads.iter().all(|payload| survey.add(payload));
    let columns = if whole || !looked { None } else { survey.columns() };
    let mut file = Vec::new();
    put(Box::new(Rows::new(&mut file, columns).unwrap()), payloads);
    file
}

fn read_csv(file: &[u8]) -> millrace_node::Result<Vec<Vec<u8>>> {
    all(Table::new(file, path())?)
}

fn read_parquet(bytes: &[u8]) -> millrace_node::Result<Vec<Vec<u8>>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    std::fs::write(&path, bytes).unwrap();
    all(parquet::Table::open(path)?)
}

fn parquet(payloads: &[Vec<u8>]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    put(Box::new(parquet::Groups::new(File::create(&path).unwrap()).unwrap()), payloads);
    std::fs::read(&path).unwrap()
}

/// Bytes that are text, JSON and neither.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[\\PC\"\\\\,\r\n\u{0}\u{feff}']{0,20}".prop_map(String::into_bytes),
        object(),
    ]
}

/// Values as programs write them: numbers keep their digits, texts may look like something else.
fn object() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        any::<f64>().prop_filter("JSON has none", |x| x.is_finite()).prop_map(|x| format!("{x:?}")),
        Just("21.50".to_string()),
        Just("123456789012345678901234567890".to_string()),
        Just("null".to_string()),
        Just("[1,{\"a\":\"\"}]".to_string()),
        "\\PC{0,8}".prop_map(|text| serde_json::Value::from(text).to_string()),
        Just("\" 21\"".to_string()),
        Just("\"true\"".to_string()),
        Just("\"a\\u0062\"".to_string()),
    ];
    let name = prop_oneof![Just("t".to_string()), Just("humid".into()), Just("data".into()), "\\PC{1,3}"];
    prop::collection::btree_map(name, value, 0..4).prop_map(|fields| {
        let fields: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}:{value}", serde_json::Value::from(name.as_str()))).collect();
        format!("{{{}}}", fields.join(",")).into_bytes()
    })
}

/// What an object says, whatever the order of its fields and however its texts are escaped; numbers by their digits.
fn meaning(record: &[u8]) -> Vec<(String, String)> {
    let fields = super::fields::of(record).expect("an object");
    let value = |text: &str| {
        let decoded: Option<String> = serde_json::from_str(text).ok();
        decoded.map_or_else(|| text.to_string(), |text| format!("text {text}"))
    };
    let mut said: Vec<_> = fields.0.into_iter().map(|(name, raw)| (name, value(raw.get()))).collect();
    said.sort();
    said
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn bytes_come_back_exactly(payloads in prop::collection::vec(payload(), 0..12)) {
        prop_assert_eq!(&all(Objects::new(&ndjson(&payloads)[..], path())).unwrap(), &payloads);
        prop_assert_eq!(&read_csv(&csv(&payloads, true)).unwrap(), &payloads);
        prop_assert_eq!(&read_parquet(&parquet(&payloads)).unwrap(), &payloads);
    }

    #[test]
    fn objects_come_back_from_columns_with_every_value_as_it_was(payloads in prop::collection::vec(object(), 1..12)) {
        let back = read_csv(&csv(&payloads, false)).unwrap();
        prop_assert_eq!(back.len(), payloads.len());
        for (back, payload) in back.iter().zip(&payloads) {
            prop_assert_eq!(meaning(back), meaning(payload));
        }
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_read_or_refused(
        payloads in prop::collection::vec(payload(), 1..6), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut: bool
    ) {
        for (mut file, read) in [
            (ndjson(&payloads), (|file| all(Objects::new(file, path()))) as fn(&[u8]) -> _),
            (csv(&payloads, false), read_csv),
            (parquet(&payloads), read_parquet),
        ] {
            let at = at.index(file.len());
            if cut { file.truncate(at) } else { file[at] = byte }
            if let Err(error) = read(&file) {
                let code = error.code();
                prop_assert!(matches!(code, Code::ImportInvalid | Code::FormatUnfit | Code::FileUnreadable), "{}", error);
            }
        }
    }
}

#[test]
fn objects_stand_in_columns_and_texts_stand_bare() {
    let payloads = [&br#"{"t":21.50,"where":"kitchen","n":"7"}"#[..], br#"{"where":"a,b","t":null}"#].map(Vec::from);
    let text = String::from_utf8(csv(&payloads, false)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "_seqno,_time,t,where,n");
    assert_eq!(lines[1], "18446744073709551615,2023-11-14T22:13:20.000000Z,21.50,kitchen,\"\"\"7\"\"\"");
    assert_eq!(lines[2], "18446744073709551614,2023-11-14T22:13:20.000001Z,null,\"a,b\",");
}

#[test]
fn records_that_do_not_fit_columns_stand_whole() {
    for odd in [&b"x"[..], b"[1]", b"{\"a\":1,\"a\":2}", b"{\"_time\":1}", b"{\"data\":1}", b"{\"\":1}", b"{} x"] {
        let payloads = [b"{\"a\":1}".to_vec(), odd.to_vec()];
        let file = csv(&payloads, false);
        assert!(file.starts_with(b"seqno,time,data,base64\n"), "{}", String::from_utf8_lossy(&file));
        assert_eq!(read_csv(&file).unwrap(), payloads);
    }
    assert_eq!(csv(&[], false), b"seqno,time,data,base64\n", "an empty log has only the header");
}

#[test]
fn tables_of_others_become_objects() {
    let file = "\u{feff}origin,temp,note\nEWR,39.02,\nJFK,NA,\"two\nlines\"\n";
    let rows = read_csv(file.as_bytes()).unwrap();
    assert_eq!(rows[0], br#"{"origin":"EWR","temp":39.02}"#);
    assert_eq!(rows[1], br#"{"origin":"JFK","temp":"NA","note":"two\nlines"}"#);
}

#[test]
fn bad_input_is_told_with_its_line() {
    let fault = |error: millrace_node::Error| {
        assert_eq!(error.code(), Code::ImportInvalid);
        error.detail().to_string()
    };
    let lines = "{\"data\":1}\n\n{\"data\":2}\n{\"x\":3}\n";
    assert!(fault(all(Objects::new(lines.as_bytes(), path())).unwrap_err()).starts_with("line 4: it has neither"));
    for (file, start) in [
        (&b"a,b\n1,2\n\"x\ny\",2\n1\n"[..], "line 5: it has 1 cells where the header has 2"),
        (b"a\n\xff\n", "line 2: it is not UTF-8"),
        (b"a,a\n", "line 1: column 'a' occurs twice"),
        (b"data,base64\nx,\ny,eA==\n", "line 3: it has both"),
        (b"base64\n!\n", "line 2: its \"base64\" is not base64"),
    ] {
        let said = fault(read_csv(file).unwrap_err());
        assert!(said.starts_with(start), "{said}");
    }
    let endless = std::io::Read::chain(&b"a\n\""[..], std::io::repeat(b'x'));
    let said = fault(all(Table::new(endless, path()).unwrap()).unwrap_err());
    assert!(said.contains("longer than any record"), "{said}");
    let endless = std::io::BufReader::new(std::io::repeat(b'{'));
    assert!(fault(all(Objects::new(endless, path())).unwrap_err()).contains("longer than any record"));
}
