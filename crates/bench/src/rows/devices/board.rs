//! device.append, device.get, device.run, device.verify: instructions of a Cortex-M3, which QEMU counts.

use super::make;
use crate::{Context, Outcome, rows::Measured};
use std::path::Path;

/// What the programs on the board print: a number and what it is of, under the name of a system or of none.
struct Counts(Vec<(String, f64, String)>);

impl Counts {
    fn of(context: &Context, arguments: &[&str]) -> Outcome<Self> {
        let mut counts = Vec::new();
        let mut system = String::new();
        for line in make(context, arguments)?.lines() {
            match line.trim().split_once("  ") {
                // The compiler may have said something else.
                Some((number, what)) => {
                    counts.extend(number.parse().map(|number| (system.clone(), number, what.into())))
                }
                None => system = line.into(),
            }
        }
        Ok(Self(counts))
    }

    fn get(&self, system: &str, what: &str) -> Outcome<f64> {
        let found = self.0.iter().find(|(of, _, name)| of == system && name == what);
        Ok(found.ok_or_else(|| format!("the board printed no '{what}'"))?.1)
    }

    fn own(&self, what: &str) -> Outcome<f64> {
        self.get("", what)
    }
}

/// How the programs are built and run.
const HOW: &str = "GCC for ARM with -Os; QEMU's board mps2-an385 with -icount shift=0, so an instruction is a nanosecond and every \
                   repetition gives the same count. A Cortex-M3 takes more cycles than instructions.";
const INSTALL: &str =
    "littlefs and FlashDB are not in target/peers/flash (`make bench` fetches them) and were not measured.";
const PEERS: [&str; 2] = ["littlefs", "FlashDB"];
const ONE: &str = "instructions for one record";
const PROGRAMS: &str = "programs for 1000";
const BYTES: &str = "bytes programmed for 1000";
const ERASES: &str = "erases for 1000";
/// What flash endures, and what a record a minute needs of it.
const ENDURED_ERASES: f64 = 100_000.0;
const SECTORS: f64 = 16.0;
const MINUTES_OF_YEAR: f64 = 525_960.0;

/// The folder of the peers' sources, if they were fetched.
fn peers(context: &Context) -> Option<String> {
    let folder = context.root.join("target/peers/flash");
    let has = |file: &str| Path::new(&folder).join(file).exists();
    (has("lfs.c") && has("src/fdb_tsdb.c")).then(|| format!("PEERS={}", folder.display()))
}

pub fn append(context: &Context) -> Outcome<Measured> {
    let counts = Counts::of(context, &["count"])?;
    let (put, flush) = (counts.own("append a record of 16 bytes")?, counts.own("flush it")?);
    let erases = counts.own("erases")?;
    let years = 1000.0 / erases * SECTORS * ENDURED_ERASES / MINUTES_OF_YEAR;
    let Some(folder) = peers(context) else {
        return Ok(Measured::new(put + flush, 1000)
            .target("append alone ≤ 300", put <= 300.0)
            .also("append alone", put, "instructions")
            .note(format!("{HOW} {INSTALL}")));
    };
    let beside = Counts::of(context, &["peers", &folder])?;
    let ours = |what| beside.get("millrace", what);
    let mut measured = Measured::new(ours(ONE)?, 1000)
        .target("append alone ≤ 300", put <= 300.0)
        .target("≤ 1.6 × FlashDB", ours(ONE)? <= 1.6 * beside.get("FlashDB", ONE)?)
        .target("≤ 0.01 × littlefs", ours(ONE)? <= 0.01 * beside.get("littlefs", ONE)?)
        .target("≤ 0.26 × FlashDB's programs", ours(PROGRAMS)? <= 0.26 * beside.get("FlashDB", PROGRAMS)?)
        .target("≤ 1.03 programs and 36 bytes a record", ours(PROGRAMS)? <= 1030.0 && ours(BYTES)? <= 36_000.0)
        .also("append alone", put, "instructions")
        .also("programs a record", ours(PROGRAMS)? / 1000.0, "")
        .also("bytes of flash a record", ours(BYTES)? / 1000.0, "B")
        .also("erases for 1000 records", ours(ERASES)?, "")
        .also("until 64 KiB of flash are worn out, one record a minute", years, "years");
    for system in PEERS {
        measured = measured
            .peer(system, beside.get(system, ONE)?)
            .also(&format!("{system}, programs a record"), beside.get(system, PROGRAMS)? / 1000.0, "")
            .also(&format!("{system}, bytes of flash a record"), beside.get(system, BYTES)? / 1000.0, "B")
            .also(&format!("{system}, erases for 1000 records"), beside.get(system, ERASES)?, "");
    }
    Ok(measured.note(format!(
        "{HOW} Each record is flushed before the next one; the flash is memory of the board, 16 sectors of 4 KiB, programmed in units of 8 \
         bytes. littlefs 2.11 appends to a file and syncs it; FlashDB 2.2 appends to a time series, which has no checksum of \
         the data, and erases nothing on its first lap. The count has the time of the flash's functions, which are the same for \
         all three. A sector endures {ENDURED_ERASES} erases here."
    )))
}

pub fn get(context: &Context) -> Outcome<Measured> {
    let counts = Counts::of(context, &["count"])?;
    let newest = counts.own("get the newest record")?;
    let tenth = counts.own("get the tenth-newest record")?;
    Ok(Measured::new(newest, 100)
        .target("newest ≤ 200", newest <= 200.0)
        .target("tenth-newest ≤ 600", tenth <= 600.0)
        .also("the tenth-newest", tenth, "instructions")
        .also("the newest, if the flash is mapped", counts.own("get the newest record, if the flash is mapped")?, "instructions")
        .also(
            "the tenth-newest, if the flash is mapped",
            counts.own("get the tenth-newest record, if the flash is mapped")?,
            "instructions",
        )
        .peer("CSPOT on an ESP8266, published, at least", 608.0)
        .peer("CSPOT on an ESP8266, published, at most", 1876.0)
        .note(format!(
            "{HOW} A record of 16 bytes, found by following the records before it in the flash. CSPOT's figures are cycles at 80 MHz, from \
             its paper (2019), and were not measured here."
        )))
}

pub fn run(context: &Context) -> Outcome<Measured> {
    let counts = Counts::of(context, &["count"])?;
    let run = counts.own("run a function that appends a record")?;
    let begun = counts.own("from an append to the first instruction of its function")?;
    Ok(Measured::new(run, 100)
        .target("≤ 1500", run <= 1500.0)
        .target("append to first instruction ≤ 700", begun <= 700.0)
        .also("append to the first instruction", begun, "instructions")
        .peer("CSPOT on an ESP8266, append to first instruction, published", 10_400.0)
        .note(format!(
            "{HOW} From the call that runs what is pending to its end, without the flush: finding the record, the function, which appends a \
             record of 16 bytes, and the entries of both. CSPOT's figure is in cycles at 80 MHz, from its paper (2019), and was \
             not measured here."
        )))
}

pub fn verify(context: &Context) -> Outcome<Measured> {
    let counts = Counts::of(context, &["verify"])?;
    let [one, three, five] =
        ["verify a capability of one block", "of three blocks", "of five blocks"].map(|what| counts.own(what));
    let (one, three, five) = (one?, three?, five?);
    Ok(Measured::new(five, 20)
        .target("one block ≤ 13 000", one <= 13_000.0)
        .target("three ≤ 38 000", three <= 38_000.0)
        .target("five ≤ 63 000", five <= 63_000.0)
        .also("one block", one, "instructions")
        .also("three blocks", three, "instructions")
        .also("encrypt 64 bytes", counts.own("encrypt 64 bytes")?, "instructions")
        .peer("CSPOT on an ESP8266, five levels, published", 104_000.0)
        .peer("CSPOT on an ESP8266, one level, published", 30_000.0)
        .note(format!(
            "{HOW} With the cryptography of sdk/c/wire, which needs no library. A device verifies a capability once for each connection, and \
             CSPOT for each message. CSPOT's figures are cycles at 80 MHz, from its paper (2019), and were not measured here."
        )))
}
