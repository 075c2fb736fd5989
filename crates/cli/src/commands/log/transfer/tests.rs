//! Whatever bytes records have, they come back from every format as they were.

use super::{
    Sink, Source,
    csv::{Rows, Survey},
    ndjson::{Lines, Objects},
    parquet,
    table::Table,
};
use crate::args::ReadingArgs;
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
        headers: Default::default(),
    };
    payloads.iter().enumerate().map(record).collect()
}

fn put(mut sink: Box<dyn Sink + '_>, payloads: &[Vec<u8>]) {
    for record in records(payloads) {
        sink.put(&record, None).unwrap();
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
    put(Box::new(Lines { log: "a/b".into(), writer: &mut file, is_observed: false }), payloads);
    file
}

fn csv(payloads: &[Vec<u8>], whole: bool) -> Vec<u8> {
    let mut survey = Survey::default();
    let looked = payloads.iter().all(|payload| survey.add(payload));
    let columns = if whole || !looked { None } else { survey.columns() };
    let mut file = Vec::new();
    put(Box::new(Rows::new(&mut file, columns, false).unwrap()), payloads);
    file
}

/// Options of the command line.
fn reading(options: &[&str]) -> ReadingArgs {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        reading: ReadingArgs,
    }
    <Line as clap::Parser>::try_parse_from(["import"].iter().chain(options)).unwrap().reading
}

fn read_csv(file: &[u8]) -> millrace_node::Result<Vec<Vec<u8>>> {
    all(Table::new(file, None, path(), &reading(&[]))?)
}

/// The records as text, and how the file was read.
fn read_as(file: &str, options: &[&str]) -> millrace_node::Result<(Vec<String>, serde_json::Value)> {
    let mut table = Table::new(file.as_bytes(), None, path(), &reading(options))?;
    let mut records = Vec::new();
    while let Some(record) = table.next()? {
        records.push(String::from_utf8(record).unwrap());
    }
    Ok((records, table.describe().to_json()))
}

fn read_ndjson(file: &[u8]) -> millrace_node::Result<Vec<Vec<u8>>> {
    all(Objects::new(file, path(), &reading(&[])))
}

fn read_parquet(bytes: &[u8]) -> millrace_node::Result<Vec<Vec<u8>>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    std::fs::write(&path, bytes).unwrap();
    all(parquet::Table::open(path, &reading(&[]))?)
}

fn parquet(payloads: &[Vec<u8>]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    put(Box::new(parquet::Groups::new(File::create(&path).unwrap(), false).unwrap()), payloads);
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
        prop_assert_eq!(&read_ndjson(&ndjson(&payloads)).unwrap(), &payloads);
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
            (ndjson(&payloads), read_ndjson as fn(&[u8]) -> _),
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
fn tables_of_others_become_objects_with_one_type_per_column() {
    let file = "\u{feff}origin,temp,note,code\nEWR,39.02,,28e4\nJFK,40,\"two\nlines\",12\n";
    let (rows, read) = read_as(file, &[]).unwrap();
    assert_eq!(rows[0], r#"{"origin":"EWR","temp":39.02,"code":"28e4"}"#);
    assert_eq!(rows[1], r#"{"origin":"JFK","temp":40,"note":"two\nlines","code":"12"}"#);
    assert_eq!((&read["delimiter"], &read["header"]), (&",".into(), &true.into()));
    assert_eq!(read["guessed"], serde_json::json!(["delimiter", "header", "types"]));
    let kinds: Vec<_> = read["columns"].as_array().unwrap().iter().map(|column| column["type"].clone()).collect();
    assert_eq!(kinds, ["text", "number", "text", "text"]);
    assert_eq!(read["columns"][3]["note"], "not number, because line 2 has \"28e4\"");
}

#[test]
fn a_column_of_an_exports_name_does_not_make_a_file_an_export() {
    for (file, expected) in [
        ("time,data,unit\n7:00,21,C\n", r#"{"time":"7:00","data":21,"unit":"C"}"#),
        ("base64,n\neA==,1\n", r#"{"base64":"eA==","n":1}"#),
        ("data\nx\n", r#"{"data":"x"}"#),
        ("seqno,time,data,base64\n1,noon,x,\n", r#"{"seqno":1,"time":"noon","data":"x"}"#),
        ("_seqno,_time,t\nx,y,1\n", r#"{"_seqno":"x","_time":"y","t":1}"#),
    ] {
        assert_eq!(read_as(file, &[]).unwrap().0, [expected], "{file}");
    }
    let lines = "\u{feff}{\"data\": 21.50, \"unit\": \"C\"}\n{\"x\":123456789012345678901234}\n";
    let expected = [&br#"{"data": 21.50, "unit": "C"}"#[..], br#"{"x":123456789012345678901234}"#];
    assert_eq!(read_ndjson(lines.as_bytes()).unwrap(), expected);
    let file = b"{\"time\":1,\"data\":2}\n";
    assert_eq!(read_ndjson(file).unwrap(), [b"{\"time\":1,\"data\":2}"]);
    let value = all(Objects::new(&file[..], path(), &reading(&["--value", "data"]))).unwrap();
    assert_eq!(value, [b"2"]);
    let (rows, read) = read_as("time,data\n7:00,021\n", &["--value", "data"]).unwrap();
    assert_eq!((rows[0].as_str(), &read["shape"]), ("021", &"value".into()));
    // An export that is to be read as a table.
    let csv = String::from_utf8(csv(&[b"x".to_vec()], true)).unwrap();
    assert!(read_as(&csv, &["--objects"]).unwrap().0[0].starts_with("{\"seqno\":18446744073709551615,\"time\":"));
}

#[test]
fn a_parquet_file_with_a_column_data_keeps_its_other_columns() {
    use ::parquet::{data_type::*, file::writer::SerializedFileWriter, schema::parser::parse_message_type};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.parquet");
    let schema = "message x { required binary data (string); required double t; required binary raw; }";
    let schema = std::sync::Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(File::create(&file).unwrap(), schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts: Vec<ByteArray> = ["a", "b"].into_iter().map(ByteArray::from).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[1.5, f64::NAN], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&texts, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let mut table = parquet::Table::open(file.clone(), &reading(&[])).unwrap();
    assert_eq!(table.next().unwrap().unwrap(), br#"{"data":"a","t":1.5,"raw":"YQ=="}"#);
    assert_eq!(table.next().unwrap().unwrap(), br#"{"data":"b","t":null,"raw":"Yg=="}"#);
    assert!(table.next().unwrap().is_none());
    let read = table.describe().to_json();
    assert_eq!(read["columns"][1]["note"], "NaN or infinite in 1 row, where the records have null");
    assert_eq!(read["columns"][2]["note"], "bytes, as base64");
    assert_eq!(all(parquet::Table::open(file.clone(), &reading(&["--value", "data"])).unwrap()).unwrap(), [b"a", b"b"]);
    let missing = parquet::Table::open(file, &reading(&["--value", "datum"])).map(drop).unwrap_err();
    assert!(missing.detail().contains("the columns are 'data', 't', 'raw'"), "{missing}");
}

#[test]
fn files_without_commas_or_header_are_read_right_or_refused() {
    let (rows, read) = read_as("at;celsius\n7:00;21,5\n", &[]).unwrap();
    assert_eq!((rows[0].as_str(), &read["delimiter"]), (r#"{"at":"7:00","celsius":"21,5"}"#, &";".into()));
    let (rows, read) = read_as("at\tcelsius\n7:00\t21.5\n", &[]).unwrap();
    assert_eq!((rows[0].as_str(), &read["delimiter"]), (r#"{"at":"7:00","celsius":21.5}"#, &"\t".into()));
    let refused = read_as("2026-01-01,7.5\n2026-01-02,8.5\n", &[]).unwrap_err();
    assert!(refused.detail().contains("'7.5' is a number") && refused.detail().contains("--no-header"), "{refused}");
    let (rows, _) = read_as("2026-01-01,7.5\n", &["--no-header"]).unwrap();
    assert_eq!(rows, [r#"{"c1":"2026-01-01","c2":7.5}"#]);
    let (rows, _) = read_as("2026-01-01,7.5\n", &["--columns", "at,celsius"]).unwrap();
    assert_eq!(rows, [r#"{"at":"2026-01-01","celsius":7.5}"#]);
    let (rows, _) = read_as("country,2019\nNA,1\n", &["--header"]).unwrap();
    assert_eq!(rows, [r#"{"country":"NA","2019":1}"#]);
}

#[test]
fn types_can_be_given() {
    let file = "a,b,c\n1,2,NA\n,3,4\n";
    let (rows, read) = read_as(file, &["--types", "a=text", "--null", "NA"]).unwrap();
    assert_eq!(rows, [r#"{"a":"1","b":2,"c":null}"#, r#"{"b":3,"c":4}"#]);
    assert_eq!((&read["columns"][0]["guessed"], &read["columns"][1]["guessed"]), (&false.into(), &true.into()));
    let (rows, _) = read_as(file, &["--text", "--types", "b=number"]).unwrap();
    assert_eq!(rows[0], r#"{"a":"1","b":2,"c":"NA"}"#);
    let refused = read_as(file, &["--types", "c=number"]).unwrap_err();
    assert!(refused.detail().starts_with("line 2: column 'c' has \"NA\", which is no number"), "{refused}");
    let refused = read_as(file, &["--types", "d=number"]).unwrap_err();
    assert!(refused.detail().contains("the columns are 'a', 'b', 'c'"), "{refused}");
}

/// More rows than the sample has: a file is examined whole, a stream is refused where its first rows were no guide.
#[test]
fn a_late_cell_counts() {
    let file = format!("n\n{}x\n", "1\n".repeat(600_000));
    let again: Box<dyn std::io::Read> = Box::new(std::io::Cursor::new(file.clone().into_bytes()));
    let mut table = Table::new(file.as_bytes(), Some(again), path(), &reading(&[])).unwrap();
    assert_eq!(table.next().unwrap().unwrap(), br#"{"n":"1"}"#);
    let refused = all(Table::new(file.as_bytes(), None, path(), &reading(&[])).unwrap()).unwrap_err();
    assert!(refused.detail().starts_with("line 600002: column 'n' has \"x\""), "{refused}");
}

#[test]
fn bad_input_is_told_with_its_line() {
    let fault = |error: millrace_node::Error| {
        assert_eq!(error.code(), Code::ImportInvalid);
        error.detail().to_string()
    };
    let lines = "{\"data\":1}\n\n{\"data\":2}\n{\"x\":3}\n";
    assert!(fault(read_ndjson(lines.as_bytes()).unwrap_err()).starts_with("line 4: it has neither"));
    let lines = "{\"data\":1}\n{\"data\":2,\"unit\":3}\n";
    assert!(fault(read_ndjson(lines.as_bytes()).unwrap_err()).starts_with("line 2: it has other fields"));
    assert!(fault(read_ndjson(b"[1]\n").unwrap_err()).starts_with("line 1: it is not a JSON object"));
    for (file, start) in [
        (&b"a,b\nx,y\n\"x\ny\",z\nx\n"[..], "line 5: it has 1 cells where the first line has 2"),
        (b"a\n\xff\n", "line 2: it is not UTF-8"),
        (b"a,a\n", "line 1: column 'a' occurs twice"),
        (b"seqno,time,data,base64\n1,2026-01-01T00:00:00Z,x,\n2,2026-01-01T00:00:00Z,y,eA==\n", "line 3: it has both"),
        (b"seqno,time,data,base64\n1,2026-01-01T00:00:00Z,,!\n", "line 2: its \"base64\" is not base64"),
    ] {
        let said = fault(read_csv(file).unwrap_err());
        assert!(said.starts_with(start), "{said}");
    }
    let endless = std::io::Read::chain(&b"a\n\""[..], std::io::repeat(b'x'));
    let said = fault(Table::new(endless, None, path(), &reading(&[])).and_then(all).unwrap_err());
    assert!(said.contains("longer than any record"), "{said}");
    let endless = std::io::BufReader::new(std::io::repeat(b'{'));
    let said = fault(all(Objects::new(endless, path(), &reading(&[]))).unwrap_err());
    assert!(said.contains("longer than any record"), "{said}");
}

/// A parser of CSV takes the rest of a file for one cell, in silence.
#[test]
fn a_quote_that_is_never_closed_is_refused() {
    for file in [
        "a,b\n1,2\n3,\"x\n5,6\n",
        "a,b\n1,2\n3,\"x \"\" y\n",
        "a;b\n1;2\n3;\"x\r\n",
        "\u{feff}a,b\n1,2\n3,\"",
        "a\n1\n\"x,y\n",
        "\u{feff}\"a,\",b\n1,2\n3,\"x",
    ] {
        let refused = read_csv(file.as_bytes()).unwrap_err();
        assert_eq!(refused.detail(), "line 3: a quote in this row is not closed", "{file}");
    }
    for (file, last) in [
        ("a,b\n1,5\"\n", r#"{"a":1,"b":"5\""}"#),
        ("a,b\n1,\"x\"\"\"", r#"{"a":1,"b":"x\""}"#),
        ("a,b\n1,\"x\"", r#"{"a":1,"b":"x"}"#),
        ("\u{feff}\"a,\",b\n1,2", r#"{"a,":1,"b":2}"#),
    ] {
        let read = read_csv(file.as_bytes()).unwrap();
        assert_eq!(String::from_utf8_lossy(read.last().unwrap()), last, "{file}");
    }
}
