//! ZooKeeper: one server, and the double barrier of its recipes.

use super::{Server, patiently};
use crate::Outcome;
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    time::Duration,
};

/// For the note of a row that was measured without ZooKeeper: how to install it.
pub const INSTALL: &str = "ZooKeeper is not installed (apt-get install zookeeper) and was not measured.";

/// The scripts that start it: that of its own distribution, and Debian's.
const PROGRAMS: [&str; 2] = ["zkServer.sh", "/usr/share/zookeeper/bin/zkServer.sh"];
/// Waiting clients send nothing, so a session's timeout has to be longer than a row takes.
const SESSION_MS: i32 = 600_000;
const CREATE: i32 = 1;
const EXISTS: i32 = 3;
const CHILDREN: i32 = 8;
/// The number of a message that answers no request: an event.
const EVENT: i32 = -1;
const NO_NODE: i32 = -101;
const EPHEMERAL: i32 = 1;

/// A ZooKeeper of our own on the loopback interface.
pub struct ZooKeeper {
    _server: Server,
    port: u16,
}

impl ZooKeeper {
    pub fn start(dir: &Path) -> Outcome<Option<Self>> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let config = dir.join("zoo.cfg");
        let settings = format!(
            "tickTime=2000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             maxSessionTimeout={SESSION_MS}\n4lw.commands.whitelist=wchs\n",
            dir.join("zookeeper").display()
        );
        fs::write(&config, settings)?;
        let arguments = ["start-foreground".to_owned(), config.display().to_string()];
        let mut found = None;
        for program in PROGRAMS {
            if found.is_none() {
                found = Server::start(program, &arguments, dir)?;
            }
        }
        let Some(server) = found else { return Ok(None) };
        let zookeeper = Self { _server: server, port };
        patiently(|| zookeeper.asker())?;
        Ok(Some(zookeeper))
    }

    /// A session of its own.
    pub fn asker(&self) -> Outcome<Asker> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut asker = Asker { stream, last: 0 };
        let mut hello = Body::default();
        hello.int(0).long(0).int(SESSION_MS).long(0).bytes(&[0; 16]).0.push(0);
        asker.send(&hello)?;
        asker.receive()?;
        Ok(asker)
    }

    /// How many watches are set.
    pub fn watches(&self) -> Outcome<usize> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(b"wchs")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        let total = told.lines().find_map(|line| line.strip_prefix("Total watches:"));
        Ok(total.ok_or_else(|| format!("ZooKeeper answered {told}"))?.trim().parse()?)
    }
}

/// A message without its length.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(value.len() as i32);
        self.0.extend_from_slice(value);
        self
    }
}

/// A session, with one request at a time.
pub struct Asker {
    stream: TcpStream,
    last: i32,
}

impl Asker {
    fn send(&mut self, body: &Body) -> Outcome<()> {
        let mut whole = (body.0.len() as u32).to_be_bytes().to_vec();
        whole.extend_from_slice(&body.0);
        Ok(self.stream.write_all(&whole)?)
    }

    fn receive(&mut self) -> Outcome<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut body)?;
        Ok(body)
    }

    /// Makes a request; returns the number of the error, and the bytes after it.
    fn ask(&mut self, kind: i32, fill: impl FnOnce(&mut Body)) -> Outcome<(i32, Vec<u8>)> {
        self.last += 1;
        let mut body = Body::default();
        body.int(self.last).int(kind);
        fill(&mut body);
        self.send(&body)?;
        let answer = self.receive()?;
        let number = int_at(&answer, 0)?;
        if number != self.last {
            return Err(format!("ZooKeeper answered {number} instead of {}", self.last).into());
        }
        Ok((int_at(&answer, 12)?, answer[16..].to_vec()))
    }

    /// Creates a node, which is removed with the session if it is `ephemeral`.
    pub fn create(&mut self, path: &str, ephemeral: bool) -> Outcome<()> {
        let (error, _) = self.ask(CREATE, |body| {
            body.bytes(path.as_bytes()).bytes(&[]).int(1).int(31).bytes(b"world").bytes(b"anyone");
            body.int(if ephemeral { EPHEMERAL } else { 0 });
        })?;
        if error == 0 { Ok(()) } else { Err(format!("ZooKeeper refused to create {path}: {error}").into()) }
    }

    /// How many children a node has.
    pub fn children(&mut self, path: &str) -> Outcome<usize> {
        let (error, answer) = self.ask(CHILDREN, |body| body.bytes(path.as_bytes()).0.push(0))?;
        if error == 0 { Ok(int_at(&answer, 0)? as usize) } else { Err(format!("ZooKeeper: {error}").into()) }
    }

    /// Waits until a node exists.
    pub fn wait_for(&mut self, path: &str) -> Outcome<()> {
        match self.ask(EXISTS, |body| body.bytes(path.as_bytes()).0.push(1))? {
            (0, _) => return Ok(()),
            (NO_NODE, _) => {}
            (error, _) => return Err(format!("ZooKeeper: {error}").into()),
        }
        let event = self.receive()?;
        if int_at(&event, 0)? == EVENT { Ok(()) } else { Err("ZooKeeper sent no event".into()) }
    }
}

fn int_at(bytes: &[u8], at: usize) -> Outcome<i32> {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk()).ok_or("ZooKeeper's answer is too short")?;
    Ok(i32::from_be_bytes(*bytes))
}
