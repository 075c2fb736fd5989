//! A network of machines: network namespaces on one bridge, between which packets can be dropped in each direction.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs::File,
    io::Write,
    net::Ipv4Addr,
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Why a test of a network cannot run on this machine; nothing if it can.
pub fn impossible() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("It takes root to make network namespaces.");
    }
    // Some machines, as most containers, keep that even from root.
    let name = format!("millrace-probe-{}", unique());
    let ip = |words: &[&str]| Command::new("ip").args(words).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    let made = ip(&["netns", "add", &name]) && ip(&["-n", &name, "link", "add", "bridge", "type", "bridge"]);
    let _ = ip(&["netns", "del", &name]);
    (!made).then_some("This machine lets nobody make network namespaces with a bridge.")
}

fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a command that sets something up, and has to work.
#[track_caller]
fn run(line: &str, input: &str) {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a command"));
    let mut child = command.args(words).stdin(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "{line}");
}

/// Machines, each a network namespace with one address, on one bridge.
pub struct Network {
    name: String,
    size: usize,
    /// From which machine nothing arrives at which.
    cut: RefCell<BTreeSet<(usize, usize)>>,
}

impl Network {
    /// So many machines that reach each other.
    pub fn new(size: usize) -> Self {
        let network = Self { name: format!("millrace-{}", unique()), size, cut: RefCell::default() };
        let hub = format!("{}-hub", network.name);
        run(&format!("ip netns add {hub}"), "");
        run(&format!("ip -n {hub} link add bridge type bridge"), "");
        run(&format!("ip -n {hub} link set bridge up"), "");
        for at in 0..size {
            let machine = network.machine(at);
            run(&format!("ip netns add {machine}"), "");
            run(&format!("ip link add cable netns {machine} type veth peer name port{at} netns {hub}"), "");
            run(&format!("ip -n {hub} link set port{at} master bridge up"), "");
            run(&format!("ip -n {machine} addr add {}/24 dev cable", network.address(at)), "");
            run(&format!("ip -n {machine} link set lo up"), "");
            run(&format!("ip -n {machine} link set cable up"), "");
        }
        network
    }

    fn machine(&self, at: usize) -> String {
        format!("{}-{at}", self.name)
    }

    /// The address of a machine.
    pub fn address(&self, at: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, 0, u8::try_from(at + 1).expect("a small network"))
    }

    /// Drops what one of the first sends to one of the second, in this direction only.
    pub fn cut_one_way(&self, from: &[usize], to: &[usize]) {
        let pairs = from.iter().flat_map(|from| to.iter().map(|to| (*from, *to)));
        self.cut.borrow_mut().extend(pairs.filter(|(from, to)| from != to));
        self.apply();
    }

    /// Drops everything between these machines and the others.
    pub fn cut(&self, some: &[usize]) {
        let others: Vec<usize> = (0..self.size).filter(|at| !some.contains(at)).collect();
        self.cut_one_way(some, &others);
        self.cut_one_way(&others, some);
    }

    /// All reach each other again.
    pub fn heal(&self) {
        self.cut.borrow_mut().clear();
        self.apply();
    }

    fn apply(&self) {
        for at in 0..self.size {
            let cut = self.cut.borrow();
            let silent = cut
                .iter()
                .filter(|(_, to)| *to == at)
                .map(|(from, _)| format!("ip saddr {} drop\n", self.address(*from)));
            let rules: String = silent.collect();
            let table = format!(
                "table inet cut\ndelete table inet cut\ntable inet cut {{\nchain input {{\n\
                 type filter hook input priority 0; policy accept;\n{rules}}}\n}}\n"
            );
            run(&format!("ip netns exec {} nft -f -", self.machine(at)), &table);
        }
    }

    /// The same command on a machine.
    pub fn command(&self, at: usize, of: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.machine(at)]).arg(of.get_program()).args(of.get_args());
        command.current_dir(of.get_current_dir().expect("a place"));
        for (key, value) in of.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command
    }

    /// Runs something on a thread that lives on a machine.
    pub fn thread(&self, at: usize, work: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
        let file = File::open(format!("/var/run/netns/{}", self.machine(at))).expect("the machine is there");
        thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("it may move");
            work();
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let machines = (0..self.size).map(|at| self.machine(at));
        for name in machines.chain([format!("{}-hub", self.name)]) {
            let _ = Command::new("ip").args(["netns", "del", &name]).status();
        }
    }
}
