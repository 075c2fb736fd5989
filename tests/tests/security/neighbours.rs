//! Other users of the same machine. As root the test plays two of them; another user cannot, and has nothing to show here.

use millrace_tests::{
    Ended, Host, Place, Port, binary, end,
    raw::{Client, LONG, framed, hello},
};
use millrace_wire::protocol::PREFACE;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// A user whom nobody else uses.
pub const OTHER: &str = "54321";

pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("not run: only root can be two users");
    }
    is_root
}

/// A command of the other user.
pub fn other(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", OTHER, "--regid", OTHER, "--clear-groups"]).arg(program.as_ref());
    command
}

/// Lets everybody see what is in a directory that a test made, apart from what has a mode of its own.
fn public(place: &Place) -> PathBuf {
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    place.path().to_owned()
}

/// The program, where the other user may run it.
fn program(place: &Place) -> PathBuf {
    let mut command = other(binary());
    command.arg("--version");
    if end(command, b"").code == 0 {
        return binary().to_owned();
    }
    let copy = public(place).join("millrace");
    fs::copy(binary(), &copy).unwrap();
    copy
}

/// A host at a loopback address, in clear.
pub fn local(place: Place) -> (Place, Host) {
    place.run(["log", "create", "raw"]).ok();
    public(&place);
    let host = place.serve_tcp(["--name", "hub"]);
    (place, host)
}

/// What a host answers to these bytes from a command's user.
fn says(mut shell: Command, port: u16, bytes: &[u8]) -> Vec<u8> {
    shell.args(["-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port}; cat >&3; cat <&3")]);
    end(shell, bytes).stdout
}

pub fn curl(mut command: Command, more: &[&str], url: &str) -> Ended {
    command.args(["-s", "--max-time", "100", "-w", "%{http_code}"]).args(more).arg(url);
    end(command, b"")
}

#[test]
fn another_user_at_a_loopback_address_is_refused_by_wire_http_and_c() {
    if !is_root() {
        return;
    }
    let (place, host) = local(Place::new());
    let port = host.port();
    // By wire: nothing but the refusal comes, whatever namespace is asked for.
    let greeting = [&PREFACE[..], &framed(1, &hello())].concat();
    let reported = says(other("bash"), port, &greeting);
    let text = String::from_utf8_lossy(&reported).into_owned();
    assert!(text.contains("MR6166") && text.contains(&format!("user {OTHER}, who does not run this host")), "{text}");
    assert!(!text.contains("hub"), "{text}");
    assert_eq!(Client::connect(port).append(b"own"), 1);
    // By HTTP: the same without a capability, and what a capability permits with one.
    let url = format!("http://127.0.0.1:{port}/v1/namespaces/hub/logs/raw/records");
    for more in [&["-d", "x"][..], &[], &["-H", "Host: localhost"]] {
        let refused = curl(other("curl"), more, &url);
        assert!(refused.text().contains("MR6166") && refused.text().ends_with("401"), "{}", refused.text());
    }
    let listed = curl(other("curl"), &[], &format!("http://127.0.0.1:{port}/v1/namespaces"));
    assert!(!listed.text().contains("hub"), "{}", listed.text());
    assert!(curl(Command::new("curl"), &["-d", "two"], &url).text().ends_with("201"));
    let capability = place.path().join("raw.cap");
    place.run(["cap", "issue", "--append", "raw", "--out", capability.to_str().unwrap()]).ok();
    let bearer = format!("Authorization: Bearer {}", fs::read_to_string(&capability).unwrap().trim());
    assert!(curl(other("curl"), &["-H", &bearer, "-d", "three"], &url).text().ends_with("201"));
    // The token that the host left is the owner's to read, and so is the socket to use.
    for file in [format!("run/millrace/127.0.0.1:{port}"), ".millrace/socket".into()] {
        let path = place.path().join(file);
        assert!(path.exists(), "{path:?}");
        let mut cat = other("cat");
        cat.arg(&path);
        assert!(end(cat, b"").stderr.contains("Permission denied"));
    }
    // By the program and by C.
    let address = format!("mr://127.0.0.1:{port}/hub");
    let c = c_program(&place);
    let run = |mut command: Command| {
        command.args([&address, "four"]).env_remove("XDG_RUNTIME_DIR").env("HOME", "/nonexistent");
        end(command, b"")
    };
    let refused = run(other(&c));
    assert!(refused.code == 1 && refused.stderr.contains("MR6166"), "{}", refused.stderr);
    run(Command::new(&c)).ok();
    let mut append = other(program(&place));
    append
        .args(["-n", &address, "log", "append", "raw", "five"])
        .env_remove("XDG_RUNTIME_DIR")
        .env("HOME", "/nonexistent");
    end(append, b"").fails("MR6166", 1);
    assert_eq!(place.records("raw"), ["own", "two", "three", "four"]);
}

/// A program in C that appends.
fn c_program(place: &Place) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("sdk/c");
    place.write(
        "append.c",
        "#include \"millrace_client.h\"\n#include <stdio.h>\n#include <string.h>\n\
         int main(int count, char **words) {\n\
         mrc_client *client; mrc_error error; mrc_receipt receipt; (void)count;\n\
         if (mrc_open(&client, words[1], NULL, &error) < 0) { fprintf(stderr, \"%s\\n\", error.code); return 1; }\n\
         if (mrc_append(client, \"raw\", words[2], strlen(words[2]), NULL, &receipt) < 0) {\n\
         fprintf(stderr, \"%s\\n\", mrc_error_of(client)->code); return 1; }\n\
         mrc_close(client); return 0; }\n",
    );
    let sources = |dir: PathBuf| {
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|file| file.extension().is_some_and(|extension| extension == "c"))
    };
    let made = place.path().join("append");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-O1"]).arg("-I").arg(&root).arg(place.path().join("append.c"));
    cc.args(sources(root.clone())).args(sources(root.join("wire"))).arg("-o").arg(&made);
    end(cc, b"").ok();
    made
}

/// An application whose function may use the network, or not.
fn with_function(network: bool) -> String {
    format!(
        "[logs.in]\n[logs.out]\n[functions.f]\nruntime = \"oneshot\"\ncode = \"f.sh\"\ncommand = [\"./f.sh\"]\n\
         on = [\"in\"]\nnetwork = {network}\n"
    )
}

/// Where the other user works.
pub struct Theirs {
    dir: PathBuf,
    program: PathBuf,
    without: Option<String>,
}

impl Theirs {
    pub fn new(place: &Place) -> Self {
        let dir = public(place).join("theirs");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, OTHER.parse().ok(), OTHER.parse().ok()).unwrap();
        Self { dir, program: program(place), without: place.lacks().map(str::to_owned) }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = other(&self.program);
        command.args(args).current_dir(&self.dir).env_remove("MILLRACE_NAMESPACE").env("HOME", &self.dir);
        command.env("XDG_RUNTIME_DIR", self.dir.join("run")).env("XDG_STATE_HOME", self.dir.join("state"));
        if let Some(defence) = &self.without {
            command.env("MILLRACE_WITHOUT", defence);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        end(self.command(args), b"")
    }

    /// What a function with the network is told when it asks its own host, which then runs on; `None` if there are no sandboxes here.
    pub fn told_to_function(&self, port: &Port) -> Option<(String, Host)> {
        let url = format!("http://127.0.0.1:{port}/v1/namespaces/hub/logs");
        let asks = format!("printf 'out\\t%s\\n' \"$(curl -s --max-time 100 {url} | tr -d '\\n')\" >&3\n");
        fs::write(self.dir.join("f.sh"), format!("#!/bin/sh\n{asks}")).unwrap();
        fs::set_permissions(self.dir.join("f.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(self.dir.join("millrace.toml"), with_function(true)).unwrap();
        self.run(&["up"]).ok();
        let host = self.serve(port);
        if host.line_with(&["sandbox: "]).contains("sandbox: none") {
            return None;
        }
        self.run(&["log", "append", "in", "x"]).ok();
        self.run(&["run", "wait", "--idle", "--timeout", "120s"]).ok();
        Some((self.run(&["log", "get", "out"]).ok().text().to_owned(), host))
    }

    fn serve(&self, port: &Port) -> Host {
        Host::start(self.command(&["serve", "--listen", &format!("127.0.0.1:{port}"), "--name", "hub"]))
    }
}

#[test]
fn a_host_of_another_user_knows_no_root_and_gets_no_record() {
    if !is_root() {
        return;
    }
    let (place, port) = (Place::empty(), Port::reserve());
    let theirs = Theirs::new(&place);
    theirs.run(&["init", "--bare", "--segment-size", "1MiB", "--durability", "memory"]).ok();
    theirs.run(&["log", "create", "raw"]).ok();
    let _host = theirs.serve(&port);
    // Root is not the owner there.
    let mut client = Client::raw(port.number);
    client.send(1, &hello());
    assert_eq!(client.failure(), "MR6166");
    // The other user is.
    let url = format!("http://127.0.0.1:{port}/v1/namespaces/hub/logs/raw/records");
    assert!(curl(other("curl"), &["-d", "own"], &url).text().ends_with("201"));
}

#[test]
fn a_function_with_the_network_does_not_get_the_rights_of_the_hosts_user() {
    if !is_root() {
        return;
    }
    let (place, port) = (Place::empty(), Port::reserve());
    let theirs = Theirs::new(&place);
    let Some((reported, _host)) = theirs.told_to_function(&port) else {
        println!("not run: this machine gives no sandbox");
        return;
    };
    assert!(reported.contains("MR6166") && !reported.contains("\"logs\""), "{reported}");
    let url = format!("http://127.0.0.1:{port}/v1/namespaces/hub/logs");
    // Anyone who looks the same as the function is refused as well, and has the socket.
    assert!(curl(other("curl"), &[], &url).text().contains("MR6166"));
    let socket = theirs.dir.join(".millrace/socket");
    let more = ["--unix-socket", socket.to_str().unwrap()];
    let reported = curl(other("curl"), &more, "http://localhost/v1/namespaces/hub/logs");
    assert!(reported.text().contains("\"logs\""), "{}", reported.text());
    // Without such a function the address knows its owner.
    place.write("theirs/millrace.toml", &with_function(false));
    theirs.run(&["up"]).ok();
    millrace_tests::eventually("the owner is known again", || {
        curl(other("curl"), &[], &url).text().contains("\"logs\"")
    });
}

/// A command of root, which works in a directory below one of the other user.
fn below_theirs(place: &Place, args: &[&str]) -> Command {
    let mut command = place.command(args);
    command.current_dir(place.path().join("theirs/below"));
    command
}

/// A directory of the other user with an application, in which root has a directory.
fn with_application_of_other(place: &Place) -> PathBuf {
    let theirs = public(place).join("theirs");
    fs::create_dir_all(theirs.join("below")).unwrap();
    place.write("theirs/millrace.toml", "[logs.stolen]\n");
    for path in [&theirs, &theirs.join("millrace.toml")] {
        std::os::unix::fs::chown(path, OTHER.parse().ok(), OTHER.parse().ok()).unwrap();
    }
    theirs
}

/// Whether root applies the application of another user by working below it.
pub fn applies_what_it_finds(place: &Place) -> bool {
    let theirs = with_application_of_other(place);
    end(below_theirs(place, &["up"]), b"");
    theirs.join(".millrace").exists()
}

#[test]
fn an_application_of_another_user_is_refused_unless_it_is_named_or_trusted() {
    if !is_root() {
        return;
    }
    let place = Place::empty();
    let theirs = with_application_of_other(&place);
    for args in [
        &["up"][..],
        &["up", "--dry-run"],
        &["dev"],
        &["down"],
        &["log", "append", "stolen", "x"],
        &["context", "show"],
    ] {
        let refused = end(below_theirs(&place, args), b"").fails("MR4032", 1);
        assert!(refused.stderr.contains(&format!("belongs to user {OTHER}")), "{}", refused.stderr);
    }
    assert!(!theirs.join(".millrace").exists());
    // Root's files count for everybody, and those of the user who called sudo for root.
    let mut sudo = below_theirs(&place, &["up", "--dry-run"]);
    sudo.env("SUDO_UID", OTHER);
    end(sudo, b"").ok();
    // Each of the remedies.
    end(below_theirs(&place, &["up", "--file", "../millrace.toml"]), b"").ok();
    end(below_theirs(&place, &["-n", "../.millrace", "log", "append", "stolen", "x"]), b"").ok();
    let refused = end(below_theirs(&place, &["log", "ls"]), b"").fails("MR4032", 1);
    let remedy = refused.stderr.lines().find_map(|line| line.split_once("directory: ")).expect("a line to type").1;
    let mut trusting = Command::new("sh");
    trusting.args(["-c", &format!("{remedy}; \"$0\" log ls")]).arg(binary()).current_dir(theirs.join("below"));
    assert!(end(trusting, b"").ok().text().contains("stolen"));
    // The directory of a namespace, and the file of contexts.
    let place = Place::new();
    let owned_by = |path: &Path| std::os::unix::fs::chown(path, OTHER.parse().ok(), None).unwrap();
    owned_by(&place.namespace());
    place.run(["log", "ls"]).fails("MR4032", 1);
    place.run(["init", "--bare"]).fails("MR4032", 1);
    let place = Place::empty();
    place.write("config/millrace/contexts.toml", "current = \"x\"\n[contexts.x]\naddress = \"unix:/nowhere\"\n");
    owned_by(&place.path().join("config/millrace/contexts.toml"));
    place.run(["log", "ls"]).fails("MR4032", 1);
}

#[test]
fn an_application_that_everybody_can_change_is_refused() {
    let place = Place::empty();
    place.write("millrace.toml", "[logs.in]\n");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    place.run(["up"]).fails("MR4032", 1);
    place.run(["up", "--file", "millrace.toml"]).ok();
}

/// A connection of the user `of` from this port of 127.0.0.1, or from any if it is 0, which a later connection may use again.
fn from_port(of: u32, port: u16, to: u16) -> TcpStream {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    // To the kernel, this user made the socket.
    rustix::fs::fchown(&socket, Some(rustix::fs::Uid::from_raw(of)), None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    connect(&socket, &SocketAddr::from(([127, 0, 0, 1], to))).unwrap();
    socket.into()
}

/// The records of the log after another user has sent an append and reset its connection, and the host's user has connected from the same
/// port before the host looked at either.
pub fn appended_by_a_connection_that_was_reset(place: Place) -> Vec<String> {
    let (place, host) = local(place);
    let port = host.port();
    host.signal("STOP");
    let mut first = from_port(OTHER.parse().unwrap(), 0, port);
    let request =
        "POST /v1/namespaces/hub/logs/raw/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\nstolenG";
    first.write_all(request.as_bytes()).unwrap();
    let again = first.local_addr().unwrap().port();
    sockopt::set_socket_linger(&first, Some(Duration::ZERO)).unwrap();
    drop(first);
    let owners = from_port(0, again, port);
    host.signal("CONT");
    // Both were accepted, and the first has ended, when only the owner's and the one that asks are open.
    let url = format!("http://127.0.0.1:{port}/metrics");
    millrace_tests::eventually("the first connection has ended", || {
        let metrics = curl(Command::new("curl"), &[], &url).text().to_owned();
        metrics.lines().any(|line| line == "millrace_connections 2")
    });
    drop(owners);
    place.records("raw")
}

#[test]
fn the_owner_does_not_vouch_for_a_connection_that_had_the_same_port_before() {
    if is_root() {
        assert_eq!(appended_by_a_connection_that_was_reset(Place::new()), [""; 0]);
    }
}

/// Takes one connection for the user `of`, answers its greeting with `welcome`, and returns what it is told after that.
fn squat(listener: &TcpListener, of: u32, welcome: &[u8]) -> Vec<u8> {
    let (mut stream, _) = listener.accept().unwrap();
    // To the kernel, this socket is from now on one that the other user made.
    rustix::fs::fchown(&stream, Some(rustix::fs::Uid::from_raw(of)), None).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut bytes = [0; 4096];
    assert!(stream.read(&mut bytes).unwrap() > 0, "it greets");
    stream.write_all(welcome).unwrap();
    let reported = stream.read(&mut bytes).unwrap_or(0);
    bytes[..reported].to_vec()
}

/// What a program of this user is told that took the port of a host before it, by a command of this place.
pub fn told_to_squatter(place: &Place, user: &str) -> (Vec<u8>, Ended) {
    told_by(user, |address| place.command(["-n", address, "log", "append", "raw", "secret"]))
}

fn told_by(user: &str, command: impl FnOnce(&str) -> Command) -> (Vec<u8>, Ended) {
    let (theirs, host) = local(Place::new());
    // What a host answers to a greeting, for somebody to say after it.
    let welcome = {
        let mut client = Client::raw(host.port());
        client.send(1, &hello());
        client.next_bytes()
    };
    let port = host.port();
    drop((host, theirs));
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let address = format!("mr://127.0.0.1:{port}/hub");
    let command = command(&address);
    let asks = thread::spawn(move || end(command, b""));
    let reported = squat(&listener, user.parse().unwrap(), &welcome);
    (reported, asks.join().unwrap())
}

#[test]
fn a_process_that_took_the_hosts_port_gets_no_record() {
    if !is_root() {
        return;
    }
    let (reported, ended) = told_to_squatter(&Place::empty(), OTHER);
    assert_eq!(reported, b"", "it is told nothing more");
    ended.fails("MR6163", 1);
    // A program of this user is asked for the log, before it is told the record: nothing else kept that from the other one.
    let (reported, ended) = told_to_squatter(&Place::empty(), "0");
    assert!(reported.windows(8).any(|window| window == b"logs/raw"), "{reported:?}");
    assert_ne!(ended.code, 0);
    // The same by the client in C.
    let (place, of_c) = (Place::empty(), |c: &Path, address: &str| {
        let mut command = Command::new(c);
        command.args([address, "secret"]);
        command
    });
    let c = c_program(&place);
    let (reported, ended) = told_by(OTHER, |address| of_c(&c, address));
    assert!(reported.is_empty() && ended.code == 1 && ended.stderr.contains("MR6163"), "{reported:?}, {ended:?}");
    let (reported, _) = told_by("0", |address| of_c(&c, address));
    assert!(reported.windows(6).any(|window| window == b"secret"), "{reported:?}");
}
