//! Other processes: the bench starts itself again in a role.
//!
//! A child prints `ready`, then executes a step for each line of standard input and answers each with a line. It ends at the end of its
//! input. Some measurements kill their children instead.

use crate::{
    Outcome,
    measure::wall_ns,
    rows::{PAYLOAD, fill},
};
use millrace_journal::{CreateOptions, Durability, Journal, OpenOptions};
use millrace_node::{Host, HostOptions, Isolation, Namespace};
use millrace_wire::EventId;
use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A running child.
pub struct Helper {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a child in a role and waits until it is ready.
    pub fn start(role: &str, arguments: &[&str]) -> Outcome<Self> {
        let mut helper = Self::launch(role, arguments)?;
        helper.expect("ready")?;
        Ok(helper)
    }

    /// Starts a child without waiting for it.
    pub fn launch(role: &str, arguments: &[&str]) -> Outcome<Self> {
        let mut process = Command::new(env::current_exe()?)
            .arg("--child")
            .arg(role)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().ok_or("a child without output")?);
        Ok(Self { process, input, output })
    }

    pub fn say(&mut self, line: &str) -> Outcome<()> {
        let input = self.input.as_mut().ok_or("a child whose input is closed")?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    /// The child's next line: numbers.
    pub fn numbers(&mut self) -> Outcome<Vec<u64>> {
        let line = self.line()?;
        line.split(' ').map(|word| word.parse().map_err(|_| format!("a child said '{line}'").into())).collect()
    }

    pub fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a child ended early; what it said is above".into());
        }
        Ok(line.trim_end().into())
    }

    fn expect(&mut self, word: &str) -> Outcome<()> {
        let line = self.line()?;
        if line == word { Ok(()) } else { Err(format!("a child said '{line}' instead of '{word}'").into()) }
    }

    /// Closes the child's input and waits for its end.
    pub fn finish(mut self) -> Outcome<()> {
        drop(self.input.take());
        let status = self.process.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a child ended with {status}").into()) }
    }

    /// Kills the child at once.
    pub fn kill(mut self) -> Outcome<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // After `finish` or `kill` there is nothing left to end; otherwise the bench failed, and leaves nobody behind.
        drop(self.input.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A child that echoes over a socket, for the peer of a function in a process.
pub fn echo() -> Outcome<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new(env::current_exe()?)
        .args(["--child", "echo"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    Ok((ours, child))
}

/// Bytes of one echoed message, about those of a small record's frame.
pub const ECHO_BYTES: usize = 128;

/// Those of a message that releases a waiter, about as many as an answer has.
pub const RELEASE_BYTES: usize = 32;

/// What a child does.
pub fn act(role: &str, arguments: &[String]) -> Outcome<()> {
    let dir = Path::new(arguments.first().map_or("", String::as_str));
    match role {
        "append" => append(dir),
        "churn" => churn(dir),
        "host" => host(dir, None),
        "host-apart" => host(dir, Some(Arc::new(Isolation::find(&env::current_exe()?)))),
        "fill" => fill_until_killed(dir, arguments.get(1).ok_or("how many bytes?")?.parse()?),
        "open" => open_until_killed(dir),
        "hold" => hold_until_killed(dir),
        "echo" => answer_echoes(),
        "echo-tcp" => {
            let bytes = |at: usize| -> Outcome<usize> { Ok(arguments.get(at).ok_or("how many bytes?")?.parse()?) };
            echo_over_tcp(bytes(0)?, bytes(1)?)
        }
        "release-tcp" => release_over_tcp(arguments.first().ok_or("how many connections?")?.parse()?),
        other => Err(format!("no role '{other}'").into()),
    }
}

fn ready() -> Outcome<()> {
    println!("ready");
    Ok(io::stdout().flush()?)
}

/// Appends as many records as each line says, from the moment it says; answers with when it began and ended.
fn append(dir: &Path) -> Outcome<()> {
    let journal = Journal::open(dir, &OpenOptions::default())?;
    let log = journal.log(&"a".parse()?)?;
    ready()?;
    for line in io::stdin().lines() {
        let line = line?;
        let (count, start_ns) = line.split_once(' ').ok_or("how many, and when?")?;
        let (count, start_ns): (u64, u64) = (count.parse()?, start_ns.parse()?);
        while wall_ns() < start_ns {
            std::hint::spin_loop();
        }
        let begin = wall_ns();
        for _ in 0..count {
            journal.commit(|batch| batch.append(&log, &PAYLOAD, EventId::NONE, 0))?;
        }
        println!("{begin} {}", wall_ns());
        io::stdout().flush()?;
    }
    Ok(())
}

/// Appends back to back, giving old segments back, until its input ends; then says how many.
fn churn(dir: &Path) -> Outcome<()> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let journal = Journal::open(dir, &OpenOptions::default())?;
    let log = journal.log(&"a".parse()?)?;
    ready()?;
    thread::spawn(|| {
        // Whatever ends the input, even an error, ends the work.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        STOP.store(true, Ordering::Relaxed);
    });
    while !STOP.load(Ordering::Relaxed) {
        fill(&journal, &log, 10_000)?;
        journal.maintain(&|_, _| false)?;
    }
    Ok(())
}

/// Runs the functions of a namespace until its input ends. Says how long opening and starting took, and, for work that
/// was left there, the time from the start until the first run had ended.
fn host(dir: &Path, isolation: Option<Arc<Isolation>>) -> Outcome<()> {
    let start = Instant::now();
    let namespace = Namespace::open(dir)?;
    let opened = start.elapsed();
    let done_before: u64 = namespace.functions()?.iter().map(|function| function.done).sum();
    let host = Host::start(namespace.clone(), HostOptions { isolation, ..HostOptions::default() })?;
    let started = start.elapsed();
    ready()?;
    let functions: Vec<_> = namespace.journal().catalog()?.functions().cloned().collect();
    let journal = namespace.journal();
    let mut first = Duration::ZERO;
    if functions.iter().any(|function| function.pending() > 0) {
        while functions.iter().map(|function| function.done()).sum::<u64>() == done_before {
            journal.wait(journal.tail(), Duration::from_millis(1));
            if start.elapsed() > Duration::from_secs(60) {
                return Err("no run ended within 60 s".into());
            }
        }
        first = start.elapsed();
    }
    println!("{} {} {}", opened.as_nanos(), started.as_nanos(), first.as_nanos());
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    if let Some(error) = host.failure() {
        return Err(error.into());
    }
    Ok(host.stop(Duration::from_secs(10))?)
}

/// Creates a durable journal of this size with one record in each batch, and waits with the journal open until it is killed.
fn fill_until_killed(dir: &Path, bytes: u64) -> Outcome<()> {
    let options = CreateOptions { retain_bytes: 8 << 30, durability: Durability::Disk, ..CreateOptions::default() };
    let journal = Journal::create(dir, &options)?;
    let log = journal.commit(|batch| batch.create_log(&"a".parse()?, 100_000))?.value;
    while journal.tail().get() < bytes {
        fill(&journal, &log, 1000)?;
    }
    journal.sync(journal.tail())?;
    ready()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Opens a journal, says how long that took and what was found, and waits to be killed with it open.
fn open_until_killed(dir: &Path) -> Outcome<()> {
    let start = Instant::now();
    let journal = Journal::open(dir, &OpenOptions::default())?;
    let elapsed = start.elapsed();
    let found = journal.recovery();
    println!("{} {} {}", elapsed.as_nanos(), u8::from(found.scanned), found.entries);
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Keeps a namespace open and waits to be killed.
fn hold_until_killed(dir: &Path) -> Outcome<()> {
    let _journal = Journal::open(dir, &OpenOptions { background: false })?;
    ready()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Answers each message with the time at which it came.
fn answer_echoes() -> Outcome<()> {
    use std::os::fd::AsFd;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut message = [0; ECHO_BYTES];
    while socket.read_exact(&mut message).is_ok() {
        message[..8].copy_from_slice(&wall_ns().to_le_bytes());
        socket.write_all(&message)?;
    }
    Ok(())
}

/// Accepts so many connections, and writes one message to each of them for every line of its input: the least that a server can do to
/// release clients that wait.
fn release_over_tcp(connections: usize) -> Outcome<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    ready()?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    let mut streams = Vec::new();
    for _ in 0..connections {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    for line in io::stdin().lines() {
        line?;
        for stream in &mut streams {
            stream.write_all(&[7; RELEASE_BYTES])?;
        }
    }
    Ok(())
}

/// Answers requests over TCP, given the sizes of requests and answers, with a thread for each connection, until its input ends.
fn echo_over_tcp(request_bytes: usize, answer_bytes: usize) -> Outcome<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    ready()?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut stream, mut request, answer) = (stream, vec![0; request_bytes], vec![7; answer_bytes]);
                // It continues until the other end is gone, for any reason.
                let _ = stream.set_nodelay(true);
                while stream.read_exact(&mut request).is_ok() && stream.write_all(&answer).is_ok() {}
            });
        }
    });
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
