//! A host under a supervisor that starts it again whenever it has ended, at once.

use super::{Trouble, thread_exit, watch::Weight};
use millrace_tests::{PATIENCE, Place, Port};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub struct Site {
    pub name: &'static str,
    pub place: Place,
    pub port: Port,
    state: Mutex<State>,
    over: AtomicBool,
    pub lives: AtomicU64,
}

#[derive(Default)]
struct State {
    child: Option<Child>,
    /// It has said that it serves.
    up: Option<Instant>,
    /// What was done to it that it has to end of.
    doom: Option<String>,
}

impl Site {
    pub fn new(name: &'static str) -> Site {
        let (place, port) = (Place::empty(), Port::reserve());
        Site { name, place, port, state: Mutex::default(), over: false.into(), lives: 0.into() }
    }

    pub fn address(&self) -> String {
        format!("mr://127.0.0.1:{}/farm", self.port)
    }

    fn command(&self) -> Command {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command =
            self.place.command(["--json", "serve", "--listen", &listen, "--name", "farm", "--drain", "3s"]);
        let errors = File::options().create(true).append(true).open(self.errors()).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        command
    }

    fn errors(&self) -> std::path::PathBuf {
        self.place.path().join("stderr")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The last that its hosts said on standard error.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(self.errors()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Starts hosts, one after the other, until the site is closed.
    pub fn supervise(self: &Arc<Self>, trouble: &Arc<Trouble>) -> JoinHandle<()> {
        let (site, trouble) = (self.clone(), trouble.clone());
        thread::spawn(move || {
            while !site.over.load(SeqCst) {
                if let Err(what) = site.live() {
                    trouble.tell(format!("host {}: {what}\n{}", site.name, site.last_words()));
                    return;
                }
            }
        })
    }

    /// One host, from its start to its end.
    fn live(&self) -> Result<(), String> {
        let mut child = self.command().spawn().map_err(|error| error.to_string())?;
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let started = Instant::now();
        {
            let mut state = self.state();
            *state = State { child: Some(child), up: None, doom: None };
        }
        self.lives.fetch_add(1, SeqCst);
        let mut doomed_at = None;
        loop {
            if self.state().up.is_none() {
                match lines.recv_timeout(Duration::from_millis(5)) {
                    Ok(line) if line.contains("\"serving\"") => self.state().up = Some(Instant::now()),
                    Err(mpsc::RecvTimeoutError::Timeout) if started.elapsed() > PATIENCE => {
                        return Err("it started and does not serve".into());
                    }
                    _ => {}
                }
            } else {
                thread::sleep(Duration::from_millis(2));
            }
            let mut state = self.state();
            let Some(child) = &mut state.child else { return Ok(()) };
            let ended = child.try_wait().map_err(|error| error.to_string())?;
            let Some(status) = ended else {
                if let Some(doom) = &state.doom
                    && doomed_at.get_or_insert_with(Instant::now).elapsed() > PATIENCE
                {
                    return Err(format!("it hangs after {doom}"));
                }
                continue;
            };
            let doom = state.doom.take();
            *state = State::default();
            let how = status.code().map_or_else(|| format!("by {:?}", status.signal()), |code| format!("with {code}"));
            return match doom {
                Some(_) => Ok(()),
                None if self.over.load(SeqCst) => Ok(()),
                None => Err(format!("it ended by itself {how}")),
            };
        }
    }

    /// The process, if it serves.
    pub fn pid(&self) -> Option<u32> {
        let state = self.state();
        state.up?;
        state.child.as_ref().map(Child::id)
    }

    /// It serves, and nothing was done to it.
    pub fn is_well(&self) -> bool {
        let state = self.state();
        state.up.is_some() && state.doom.is_none()
    }

    /// Sends the host a signal of which it ends. False if none lives.
    pub fn end(&self, signal: &str) -> bool {
        let mut state = self.state();
        let Some(pid) = state.child.as_ref().map(Child::id) else { return false };
        state.doom = Some(format!("SIG{signal}"));
        drop(state);
        Command::new("kill")
            .args([&format!("-{signal}"), &pid.to_string()])
            .output()
            .is_ok_and(|kill| kill.status.success())
    }

    /// Ends one of the host's threads; it has to notice. The thread's name.
    pub fn end_thread(&self, choose: impl FnOnce(&[u32]) -> Option<u32>) -> Option<String> {
        let mut state = self.state();
        state.up?;
        let pid = state.child.as_ref()?.id();
        let tid = choose(&thread_exit::threads(pid))?;
        let name = thread_exit::name(pid, tid);
        // Anyone who waits for the child would be told of its stops as well: nobody does while the state is ours.
        let ended = thread_exit::end_thread(pid, tid).unwrap_or_else(|error| panic!("ptrace: {error}"));
        if ended {
            state.doom = Some(format!("the end of its thread '{name}'"));
        }
        ended.then_some(name)
    }

    pub fn weight(&self) -> Option<Weight> {
        let pid = self.pid()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
        Some(Weight { anon_kib: field("RssAnon:")?, threads: field("Threads:")?, descriptors })
    }

    /// Ends the host in good order, and the supervision.
    pub fn close(&self) {
        self.over.store(true, SeqCst);
        self.end("TERM");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(child) = &mut self.state().child {
            let _ = (child.kill(), child.wait());
        }
    }
}
