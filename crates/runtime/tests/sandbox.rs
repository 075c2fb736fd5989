//! Functions that attack what is not theirs, at each level that this machine gives, as the host's user root and another.
//!
//! Each attack is seen to succeed without the defence against it, so none passes because it could not succeed anyway.

mod common;

use common::{failed, limits, no_env, printed, run};
use libtest_mimic::{Arguments, Trial};
use millrace_runtime::{
    Defence, Isolation, Level, OneshotExecutor, Outcome, ProcessSpec, PythonExecutor, PythonFunction, PythonSpec,
    SUPERVISOR, Sandbox, SandboxSpec, Secrets, supervise,
};
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::{Child, Command, ExitCode},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(SUPERVISOR) {
        return supervise();
    }
    let tests: [(&str, fn()); 11] = [
        ("every_runtime_works_at_every_level", every_runtime_works_at_every_level),
        ("a_function_is_shown_its_secrets_and_cannot_change_them", a_function_is_shown_its_secrets),
        ("an_interpreter_below_tmp_is_shown", an_interpreter_below_tmp_is_shown),
        (
            "an_installed_program_shows_nothing_else_of_its_prefix",
            an_installed_program_shows_nothing_else_of_its_prefix,
        ),
        ("a_process_that_forked_twice_ends_with_its_run", a_process_that_forked_twice_ends_with_its_run),
        ("attacks_fail", attacks_fail),
        ("attacks_succeed_without_their_defence", attacks_succeed_without_their_defence),
        ("a_sandbox_that_ended_is_made_anew_and_one_that_is_dropped_is_gone", a_sandbox_that_ended_is_made_anew),
        ("only_who_is_granted_it_has_the_network", only_who_is_granted_it_has_the_network),
        ("attacks_fail_where_the_host_is_not_root", attacks_fail_where_the_host_is_not_root),
        ("attacks_fail_where_there_are_no_user_namespaces", attacks_fail_where_there_are_no_user_namespaces),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn isolation(level: Level) -> Isolation {
    Isolation::at_most(level, &std::env::current_exe().unwrap())
}

fn secrets() -> Arc<Secrets> {
    Arc::new(Secrets::new(vec![("api-key".into(), b"told to nobody".to_vec().into())]))
}

struct Place {
    dir: TempDir,
    sandbox: Option<Arc<Sandbox>>,
}

impl Place {
    fn new(isolation: Isolation, program: &str, is_python: bool, network: bool, source: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let code = dir.path().join("code");
        fs::create_dir(&code).unwrap();
        fs::write(code.join("functions.py"), source).unwrap();
        common::script(&code, "f.sh", source);
        let sandbox = Arc::new(isolation).sandbox(SandboxSpec {
            code,
            scratch: dir.path().join("scratch"),
            program: program.into(),
            is_python,
            network,
            secrets: secrets(),
            workers: 1,
            limits: limits(),
            processors_max: None,
        });
        Self { dir, sandbox }
    }

    fn code(&self) -> std::path::PathBuf {
        self.dir.path().join("code")
    }
}

/// A Python function in a sandbox; `f(record, ctx)` has this body.
fn python(isolation: Isolation, network: bool, body: &str) -> (PythonExecutor, Place) {
    let indented: String = body.lines().map(|line| format!("    {line}\n")).collect();
    let source = format!("import os, sys, socket, time\ndef f(record, ctx):\n{indented}");
    let place = Place::new(isolation, "python3", true, network, &source);
    let spec = PythonSpec {
        python: "python3".into(),
        dir: place.code(),
        module: "functions".into(),
        function: "f".into(),
        env: no_env(),
        scratch: Some(place.dir.path().join("scratch")),
    };
    let function = PythonFunction::within(spec, limits(), place.sandbox.clone());
    (PythonExecutor::of(function), place)
}

fn every_runtime_works_at_every_level() {
    for level in Level::ALL {
        let (mut executor, _place) = python(
            isolation(level),
            false,
            "print('said')\nopen('made', 'w').write('x')\nctx.append('out', [os.path.exists('functions.py'), os.environ['HOME'] != '/root'])",
        );
        for (completion, appended) in run(&mut executor, &[b"1", b"2"]) {
            assert_eq!(completion.outcome, Outcome::Done, "{level}");
            assert_eq!(printed(&completion), "said\n");
            let expected = if level == Level::None { "[true," } else { "[true,true]" };
            assert!(
                appended[0].1.starts_with(expected.as_bytes()),
                "{level} {:?}",
                String::from_utf8_lossy(&appended[0].1)
            );
        }
        let source = "#!/bin/sh\nprintf 'out\\t%s %s\\n' \"$(cat)\" \"$1\" >&3; ls f.sh; exit 0";
        let place = Place::new(isolation(level), "./f.sh", false, false, source);
        let spec = ProcessSpec {
            command: vec!["./f.sh".into(), "word".into()],
            dir: place.code(),
            env: no_env(),
            scratch: Some(place.dir.path().join("scratch")),
        };
        let mut executor = OneshotExecutor::new(spec.clone(), limits()).within(place.sandbox.clone());
        for (completion, appended) in run(&mut executor, &[b"one", b"two"]) {
            assert_eq!(completion.outcome, Outcome::Done, "{level} {}", printed(&completion));
            assert_eq!(printed(&completion), "f.sh\n");
            assert!(appended[0].1.ends_with(b" word"));
        }
    }
}

fn a_function_is_shown_its_secrets() {
    let body = "path = os.environ['MILLRACE_SECRETS'] + '/api-key'\nstat = os.stat(path)\ntry: os.truncate(path, 0); changed = True\n\
                except OSError: changed = False\n\
                told = [v for v in list(os.environ.values()) + sys.argv + sys.orig_argv if 'nobody' in v]\n\
                ctx.append('out', [open(path).read(), oct(stat.st_mode & 0o7777), stat.st_uid == os.getuid(), changed, told, \
                                   sorted(os.listdir(os.path.dirname(path))), path == '/run/secrets/api-key'])";
    for level in [Level::Partial, Level::Full] {
        let (mut executor, place) = python(isolation(level), false, body);
        let (completion, appended) = run(&mut executor, &[b"1"]).remove(0);
        assert_eq!(completion.outcome, Outcome::Done, "{level} {}", printed(&completion));
        let inside = place.sandbox.is_some() && isolation(level).level() == Level::Full;
        let expected = format!("[\"told to nobody\",\"0o400\",true,false,[],[\"api-key\"],{inside}]");
        assert_eq!(String::from_utf8_lossy(&appended[0].1), expected, "{level}");
    }
}

/// As in a project whose virtual environment stands where the sandbox has a directory of its own.
fn an_interpreter_below_tmp_is_shown() {
    let dir = tempfile::Builder::new().prefix("venv").tempdir_in("/tmp").unwrap();
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(dir.path()).status().unwrap();
    assert!(made.success());
    let program = dir.path().join("bin/python");
    let source = "import sys\ndef f(record, ctx): ctx.append('out', sys.prefix)\n";
    let place = Place::new(isolation(Level::Full), program.to_str().unwrap(), true, false, source);
    let spec = PythonSpec {
        python: program,
        dir: place.code(),
        module: "functions".into(),
        function: "f".into(),
        env: no_env(),
        scratch: Some(place.dir.path().join("scratch")),
    };
    let mut executor = PythonExecutor::of(PythonFunction::within(spec, limits(), place.sandbox.clone()));
    let (completion, appended) = run(&mut executor, &[b"1"]).remove(0);
    assert_eq!(completion.outcome, Outcome::Done, "{}", printed(&completion));
    assert_eq!(appended[0].1, dir.path().to_str().unwrap().as_bytes());
}

/// As `~/.local`, in which there is more than programs.
fn an_installed_program_shows_nothing_else_of_its_prefix() {
    let prefix = tempfile::Builder::new().prefix("local").tempdir_in("/tmp").unwrap();
    let at = |name: &str| prefix.path().join(name);
    for dir in ["bin", "lib", "share", "state"] {
        fs::create_dir(at(dir)).unwrap();
    }
    fs::write(at("state/capability"), "told").unwrap();
    common::script(&at("bin"), "tool", "#!/bin/sh\ncd \"$1\" && find . | sort >&2; cat state/capability\n");
    let program = at("bin/tool");
    for level in [Level::Partial, Level::Full] {
        let place = Place::new(isolation(level), program.to_str().unwrap(), false, false, "");
        let spec = ProcessSpec {
            command: vec![program.to_str().unwrap().into(), prefix.path().to_str().unwrap().into()],
            dir: place.code(),
            env: no_env(),
            scratch: Some(place.dir.path().join("scratch")),
        };
        let mut executor = OneshotExecutor::new(spec, limits()).within(place.sandbox.clone());
        let (completion, _) = run(&mut executor, &[b"1"]).remove(0);
        assert!(!printed(&completion).contains("told"), "{level}: {}", printed(&completion));
        if place.sandbox.is_some() && isolation(level).level() == Level::Full {
            let seen = printed(&completion);
            assert!(seen.contains("./bin/tool") && !seen.contains("./state"), "{level}: {seen}");
        }
    }
}

fn a_process_that_forked_twice_ends_with_its_run() {
    if isolation(Level::Full).level() < Level::Full {
        // The kernel lists the processes of a sandbox in its cgroup.
        return;
    }
    // It tells its pid through a file, which is there before the run ends. One that has ended may not have been reaped yet.
    let daemon = r"def lives(pid):
  try: return open(f'/proc/{pid}/stat').read().rsplit(')')[1].split()[0] != 'Z'
  except OSError: return False
if os.path.exists('/tmp/daemon'):
  ctx.append('out', [lives(open('/tmp/daemon').read())])
else:
  child = os.fork()
  if child == 0:
    os.setsid()
    if os.fork() == 0:
      if record.text() == '2' and os.fork() != 0: time.sleep(600)
      with open('/tmp/d', 'w') as f: f.write(str(os.getpid()))
      os.rename('/tmp/d', '/tmp/daemon')
      time.sleep(600)
    os._exit(0)
  os.waitpid(child, 0)
  while not os.path.exists('/tmp/daemon'): time.sleep(0.01)
  ctx.append('out', [True])";
    for (first, open) in [(b"1", false), (b"2", false), (b"1", true)] {
        let isolation = isolation(Level::Full);
        let isolation = if open { isolation.without(Defence::Orphans) } else { isolation };
        let (mut executor, _place) = python(isolation, false, daemon);
        let appended = |record: &[u8], executor: &mut PythonExecutor| {
            let (completion, appended) = run(executor, &[record]).remove(0);
            assert_eq!(completion.outcome, Outcome::Done, "{}", printed(&completion));
            String::from_utf8(appended[0].1.clone()).unwrap()
        };
        assert_eq!(appended(first, &mut executor), "[true]");
        assert_eq!(
            appended(b"3", &mut executor),
            format!("[{open}]"),
            "whether a process outlives the run that left it"
        );
        // The worker is still there.
        assert_eq!(appended(b"4", &mut executor), format!("[{open}]"));
    }
}

/// What a function tries, in Python: `attack()` returns what it got, or raises.
struct Attack {
    name: &'static str,
    body: &'static str,
    /// What makes it fail; each alone may do.
    defences: &'static [Defence],
    /// The weakest level at which it fails.
    from: Level,
}

/// Runs as `attack()`; `SECRET`, `PID` and `PORT` are files, a process and a server of the host's.
const ATTACKS: &[Attack] = &[
    Attack {
        name: "read a file of the host's user",
        body: "return open(BASE + SECRET).read()",
        defences: &[Defence::Root, Defence::Landlock],
        from: Level::Partial,
    },
    Attack {
        name: "list the code of other functions",
        body: "return os.listdir(BASE + os.path.dirname(SECRET))",
        defences: &[Defence::Root, Defence::Landlock],
        from: Level::Partial,
    },
    Attack {
        name: "change its own code",
        body: "open(CODE + '/functions.py', 'a').write('# changed\\n'); return 1",
        defences: &[],
        from: Level::Partial,
    },
    Attack {
        name: "connect to the host",
        body: "s = socket.create_connection(('127.0.0.1', PORT), 5); return 1",
        defences: &[Defence::Network, Defence::Syscalls],
        from: Level::Partial,
    },
    Attack {
        name: "open a netlink socket",
        body: "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).fileno()",
        defences: &[Defence::Syscalls],
        from: Level::Partial,
    },
    Attack {
        name: "see a process of the host",
        body: "os.kill(PID, 0); return 1",
        defences: &[Defence::Processes, Defence::Landlock, Defence::Identity],
        from: Level::Partial,
    },
    Attack {
        name: "trace a process",
        body: "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n\
               r = c.syscall(101, 0, 0, 0, 0)\nassert r == 0, os.strerror(ctypes.get_errno())\nreturn 1",
        defences: &[Defence::Syscalls],
        from: Level::Partial,
    },
    Attack {
        name: "make a user namespace",
        body: "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n\
               r = c.unshare(0x10000000)\nassert r == 0, os.strerror(ctypes.get_errno())\nreturn 1",
        defences: &[Defence::Syscalls],
        from: Level::Partial,
    },
    Attack {
        name: "fork without end",
        body: "made = []\ntry:\n  for i in range(700):\n    pid = os.fork()\n    if pid == 0: time.sleep(600)\n    made.append(pid)\n\
               finally:\n  for pid in made: os.kill(pid, 9)\n  for pid in made: os.waitpid(pid, 0)\nreturn len(made)",
        defences: &[Defence::ProcessLimit],
        from: Level::Full,
    },
    Attack {
        name: "fill the temporary directory",
        body: "with open('/tmp/x', 'wb') as f:\n  for i in range(100): f.write(bytes(1 << 20))\nos.remove('/tmp/x')\nreturn 1",
        defences: &[Defence::Temporary],
        from: Level::Full,
    },
    Attack {
        name: "use shared memory without end",
        body: "import mmap\npid = os.fork()\nif pid == 0:\n  m = mmap.mmap(-1, 1 << 30)\n  for i in range(0, 1 << 30, 4096): m[i] = 1\n  os._exit(0)\n\
               assert os.waitpid(pid, 0)[1] == 0\nreturn 1",
        defences: &[Defence::Memory],
        from: Level::Full,
    },
    Attack {
        name: "write into a terminal's input",
        body: "import fcntl, termios\ntry: fcntl.ioctl(0, termios.TIOCSTI, b'x')\nexcept OSError as e:\n  if e.errno == 38: raise\nreturn 1",
        defences: &[Defence::Syscalls],
        from: Level::Partial,
    },
    Attack {
        name: "reach a root directory below its own",
        body: "roots = [line for line in open('/proc/self/mountinfo') if line.split()[4] == '/']\n\
               assert len(roots) > 1 or 'home' in os.listdir('/..') or '/old' in str(roots), roots\nreturn roots",
        defences: &[],
        from: Level::Full,
    },
    Attack {
        name: "write outside its own directories",
        body: "for d in ('/', '/usr', '/etc', '/dev', '/function', CODE):\n  try: open(d + '/made', 'w')\n  except OSError: pass\n  else: return d\n\
               raise Exception('nowhere')",
        defences: &[],
        from: Level::Partial,
    },
    Attack {
        name: "keep a descriptor that is not its own",
        body: "own = {os.readlink('/proc/self/fd/%s' % fd).split(':')[0] for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd)}\n\
               more = {o for o in own if not o.startswith(('/dev/null', 'pipe', 'socket', '/proc/'))}\nassert more, own\nreturn more",
        defences: &[],
        from: Level::Full,
    },
    Attack {
        name: "read what the supervisor has in memory",
        body: "return open('/proc/%d/environ' % (1 if os.path.exists('/function') else os.getppid()), 'rb').read(1) or 1",
        defences: &[],
        from: Level::Full,
    },
];

/// A file, a process and a server that are no function's.
struct Others {
    dir: TempDir,
    process: Child,
    server: TcpListener,
}

impl Others {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("secret"), "told").unwrap();
        let process = Command::new("sleep").arg("600").spawn().unwrap();
        Self { dir, process, server: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    /// What the attack got, or why not.
    fn attack(&self, isolation: Isolation, attack: &Attack) -> Result<String, String> {
        let indented: String = attack.body.lines().map(|line| format!("  {line}\n")).collect();
        let body = format!(
            "SECRET, PID, PORT = {:?}, {}, {}\n\
             BASE = '/old' if os.path.exists('/old') else ''\n\
             CODE = '/function' if os.path.exists('/function') else os.path.dirname(__file__)\n\
             def attack():\n{indented}\
             try: ctx.append('got', str(attack()))\n\
             except BaseException as e: ctx.append('not', repr(e))",
            self.dir.path().join("secret"),
            self.process.id(),
            self.server.local_addr().unwrap().port(),
        );
        let (mut executor, _place) = python(isolation, false, &body);
        let (completion, appended) = run(&mut executor, &[b""]).remove(0);
        match appended.into_iter().next() {
            Some((log, said)) if log == "got" => Ok(String::from_utf8_lossy(&said).into_owned()),
            Some((_, said)) => Err(String::from_utf8_lossy(&said).into_owned()),
            // What bounds memory in all may end a process that asks for more.
            None if attack.defences == [Defence::Memory] => Err(failed(&completion).1),
            None => panic!("the function of '{}' said nothing: {:?}", attack.name, completion.outcome),
        }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn attacks_fail() {
    let others = Others::new();
    for level in [Level::Partial, Level::Full] {
        let found = isolation(level);
        // Without a cgroup of the host's own only memory in all is not bounded.
        let uncounted =
            level == Level::Full && found.shortcomings().iter().all(|missing| missing.remedy.contains("Delegate"));
        let applies = |attack: &Attack| {
            let counts = attack.defences == [Defence::Memory];
            attack.from <= found.level() || (uncounted && !counts)
        };
        eprintln!("{level}: {}", found.summary());
        let harmless =
            Attack { name: "work", body: "return len(os.listdir('.'))", defences: &[], from: Level::Partial };
        assert_eq!(others.attack(isolation(level), &harmless).as_deref(), Ok("2"), "at level {level} nothing works");
        for attack in ATTACKS.iter().filter(|attack| applies(attack)) {
            if let Ok(got) = others.attack(isolation(level), attack) {
                panic!("at level {level}, a function could {}: {got}", attack.name);
            }
        }
    }
}

fn attacks_succeed_without_their_defence() {
    let others = Others::new();
    for attack in ATTACKS.iter().filter(|attack| !attack.defences.is_empty()) {
        let open = attack.defences.iter().fold(isolation(Level::Full), |open, defence| open.without(*defence));
        if let Err(error) = others.attack(open, attack) {
            panic!("without {:?} a function still could not {}: {error}", attack.defences, attack.name);
        }
    }
}

/// Runs the test of attacks again, by this command with the program behind it; what it says.
fn again(command: &mut Command) -> String {
    // Where the other user can read and write.
    let dir = TempDir::new_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("sandbox");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let output =
        command.arg(&program).args(["--exact", "attacks_fail", "--nocapture"]).env("TMPDIR", dir.path()).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    said
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn attacks_fail_where_the_host_is_not_root() {
    if !is_root() {
        // Then the other test was it.
        return;
    }
    let said = again(Command::new("setpriv").args(["--reuid=65533", "--regid=65533", "--clear-groups", "--"]));
    assert!(said.contains("full: partial (cannot make '/sys/fs/cgroup") || said.contains("full: full"), "{said}");
}

fn attacks_fail_where_there_are_no_user_namespaces() {
    let without = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"";
    let said = again(Command::new("unshare").args(["--user", "--map-root-user", "sh", "-c", without, "sh"]));
    assert!(said.contains("full: partial (cannot make a sandbox: "), "{said}");
}

/// The supervisors that this process started, but for those of other tests in it.
fn supervisors() -> Vec<u32> {
    let is_ours = |pid: &u32| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let parent = read("stat").rsplit_once(')').and_then(|(_, rest)| rest.split(' ').nth(2)?.parse().ok());
        parent == Some(std::process::id()) && read("cmdline").contains(SUPERVISOR)
    };
    let names = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    names.filter(is_ours).collect()
}

fn a_sandbox_that_ended_is_made_anew() {
    // In a process of its own, so that the supervisors are those of this test.
    if std::env::var_os("ALONE").is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "a_sandbox_that_ended_is_made_anew_and_one_that_is_dropped_is_gone";
        let output = command.args(["--exact", name, "--nocapture"]).env("ALONE", "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
        return;
    }
    let (mut executor, place) = python(isolation(Level::Full), false, "ctx.append('out', [os.getpid()])");
    assert_eq!(run(&mut executor, &[b""]).remove(0).0.outcome, Outcome::Done);
    let [first] = supervisors()[..] else { panic!("one function, {} supervisors", supervisors().len()) };
    Command::new("kill").args(["-9", &first.to_string()]).status().unwrap();
    common::ends(&first.to_string());
    // The worker ends a moment after the supervisor, and a run that was sent to it meanwhile may end well or fail.
    let start = Instant::now();
    while supervisors().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(120), "the function has no sandbox any more");
        run(&mut executor, &[b""]);
    }
    assert_eq!(run(&mut executor, &[b""]).remove(0).0.outcome, Outcome::Done);
    let [second] = supervisors()[..] else { panic!("one function, {} supervisors", supervisors().len()) };
    assert_ne!(first, second);
    drop((executor, place));
    assert_eq!(supervisors(), Vec::<u32>::new(), "a sandbox that nobody has goes on");
}

fn only_who_is_granted_it_has_the_network() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let body = format!("socket.create_connection(('127.0.0.1', {port}), 5)\nctx.append('out', 'connected')");
    for level in [Level::Partial, Level::Full] {
        for network in [false, true] {
            let (mut executor, _place) = python(isolation(level), network, &body);
            let (completion, appended) = run(&mut executor, &[b""]).remove(0);
            assert_eq!(!appended.is_empty(), network, "{level}: {:?}", completion.outcome);
        }
        // Sockets of others' programs are in the network's namespace by name.
        let named = "socket.socket(socket.AF_UNIX).connect('\\0nobody')";
        let (mut executor, _place) = python(isolation(level), true, named);
        let (_, detail) = failed(&run(&mut executor, &[b""]).remove(0).0);
        assert!(detail.contains("Function not implemented"), "{level}: {detail}");
    }
}
