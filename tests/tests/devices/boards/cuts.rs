//! The power of a board is cut while its firmware measures and sends. Its flash is saved at that moment, and the board boots again with it.

use super::{Board, Machine, Monitor, attach, has_all_of, latest, made, measured};
use crate::Random;
use millrace_device::{Image, What};
use millrace_tests::{Host, Place, eventually};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

const CUTS: usize = 8;
/// Its sectors are small, so that they are erased often.
const BOARD: Machine = Machine::Lm3s;
/// As in area.h.
const PROGRAMS: u32 = 1;
const ERASES: u32 = 2;

/// When the power is cut.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Soon after it was switched on.
    Start,
    /// After the host got more records.
    Any,
    /// While the flash does this.
    At(u32),
}

/// The thermometer that measures for ever (`CUT_FIRMWARE` of the Makefile).
struct Firmware {
    path: PathBuf,
    /// Where its memory says what the flash does.
    work: u64,
}

impl Firmware {
    fn new() -> Self {
        let path = made("build/arm/cut-lm3s.elf", &[]);
        let names = Command::new("arm-none-eabi-nm").arg(&path).output().expect("install gcc-arm-none-eabi");
        let names = String::from_utf8(names.stdout).unwrap();
        let line = names.lines().find(|line| line.ends_with(" area_work")).expect("area.c is linked");
        let work = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        Self { path, work }
    }
}

/// What is in the flash when the power is cut.
struct Flash {
    image: PathBuf,
    /// The newest record of "raw".
    newest: u64,
    torn: bool,
}

impl Flash {
    #[track_caller]
    fn new(image: PathBuf) -> Self {
        let bytes = fs::read(&image).unwrap();
        // Before the first flush, no sector has a header.
        let Ok(found) = Image::read(&bytes) else { return Self { image, newest: 0, torn: false } };
        let mut newest = 0;
        for event in found.events() {
            let What::Append { log, seqno, payload, .. } = event.what else { continue };
            if log == "raw" {
                assert_eq!(String::from_utf8_lossy(&payload), measured(seqno), "record {seqno}");
                newest = newest.max(seqno);
            }
        }
        let torn = found.sectors.iter().any(|sector| sector.torn) || !found.damaged.is_empty();
        Self { image, newest, torn }
    }
}

struct Bench {
    place: Place,
    firmware: Firmware,
    random: Random,
    /// Begins with the first board, and stays while its port goes and comes back.
    line: Option<Host>,
}

/// Of a failure, the flash at each cut stays, so that each start can be repeated.
impl Drop for Bench {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let Ok(kept) = tempfile::Builder::new().prefix("cuts-").tempdir() else { return };
        let kept = kept.keep();
        for entry in fs::read_dir(self.place.path()).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "img") {
                let _ = fs::copy(entry.path(), kept.join(entry.file_name()));
            }
        }
        eprintln!("the flash at each cut is in {}", kept.display());
    }
}

impl Bench {
    /// Stops the board at the moment.
    fn stop(&mut self, board: &Board, moment: Moment) -> Monitor {
        let mut monitor = board.monitor();
        let pause = |random: &mut Random, below: u64| thread::sleep(Duration::from_millis(random.below(below)));
        if !matches!(moment, Moment::Start) {
            let enough = latest(&self.place, "attic/raw") + 1 + self.random.below(20);
            eventually("more records are here", || latest(&self.place, "attic/raw") >= enough);
        }
        pause(&mut self.random, if matches!(moment, Moment::Start) { 300 } else { 50 });
        monitor.execute("stop", &serde_json::json!({}));
        if let Moment::At(work) = moment {
            let file = self.place.path().join("word");
            eventually("the flash is at work", || {
                if monitor.memory(self.firmware.work, 4, &file) == work.to_le_bytes() {
                    return true;
                }
                monitor.execute("cont", &serde_json::json!({}));
                pause(&mut self.random, 5);
                monitor.execute("stop", &serde_json::json!({}));
                false
            });
        }
        monitor
    }

    /// Boots with the flash, and cuts the power.
    fn cut(&mut self, flash: &Path, to: PathBuf, moment: Moment) -> Flash {
        let (at, sectors, bytes) = BOARD.flash();
        let loader = format!("loader,file={},addr={at},force-raw=on", flash.display());
        let more = ["-device", &loader];
        let board = Board::start(BOARD, &self.firmware.path, self.place.path(), ("socket", 0), &more);
        self.line.get_or_insert_with(|| attach(&self.place, &board.port, &[]));
        self.stop(&board, moment).memory(at, sectors * bytes, &to);
        drop(board);
        Flash::new(to)
    }
}

#[test]
fn a_board_whose_power_is_cut_loses_nothing_that_was_flushed() {
    let seed = std::env::var("MILLRACE_DEVICE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut bench = Bench { place: Place::new(), firmware: Firmware::new(), random: Random(1), line: None };
    let _host = bench.place.serve();
    let (_, sectors, bytes) = BOARD.flash();
    bench.place.run(["device", "provision", "attic"]).ok();
    let shape =
        ["--sector-bytes", &bytes.to_string(), "--journal-sectors", &(sectors - 2).to_string()].map(str::to_owned);
    let image = ["device", "flash-image", "attic.identity", "--out", "0.img"].map(str::to_owned);
    bench.place.run(image.iter().chain(&shape)).ok();
    let mut flash = Flash { image: bench.place.path().join("0.img"), newest: 0, torn: false };
    let mut torn = 0;
    let cuts = std::env::var("MILLRACE_DEVICE_CUTS").map_or(CUTS, |cuts| cuts.parse().expect("a number"));
    for cut in 1..=cuts {
        // Each cut has random numbers of its own: how many one takes depends on the pace of the machine.
        bench.random = Random((seed * 1000 + cut as u64) * 2 + 1);
        let moment = match bench.random.below(5) {
            0 if cut > 1 => Moment::Start,
            1 => Moment::Any,
            2 | 3 => Moment::At(PROGRAMS),
            _ => Moment::At(ERASES),
        };
        let to = bench.place.path().join(format!("{cut}.img"));
        let found = bench.cut(&flash.image, to, moment);
        let host = latest(&bench.place, "attic/raw");
        let what =
            format!("seed {seed}, cut {cut}, {moment:?}: the flash has {} records, the host {host}", found.newest);
        println!("{what}");
        assert!(found.newest >= flash.newest, "{what}; before, the flash had {}", flash.newest);
        assert!(found.newest >= host, "{what}: a record was sent before it was flushed");
        torn += usize::from(found.torn);
        flash = found;
    }
    assert!(torn > 0, "seed {seed}: no write was interrupted");
    // A firmware that measures nothing more sends what is in flash.
    let (at, ..) = BOARD.flash();
    let loader = format!("loader,file={},addr={at},force-raw=on", flash.image.display());
    let _board = Board::boot_on(BOARD, bench.place.path(), "socket", 0, &["-device", &loader]);
    let newest = flash.newest.to_string();
    eventually("the host has everything", || bench.place.run(["log", "get", "attic/mean", &newest]).code == 0);
    has_all_of(&bench.place, "attic", flash.newest);
    bench.place.run(["namespace", "check"]).ok();
}
