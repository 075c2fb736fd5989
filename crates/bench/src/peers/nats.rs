//! NATS: publishing in memory, and JetStream, which stores the records.

use super::{Server, patiently};
use crate::{Outcome, measure::Samples, rows::PAYLOAD};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    time::{Duration, Instant},
};

/// The note of a row that is measured without NATS because it is not installed.
pub const INSTALL: &str =
    "nats-server 2.10 or newer is not installed (`make bench` builds it if Go is installed) and was not measured.";

/// A NATS server of our own on the loopback interface.
pub struct Nats {
    _servers: Vec<Server>,
    port: u16,
}

/// A connection to a server.
pub struct Connection {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
    line: String,
    /// The subject of answers to this connection, which no other connection has.
    inbox: String,
}

impl Nats {
    pub fn start(dir: &Path) -> Outcome<Option<Self>> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let (config, store) = (dir.join("nats.conf"), dir.join("jetstream"));
        fs::write(
            &config,
            format!(
                "listen: 127.0.0.1:{port}\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
                store.display()
            ),
        )?;
        let arguments = ["-c".to_owned(), config.display().to_string()];
        let Some(server) = Server::start("nats-server", &arguments, dir)? else { return Ok(None) };
        let nats = Self { _servers: vec![server], port };
        // An older version does not know `sync_interval: always`, and exits.
        Ok(patiently(|| nats.connect().map(drop)).is_ok().then_some(nats))
    }

    /// Three servers of a cluster; clients connect to the first one.
    pub fn start_three(dir: &Path) -> Outcome<Option<Self>> {
        let free = || Outcome::Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port());
        let ports = (0..3).map(|_| Ok((free()?, free()?))).collect::<Outcome<Vec<_>>>()?;
        let routes: Vec<String> = ports.iter().map(|(_, route)| format!("nats://127.0.0.1:{route}")).collect();
        let mut servers = Vec::new();
        for (number, (port, route)) in ports.iter().enumerate() {
            let (config, store) = (dir.join(format!("nats-{number}.conf")), dir.join(format!("jetstream-{number}")));
            let text = format!(
                "server_name: n{number}\nlisten: 127.0.0.1:{port}\n\
                 jetstream {{ store_dir: \"{}\", sync_interval: always }}\n\
                 cluster {{ name: bench, listen: 127.0.0.1:{route}, routes: [{}] }}\n",
                store.display(),
                routes.join(", ")
            );
            fs::write(&config, text)?;
            let arguments = ["-c".to_owned(), config.display().to_string()];
            let Some(server) = Server::start("nats-server", &arguments, dir)? else { return Ok(None) };
            servers.push(server);
        }
        let nats = Self { _servers: servers, port: ports[0].0 };
        Ok(patiently(|| nats.connect().map(drop)).is_ok().then_some(nats))
    }

    pub fn connect(&self) -> Outcome<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let answers = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let inbox = format!("inbox{}", stream.local_addr()?.port());
        let mut connection = Connection { stream, answers, line: String::new(), inbox };
        connection.expect("INFO")?;
        connection.stream.write_all(b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n")?;
        connection.expect("PONG")?;
        Ok(connection)
    }

    /// Publishes, and waits until the server has received the record; nothing is stored.
    pub fn publish_and_flush(&self, count: u64, pace: Duration, samples: &mut Samples) -> Outcome<()> {
        let mut connection = self.connect()?;
        let mut request = publication("bench", None, &PAYLOAD);
        request.extend_from_slice(b"PING\r\n");
        for _ in 0..count {
            std::thread::sleep(pace);
            let start = Instant::now();
            connection.stream.write_all(&request)?;
            connection.expect("PONG")?;
            samples.record(start.elapsed());
        }
        Ok(())
    }

    /// Creates a stream that keeps the last 10 000 records in `memory` or `file`.
    pub fn make_stream(&self, storage: &str) -> Outcome<()> {
        self.make_stream_with(storage, 1)
    }

    /// The same on this number of servers, once they have connected to each other.
    pub fn make_stream_of(&self, storage: &str, replicas: usize) -> Outcome<()> {
        patiently(|| self.make_stream_with(storage, replicas))
    }

    fn make_stream_with(&self, storage: &str, replicas: usize) -> Outcome<()> {
        let mut connection = self.connect()?;
        // Servers that have not connected to each other yet do not answer.
        connection.stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        connection.listen()?;
        let config = format!(
            r#"{{"name":"{storage}","subjects":["{storage}.bench"],"storage":"{storage}","max_msgs":10000,"discard":"old","num_replicas":{replicas}}}"#
        );
        let subject = format!("$JS.API.STREAM.CREATE.{storage}");
        connection.stream.write_all(&publication(&subject, Some(&connection.inbox), config.as_bytes()))?;
        let answer = connection.message()?;
        if answer.contains("\"error\"") { Err(format!("NATS answered {answer}").into()) } else { Ok(()) }
    }
}

/// The bytes of a publication.
pub fn publication(subject: &str, reply: Option<&str>, payload: &[u8]) -> Vec<u8> {
    let reply = reply.map_or(String::new(), |reply| format!("{reply} "));
    let mut bytes = format!("PUB {subject} {reply}{}\r\n", payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

impl Connection {
    /// Reads the next message to its inbox.
    pub fn listen(&mut self) -> Outcome<()> {
        Ok(self.stream.write_all(format!("SUB {} 1\r\n", self.inbox).as_bytes())?)
    }

    fn expect(&mut self, word: &str) -> Outcome<()> {
        loop {
            self.line.clear();
            self.answers.read_line(&mut self.line)?;
            match self.line.trim_end() {
                line if line.starts_with(word) => return Ok(()),
                // The server sends PING from time to time and closes connections that do not answer.
                "PING" => self.stream.write_all(b"PONG\r\n")?,
                line => return Err(format!("NATS answered '{line}'").into()),
            }
        }
    }

    /// The next message.
    fn message(&mut self) -> Outcome<String> {
        self.expect("MSG")?;
        let length: usize = self.line.trim_end().rsplit(' ').next().unwrap_or_default().parse()?;
        let mut payload = vec![0; length + 2];
        self.answers.read_exact(&mut payload)?;
        Ok(String::from_utf8_lossy(&payload).trim_end().to_owned())
    }

    /// Publishes `count` records, at most `window` of them unacknowledged.
    pub fn publish(&mut self, storage: &str, payload: &[u8], count: u64, window: u64) -> Outcome<()> {
        let one = publication(&format!("{storage}.bench"), Some(&self.inbox), payload);
        let (mut sent, mut acknowledged) = (0, 0);
        let mut burst = Vec::new();
        while acknowledged < count {
            burst.clear();
            while sent < count && sent - acknowledged < window {
                burst.extend_from_slice(&one);
                sent += 1;
            }
            self.stream.write_all(&burst)?;
            loop {
                let answer = self.message()?;
                if !answer.contains("\"seq\"") {
                    return Err(format!("NATS answered {answer}").into());
                }
                acknowledged += 1;
                // Messages that have arrived are read before more are sent, as in a client with a queue.
                if self.answers.buffer().is_empty() || acknowledged == count {
                    break;
                }
            }
        }
        Ok(())
    }
}
