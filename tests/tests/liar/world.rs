//! Two hosts with links between them, on simulated disks, and how they live and die.

use crate::{
    clients, evidence, local,
    reported::{Fact, Reported},
    streams, web,
};
use millrace_gateway::{Hosted, Linker, Listen, Server, ServerOptions};
use millrace_journal::medium::sim::{SimDisk, SimMedium};
use millrace_node::{
    AppendOptions, CreateOptions, FunctionSpec, Host, HostOptions, Journal, Namespace, Of, OpenOptions, Runtime,
    Served, Site, functions,
    links::{Links, RelayOptions},
};
use millrace_wire::table::TableOptions;
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Longest that anything may take; a bound on hanging.
const LONG: Duration = Duration::from_secs(120);
/// More than a quarter of the second side's segments: no record there may be so long.
const TOO_LONG_BYTES: usize = (256 << 10) + 1;
/// How long it is listened for an answer that should not come.
const LISTEN: Duration = Duration::from_millis(60);
/// How long it is listened for a lie that a site which holds nothing will tell; then the life has not shown it.
const LISTEN_FOR_LIE: Duration = Duration::from_secs(20);
/// What a flush takes at least: a disk that counts as slow is flushed beside the event loops.
const FLUSH: Duration = Duration::from_millis(6);

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What goes over the links while the flushes are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records and messages.
    Flow,
    /// The first contact of the two.
    Meet,
    /// A message that is refused for good.
    Bury,
    /// News of where a stream comes from.
    Path,
}

impl Kind {
    /// The kind of life that shows whether this site holds what it should.
    pub fn that_shows(site: Site) -> Kind {
        match site {
            Site::Meet => Kind::Meet,
            Site::Bury => Kind::Bury,
            Site::Path => Kind::Path,
            _ => Kind::Flow,
        }
    }
}

/// A wire between the two hosts that can be cut: what was not carried by then never arrives.
pub struct Wire {
    pub port: u16,
    inner: Mutex<Plug>,
}

#[derive(Default)]
struct Plug {
    to: Option<SocketAddr>,
    streams: Vec<TcpStream>,
}

impl Wire {
    fn start() -> Arc<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Arc::new(Wire { port: listener.local_addr().unwrap().port(), inner: Mutex::default() });
        let of_thread = wire.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|from| of_thread.connect(from)));
        wire
    }

    fn connect(self: &Arc<Self>, from: TcpStream) {
        let mut plug = self.inner.lock().unwrap();
        let Some(to) = plug.to.and_then(|to| TcpStream::connect(to).ok()) else { return };
        for stream in [&from, &to] {
            let _ = stream.set_nodelay(true);
            let _ = stream.set_write_timeout(Some(Duration::from_secs(5)));
            plug.streams.push(stream.try_clone().unwrap());
        }
        for (from, to) in [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to, from)] {
            let wire = self.clone();
            thread::spawn(move || wire.carry(from, to));
        }
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let plug = self.inner.lock().unwrap();
            if plug.to.is_none() || to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    pub fn plug(&self, to: Option<SocketAddr>) {
        let mut plug = self.inner.lock().unwrap();
        plug.to = to;
        if to.is_none() {
            plug.streams.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
    }
}

/// The two wires, which keep their ports for all worlds: the functions' code has them.
fn wires() -> &'static [Arc<Wire>; 2] {
    static WIRES: OnceLock<[Arc<Wire>; 2]> = OnceLock::new();
    WIRES.get_or_init(|| [Wire::start(), Wire::start()])
}

/// One world at a time: all use the same wires.
static TURN: Mutex<()> = Mutex::new(());

pub const NAMES: [&str; 2] = ["a", "b"];

/// The address of a log of a side, over the wire to it.
pub fn address(side: usize, log: &str) -> String {
    format!("mr://127.0.0.1:{}/{}/{log}", wires()[side].port, NAMES[side])
}

/// The functions `copy` and `streams` of each side.
fn modules(side: usize) -> &'static [PathBuf; 2] {
    static MODULES: OnceLock<(tempfile::TempDir, [[PathBuf; 2]; 2])> = OnceLock::new();
    let (_, modules) = MODULES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let modules = [0, 1].map(|side| {
            [("copy", copy(side)), ("streams", streams::source(side))]
                .map(|(name, body)| compiled(dir.path(), &format!("{name}-{side}"), &body))
        });
        (dir, modules)
    });
    &modules[side]
}

/// What comes goes to `out` and, in the same run, to the other side.
fn copy(side: usize) -> String {
    format!(
        "#include \"millrace.h\"\nint handle(const mr_record *record) {{\n\
         if (mr_append(\"out\", record->data, record->size)) return 1;\n\
         return mr_append(\"{}\", record->data, record->size);\n}}\n",
        address(1 - side, "from_box")
    )
}

fn compiled(dir: &Path, name: &str, body: &str) -> PathBuf {
    let (source, module) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.wasm")));
    fs::write(&source, body).unwrap();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/c");
    let clang = ["--target=wasm32", "-O2", "-nostdlib", "-fno-builtin", "-Wl,--no-entry", "-I"];
    let status = Command::new("clang").args(clang).arg(sdk).arg(&source).arg("-o").arg(&module).status();
    assert!(status.expect("clang is installed").success());
    module
}

/// One host while it lives.
pub struct Alive {
    pub namespace: Namespace,
    pub address: SocketAddr,
    pub socket: PathBuf,
    medium: Arc<SimMedium>,
    server: Option<Server>,
    linker: Option<Linker>,
    host: Option<Host>,
}

/// One namespace through all of its lives.
pub struct Side {
    pub number: usize,
    pub dir: tempfile::TempDir,
    pub reported: Arc<Reported>,
    disk: SimDisk,
    pub alive: Option<Alive>,
    out: Option<Site>,
}

impl Side {
    fn new(number: usize, out: Option<Site>) -> Side {
        let dir = tempfile::tempdir().unwrap();
        let disk = SimDisk::default();
        let medium = disk.process();
        // The first may have records that the second, with its smaller segments, can never take.
        let options = CreateOptions { segment_bytes: (2 << 20) >> number, ..CreateOptions::default() };
        let journal = Journal::create_on(medium.clone(), dir.path(), &options).unwrap();
        let mut side = Side { number, dir, reported: Arc::default(), disk, alive: None, out };
        side.start(medium, Namespace::over(journal));
        side
    }

    fn start(&mut self, medium: Arc<SimMedium>, namespace: Namespace) {
        let host = Host::start(namespace.clone(), HostOptions::default()).unwrap();
        let served = Served::new(NAMES[self.number].parse().unwrap(), namespace.clone()).unwrap();
        if let Some(site) = self.out {
            served.gate().take_out(site, Of::Disk);
        }
        let socket = self.dir.path().join("socket");
        let listen = "127.0.0.1:0".parse::<Listen>().unwrap();
        let options = ServerOptions {
            listen,
            socket: Some(socket.clone()),
            loops: 2,
            connections_max: 1000,
            ..ServerOptions::default()
        };
        let server = Server::start(Arc::new(Hosted::new(vec![served])), &options).unwrap();
        let linker = Linker::start(namespace.clone(), None).unwrap();
        let address = server.bound().addresses[0];
        let (server, linker, host) = (Some(server), Some(linker), Some(host));
        self.alive = Some(Alive { namespace, address, socket, medium, server, linker, host });
        self.disk.set_flush_delay(FLUSH);
        self.reported.listen();
    }

    pub fn namespace(&self) -> &Namespace {
        &self.alive.as_ref().expect("it lives").namespace
    }

    /// Looks up what was told, on a namespace that nobody else uses yet.
    fn recovered(&mut self) -> (Arc<SimMedium>, Namespace) {
        let medium = self.disk.process();
        let journal = Journal::open_on(medium.clone(), self.dir.path(), &OpenOptions::default()).unwrap();
        (medium, Namespace::over(journal))
    }

    /// The end of this life; `cut` says which versions survive, and without it only the process dies.
    fn die(&mut self, cut: Option<&mut dyn FnMut(usize) -> usize>) {
        self.reported.deafen();
        let mut alive = self.alive.take().expect("it lives");
        let after = cut.map(|choose| self.disk.crash(choose));
        alive.medium.kill();
        drop((alive.server.take(), alive.linker.take(), alive.host.take()));
        drop(alive);
        match after {
            Some(after) => self.disk = after,
            None => self.disk.hold_flushes(false),
        }
    }
}

pub struct World {
    pub sides: [Side; 2],
    random: Random,
    seed: u64,
    life: u64,
    runtime: tokio::runtime::Runtime,
    out: Option<Site>,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    /// Two fresh namespaces; at the first one's gate, `out` holds nothing.
    pub fn new(seed: u64, out: Option<Site>) -> World {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        wires().iter().for_each(|wire| wire.plug(None));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let sides = [Side::new(0, out), Side::new(1, None)];
        let world = World { sides, random: Random::new(seed), seed, life: 0, runtime, out, _turn: turn };
        for (number, side) in world.sides.iter().enumerate() {
            let namespace = side.namespace();
            for log in [
                "raw",
                "in",
                "out",
                "push",
                "pull",
                "from_push",
                "from_pull",
                "from_box",
                "idle",
                "asks",
                "parts",
                "from_parts",
            ] {
                namespace.create_log(&log.parse().unwrap(), 100_000).unwrap();
            }
            namespace.create_log(&"small".parse().unwrap(), 100).unwrap();
            namespace.create_table(&"table".parse().unwrap(), 100, TableOptions::default()).unwrap();
            let mut spec = FunctionSpec::new("copy".parse().unwrap(), Runtime::Wasm);
            spec.on = vec!["in".parse().unwrap()];
            spec.rights.sends = vec![address(1 - number, "from_box").parse().unwrap()];
            functions::deploy(namespace, &spec, &modules(number)[0]).unwrap();
            functions::deploy(namespace, &streams::spec(number), &modules(number)[1]).unwrap();
            let named = |name: &str| RelayOptions { name: Some(name.parse().unwrap()), ..RelayOptions::default() };
            Links::of(namespace).add_relay("push", &address(1 - number, "from_push"), &named("push")).unwrap();
            Links::of(namespace).add_relay(&address(1 - number, "pull"), "from_pull", &named("pull")).unwrap();
        }
        world
    }

    pub fn facts(&self) -> u64 {
        self.sides.iter().map(|side| side.reported.count()).sum()
    }

    fn plug(&self) {
        for (wire, side) in wires().iter().zip(&self.sides) {
            wire.plug(side.alive.as_ref().map(|alive| alive.address));
        }
    }

    /// One life: a calm time, then flushes are held back, then one or both die and come back. Returns what was not true.
    pub fn life(&mut self, kind: Option<Kind>) -> Vec<String> {
        self.life += 1;
        let kinds = [Kind::Flow, Kind::Flow, Kind::Bury, Kind::Path, Kind::Meet];
        let kind = kind.unwrap_or(kinds[self.random.below(kinds.len() as u64) as usize]);
        // In the first life of a world the two have never met.
        let kind = if kind == Kind::Meet && self.life > 1 && self.out.is_none() { Kind::Flow } else { kind };
        let victims: &[usize] = match self.random.below(4) {
            _ if self.out.is_some() => &[0],
            0 => &[0, 1],
            1 => &[1],
            _ => &[0],
        };
        // A process that is killed loses nothing that it has written; every second power cut nothing but that.
        let dies = match self.random.below(4) {
            0 if self.out.is_none() => RunError::Killed,
            1 | 2 if self.out.is_none() => RunError::Cut { keeps: true },
            _ => RunError::Cut { keeps: self.out.is_some() && self.life.is_multiple_of(2) },
        };
        self.calm(kind);
        self.press(kind, victims);
        self.end(victims, dies)
    }

    fn calm(&mut self, kind: Kind) {
        if kind != Kind::Meet {
            self.plug();
        }
        for (number, side) in self.sides.iter().enumerate() {
            local::prepare(side.namespace(), self.life);
            if kind == Kind::Bury {
                // Streamed runs of an earlier life would send behind it.
                side.namespace().wait_idle(LONG).unwrap();
                // They meet, so that what is refused later is not the first they hear of one another.
                let to = address(1 - number, "from_box");
                side.namespace().append(&to, b"a word before", AppendOptions::default()).unwrap();
            }
        }
        if kind == Kind::Bury {
            let emptied = |side: &Side| evidence::outbox_waits(side.namespace()) == 0;
            until("the outboxes are empty", || self.sides.iter().all(emptied));
            wires().iter().for_each(|wire| wire.plug(None));
        }
        for (number, side) in self.sides.iter().enumerate() {
            if matches!(kind, Kind::Bury | Kind::Meet) {
                let refused = kind == Kind::Bury && number == 0;
                let message = if refused { vec![b'x'; TOO_LONG_BYTES] } else { b"first and last".to_vec() };
                let to = address(1 - number, "from_box");
                side.namespace().append(&to, &message, AppendOptions::default()).unwrap();
            }
        }
        self.clients(Phase { life: self.life, kind, pressed: false });
    }

    /// Every client of every side does what it can; returns the tasks that may never end.
    fn clients(&self, phase: Phase) {
        for side in &self.sides {
            let alive = side.alive.as_ref().expect("it lives");
            let pen = Pen {
                reported: side.reported.clone(),
                namespace: alive.namespace.clone(),
                name: NAMES[side.number],
                phase,
            };
            let (tcp, unix) =
                (format!("mr://{}/{}", alive.address, pen.name), format!("unix:{}", alive.socket.display()));
            let done = [
                self.runtime.spawn(clients::wire(pen.clone(), tcp.clone(), "tcp")),
                self.runtime.spawn(clients::wire(pen.clone(), unix, "unix")),
                self.runtime.spawn(clients::sending_host(pen.clone(), tcp)),
                self.runtime.spawn(web::http(pen.clone(), alive.address)),
            ];
            if phase.pressed {
                local::work(&pen);
            } else {
                // In calm times whatever is asked is answered.
                for task in done {
                    let waited = self.runtime.block_on(async { tokio::time::timeout(LONG, task).await });
                    waited.expect("everything is answered in calm times").unwrap();
                }
            }
        }
    }

    fn press(&mut self, kind: Kind, victims: &[usize]) {
        for victim in victims {
            let side = &self.sides[*victim];
            side.namespace().journal().sync(side.namespace().journal().tail()).unwrap();
            side.disk.hold_flushes(true);
            side.reported.press();
        }
        let heard = evidence::heard(self.sides[1].namespace());
        self.clients(Phase { life: self.life, kind, pressed: true });
        self.plug();
        let started = Instant::now();
        let patience = match self.out {
            // What is not journaled is missed later.
            None | Some(Site::Reported | Site::Published) => LISTEN,
            Some(_) => LISTEN_FOR_LIE,
        };
        let lied = || self.sides[0].reported.pressed() > 0 || evidence::heard(self.sides[1].namespace()) != heard;
        while started.elapsed() < patience && !(self.out.is_some() && lied()) {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(LISTEN); // One lie is seldom alone.
    }

    fn end(&mut self, victims: &[usize], dies: RunError) -> Vec<String> {
        // All links first: what a host says after its end must reach nobody.
        wires().iter().for_each(|wire| wire.plug(None));
        for victim in victims {
            let random = &mut self.random;
            let mut choose = |versions: usize| match dies {
                RunError::Cut { keeps: true } => random.below(versions as u64) as usize,
                _ => 0,
            };
            self.sides[*victim].die((dies != RunError::Killed).then_some(&mut choose));
        }
        let recovered: Vec<_> = victims.iter().map(|victim| self.sides[*victim].recovered()).collect();
        let mut lies = Vec::new();
        for (victim, (_, namespace)) in victims.iter().zip(&recovered) {
            lies.extend(self.sides[*victim].reported.lies(namespace));
            let other = 1 - victim;
            let of_other = victims.iter().position(|one| *one == other).map(|at| &recovered[at].1);
            let of_other = of_other.unwrap_or_else(|| self.sides[other].namespace());
            lies.extend(evidence::lies(of_other, namespace));
        }
        for (victim, (medium, namespace)) in victims.iter().zip(recovered) {
            self.sides[*victim].start(medium, namespace);
        }
        let (seed, life) = (self.seed, self.life);
        lies.into_iter().map(|lie| format!("seed {seed}, life {life}, {dies:?} {victims:?}: {lie}")).collect()
    }

    /// In the end everything comes where it should, once and in order.
    pub fn converge(&mut self) {
        self.plug();
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = (self.sides[from].namespace(), self.sides[to].namespace());
            from.wait_idle(LONG).unwrap();
            let seed = self.seed;
            until("everything has arrived", || evidence::has_arrived(from, to));
            evidence::check_all(from, to).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        wires().iter().for_each(|wire| wire.plug(None));
        for side in self.sides.iter_mut().filter(|side| side.alive.is_some()) {
            side.die(None);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunError {
    Killed,
    Cut { keeps: bool },
}

/// When something is done.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub life: u64,
    pub kind: Kind,
    /// Flushes are held back.
    pub pressed: bool,
}

impl Phase {
    /// Whether messages are sent that are not safe; what is safe already would wait behind them.
    pub fn sends(&self) -> bool {
        !self.pressed || !matches!(self.kind, Kind::Meet | Kind::Bury)
    }
}

/// Who writes down what is told.
#[derive(Clone)]
pub struct Pen {
    pub reported: Arc<Reported>,
    pub namespace: Namespace,
    pub name: &'static str,
    pub phase: Phase,
}

impl Pen {
    pub fn note(&self, fact: Fact) {
        self.reported.note(fact);
    }

    /// A name that nothing else has.
    pub fn name_of(&self, what: &str) -> String {
        let Phase { life, pressed, .. } = self.phase;
        format!("{what}-{life}-{}", if pressed { "pressed" } else { "calm" })
    }

    /// Waits until something has happened inside, which nobody may be told yet.
    pub async fn inside(&self, happened: impl Fn(&Namespace) -> bool) {
        let started = Instant::now();
        while !happened(&self.namespace) && started.elapsed() < LISTEN_FOR_LIE {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LONG, "waited too long until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
