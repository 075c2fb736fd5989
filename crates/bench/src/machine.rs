//! The machine that the figures belong to, and how busy it was.

use crate::{Context, Outcome, measure::Samples, peers::raw::Prewritten, report::Figure};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::Command,
    time::Instant,
};

/// What is at the head of the report.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_gib: u64,
    pub kernel: String,
    pub filesystem: String,
    /// Measured without any of our code in between.
    pub disk: Vec<Figure>,
}

impl Machine {
    /// Whether it is the same, as far as can be told: how fast its disk is changes from run to run.
    pub fn is_like(&self, other: &Self) -> bool {
        let looks = |m: &Self| (m.cpu.clone(), m.cores, m.memory_gib, m.kernel.clone(), m.filesystem.clone());
        looks(self) == looks(other)
    }
}

pub fn describe(context: &Context) -> Outcome<Machine> {
    let memory_kib: u64 = field("/proc/meminfo", "MemTotal")?.trim_end_matches(" kB").parse()?;
    Ok(Machine {
        cpu: field("/proc/cpuinfo", "model name")?,
        cores: std::thread::available_parallelism()?.get(),
        memory_gib: memory_kib.div_ceil(1 << 20),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
        filesystem: filesystem(&context.dir)?,
        disk: disk(context)?,
    })
}

/// Memory of a process, in MB: `VmRSS` is what is resident.
pub fn memory_mb(process: u32, name: &str) -> Outcome<f64> {
    let kib: f64 = field(&format!("/proc/{process}/status"), name)?.trim_end_matches(" kB").parse()?;
    Ok(kib * 1024.0 / 1e6)
}

/// The first value of a `name: value` file.
fn field(path: &str, name: &str) -> Outcome<String> {
    let text = fs::read_to_string(path)?;
    let value = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
    Ok(value.map_or_else(|| "unknown".into(), |(_, value)| value.trim().into()))
}

/// The kind and device of the file system that holds `dir`.
fn filesystem(dir: &Path) -> Outcome<String> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mount = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?, words.next()?))
    });
    let mount = mount.filter(|(_, place, _)| dir.starts_with(place)).max_by_key(|(_, place, _)| place.len());
    Ok(mount.map_or_else(|| "unknown".into(), |(device, _, kind)| format!("{kind} on {device}")))
}

fn disk(context: &Context) -> Outcome<Vec<Figure>> {
    let dir = context.fresh()?;
    let count = if context.quick { 300 } else { 2000 };
    let (mut over, mut behind) = (Samples::new(), Samples::new());
    let mut file = Prewritten::create(&dir.path().join("over"), 64 << 20)?;
    for _ in 0..count {
        let start = Instant::now();
        file.write_durably(4096)?;
        over.record(start.elapsed());
    }
    let mut file = File::create(dir.path().join("behind"))?;
    for _ in 0..count {
        let start = Instant::now();
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
        behind.record(start.elapsed());
    }
    let mut file = File::create(dir.path().join("stream"))?;
    let (block, blocks) = (vec![1; 1 << 20], 512);
    let start = Instant::now();
    for _ in 0..blocks {
        file.write_all(&block)?;
    }
    file.sync_data()?;
    let stream = f64::from(blocks) * 1.048_576 / start.elapsed().as_secs_f64();
    let named = |name: &str, value, unit: &str| Figure { name: name.into(), value, unit: unit.into() };
    Ok(vec![
        named("overwriting 4 KiB + fdatasync, p50", over.p50_us(), "µs"),
        named("p99", over.p99_us(), "µs"),
        named("appending 4 KiB + fdatasync, p50", behind.p50_us(), "µs"),
        named("p99", behind.p99_us(), "µs"),
        named("streaming 512 MiB + fdatasync", stream, "MB/s"),
    ])
}

/// The kernel's load averages.
pub fn load() -> Outcome<[f64; 3]> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let mut words = text.split(' ').map(str::parse);
    let mut next = || words.next().ok_or("/proc/loadavg is short").map(|word| word.unwrap_or(f64::NAN));
    Ok([next()?, next()?, next()?])
}

/// The time to a second, in UTC.
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The commit that was measured, with a plus sign if the tree differs from it.
pub fn commit(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").current_dir(root).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "crates", "Cargo.lock"]);
    let mark = if changed.is_some_and(|changes| changes.is_empty()) { "" } else { "+" };
    git(&["rev-parse", "--short=10", "HEAD"]).map_or_else(|| "unknown".into(), |id| id + mark)
}

/// USER_HZ, the same on every Linux that we run on.
const TICKS_PER_S: f64 = 100.0;

/// Processor time that a process has taken, in seconds.
pub fn cpu_s(process: u32) -> Outcome<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, in parentheses, may have spaces.
    let fields = stat.rsplit_once(')').ok_or("an odd stat file")?.1;
    let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_S)
}

/// Processor time so far: of everybody, and of this process with the children it has waited for; in seconds.
pub struct Busy {
    all: f64,
    own: f64,
    since: Instant,
}

impl Busy {
    pub fn now() -> Outcome<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; the guest columns are contained in the first two.
        let all = ticks.iter().take(8).sum::<u64>() - ticks.get(3).unwrap_or(&0) - ticks.get(4).unwrap_or(&0);
        let own = fs::read_to_string("/proc/self/stat")?;
        let own = own.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        // utime stime cutime cstime are fields 14 to 17; the first two went with the name.
        let own: u64 = own.skip(11).take(4).filter_map(|word| word.parse::<u64>().ok()).sum();
        Ok(Self { all: all as f64 / TICKS_PER_S, own: own as f64 / TICKS_PER_S, since: Instant::now() })
    }

    /// The part of all processors that others used since then, in percent.
    pub fn others_percent(&self) -> Outcome<f64> {
        let now = Self::now()?;
        let others = (now.all - self.all) - (now.own - self.own);
        let available = self.since.elapsed().as_secs_f64() * std::thread::available_parallelism()?.get() as f64;
        Ok((100.0 * others / available).clamp(0.0, 100.0))
    }
}
