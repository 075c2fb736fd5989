//! An owner, a replica, and a line between them that can be cut.

use millrace_tests::{Host, Place, Port, eventually};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// A namespace with a host that can end and start again under the same address.
pub struct Site {
    pub place: Place,
    pub port: Port,
    host: Option<Host>,
    name: &'static str,
}

impl Site {
    pub fn new(name: &'static str) -> Self {
        Self::at(Place::new(), name)
    }

    pub fn at(place: Place, name: &'static str) -> Self {
        let mut site = Self { place, port: Port::reserve(), host: None, name };
        site.start();
        site
    }

    pub fn start(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        let args = ["--json", "serve", "--name", self.name, "--listen", &listen, "--drain", "100s"];
        self.host = Some(Host::start(self.place.command(args)));
    }

    /// Kills its host.
    pub fn kill(&mut self) {
        if let Some(host) = self.host.take() {
            host.signal("KILL");
            host.ended();
        }
    }

    /// The address of the namespace, and of something in it.
    pub fn address(&self, path: &str) -> String {
        format!("mr://127.0.0.1:{}/{}{path}", self.port, self.name)
    }

    /// The value of a key.
    pub fn get(&self, table: &str, key: &str) -> Option<Value> {
        let ended = self.place.run(["--json", "table", "get", table, key]);
        (ended.code == 0).then(|| ended.object())
    }

    /// Changes a key of a table; returns the token.
    #[track_caller]
    pub fn put(&self, table: &str, key: &str, value: &str) -> String {
        let put = self.place.run(["--json", "table", "put", table, key, value]).ok().object();
        put["token"].as_str().expect("a token").to_owned()
    }

    /// Everything in a table: key, version, value.
    pub fn all(&self, table: &str) -> Vec<(String, u64, Value)> {
        let rows = self.place.run(["--json", "table", "scan", table]).ok().objects();
        let row = |row: Value| {
            let (key, version) = (row["key"].as_str().unwrap().to_owned(), row["version"].as_u64().unwrap());
            (key, version, row["data"].clone())
        };
        rows.into_iter().map(row).collect()
    }

    /// What `table ls` says of a replica.
    pub fn replica(&self, table: &str) -> Value {
        // The host that drives it knows more than the files.
        let rows = self.place.run(["--json", "-n", &self.address(""), "table", "ls"]).ok().objects();
        rows.into_iter().find(|row| row["table"] == *table).map_or(Value::Null, |row| row["replica"].clone())
    }

    #[track_caller]
    pub fn follows(&self, table: &str) {
        eventually("the replica follows", || {
            let replica = self.replica(table);
            replica["stage"] == "following" && replica["connected"] == true && replica["records"] == 0
        });
    }
}

/// A port that leads to another one, until it is cut.
pub struct Line {
    pub port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Line {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Self { port: listener.local_addr().unwrap().port(), open: Arc::default() };
        let open = line.open.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let mut kept = open.lock().unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || carry(from, to));
                }
                kept.extend([near, far]);
            }
        });
        line
    }

    /// Ends every connection over it, wherever a message just is.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
