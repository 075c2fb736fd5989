//! RabbitMQ: three brokers with a quorum queue, to which MQTT clients publish with quality of service 1. A publish is acknowledged once a
//! majority of the queue's replicas has it on disk.

use super::Server;
use crate::Outcome;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How to get it; for the note of a row that has to do without.
pub const INSTALL: &str = "RabbitMQ is not installed (apt-get install rabbitmq-server) and was not measured.";

/// Where Debian has its programs: those in PATH change the user.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
const BROKERS: usize = 3;
const START: Duration = Duration::from_secs(300);
/// The counters of queues are updated every few seconds.
const COUNTED: Duration = Duration::from_secs(30);
/// The length of the queue, which drops its oldest records.
const LENGTH: u64 = 10_000;
/// MQTT: the first byte of CONNECT, and of PUBLISH with quality of service 1.
const CONNECT: u8 = 0x10;
const PUBLISH: u8 = 0x32;
const CONNACK: u8 = 0x20;
const PUBACK: u8 = 0x40;

/// Three brokers of our own.
pub struct Rabbit {
    _brokers: Vec<Broker>,
    _mapper: Server,
    port: u16,
    dir: PathBuf,
    /// The port of the mapper.
    names: u16,
}

/// A broker and the processes that it starts, ended with it.
struct Broker(Child);

impl Drop for Broker {
    fn drop(&mut self) {
        // It holds nothing but scratch data.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Rabbit {
    pub fn start(dir: &Path) -> Outcome<Option<Self>> {
        let server = PathBuf::from(PROGRAMS).join("rabbitmq-server");
        let names = free_port()?;
        // The brokers find each other through it.
        let arguments = ["-address", "127.0.0.1", "-port", &names.to_string()].map(str::to_owned);
        let Some(mapper) = Server::start("epmd", &arguments, dir)? else { return Ok(None) };
        if !server.exists() {
            return Ok(None);
        }
        let cookie = dir.join(".erlang.cookie");
        fs::write(&cookie, "bench")?;
        fs::set_permissions(&cookie, fs::Permissions::from_mode(0o400))?;
        let ports = (0..BROKERS).map(|_| free_port()).collect::<Outcome<Vec<u16>>>()?;
        let mut brokers = Vec::new();
        for (number, port) in ports.iter().enumerate() {
            let path = |what: &str| dir.join(format!("{what}-{number}"));
            let mut config = format!(
                "listeners.tcp = none\nmqtt.listeners.tcp.1 = 127.0.0.1:{port}\n\
                 cluster_formation.peer_discovery_backend = classic_config\n\
                 cluster_formation.randomized_startup_delay_range.min = 0\n\
                 cluster_formation.randomized_startup_delay_range.max = 1\n"
            );
            for other in 0..BROKERS {
                config += &format!("cluster_formation.classic_config.nodes.{} = bench{other}@localhost\n", other + 1);
            }
            fs::write(path("config").with_extension("conf"), config)?;
            fs::write(path("plugins"), "[rabbitmq_mqtt].\n")?;
            let mut command = program(&server, dir, names);
            command
                .env("RABBITMQ_NODENAME", format!("bench{number}@localhost"))
                .env("RABBITMQ_DIST_PORT", free_port()?.to_string())
                .env("RABBITMQ_MNESIA_BASE", path("data"))
                .env("RABBITMQ_LOG_BASE", path("log"))
                .env("RABBITMQ_CONFIG_FILE", path("config").with_extension("conf"))
                .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
                .process_group(0);
            brokers.push(Broker(command.spawn()?));
        }
        let rabbit = Self { _brokers: brokers, _mapper: mapper, port: ports[0], dir: dir.to_owned(), names };
        rabbit.form()?;
        Ok(Some(rabbit))
    }

    /// Waits until all brokers have found each other, and makes a quorum queue for what is published to the topic `bench`.
    fn form(&self) -> Outcome<()> {
        let start = Instant::now();
        let all = "length(rabbit_nodes:all_running()).";
        while self.control(&["eval", all]).map_or(true, |running| running.trim() != BROKERS.to_string()) {
            if start.elapsed() > START {
                return Err("the brokers of RabbitMQ did not find each other".into());
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        let definitions = self.dir.join("definitions.json");
        fs::write(
            &definitions,
            r#"{"vhosts":[{"name":"/"}],
                "queues":[{"name":"bench","vhost":"/","durable":true,"auto_delete":false,
                           "arguments":{"x-queue-type":"quorum","x-quorum-initial-group-size":3,"x-max-length":LENGTH}}],
                "bindings":[{"source":"amq.topic","vhost":"/","destination":"bench","destination_type":"queue",
                             "routing_key":"bench","arguments":{}}]}"#
                .replace("LENGTH", &LENGTH.to_string()),
        )?;
        // A broker that the others see may not take definitions yet.
        loop {
            match self.control(&["import_definitions", crate::rows::text(&definitions)?]) {
                Ok(_) => break,
                Err(error) if start.elapsed() > START => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_secs(1)),
            }
        }
        self.connect("probe")?.publish(b"x", 1, 1)
    }

    /// What `rabbitmqctl` prints.
    fn control(&self, words: &[&str]) -> Outcome<String> {
        let mut command = program(&PathBuf::from(PROGRAMS).join("rabbitmqctl"), &self.dir, self.names);
        let output = command.args(["-n", "bench0@localhost"]).args(words).stdout(Stdio::piped()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(text) } else { Err(format!("rabbitmqctl {}: {text}", words.join(" ")).into()) }
    }

    /// Makes sure that the records were kept by all brokers: a record that no queue takes is acknowledged, too.
    pub fn verify(&self, published: u64) -> Outcome<()> {
        let least = published.min(LENGTH);
        let mut found = String::new();
        let start = Instant::now();
        while start.elapsed() < COUNTED {
            found = self.control(&["--quiet", "--no-table-headers", "list_queues", "type", "messages", "online"])?;
            let mut words = found.split('\t');
            let (kind, messages) = (words.next(), words.next().and_then(|messages| messages.parse::<u64>().ok()));
            let online = words.next().map_or(0, |hosts| hosts.split(',').count());
            if kind == Some("quorum") && messages.is_some_and(|messages| messages >= least) && online == BROKERS {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        Err(format!("{least} records are in no quorum queue of {BROKERS} brokers: {}", found.trim()).into())
    }

    /// A connection of a client with this name. The brokers refuse clients until they have agreed on who registers their names.
    pub fn connect(&self, client: &str) -> Outcome<Connection> {
        let start = Instant::now();
        loop {
            match self.try_connect(client) {
                Err(error) if start.elapsed() > START => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(500)),
                connected => return connected,
            }
        }
    }

    fn try_connect(&self, client: &str) -> Outcome<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let answers = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let mut connection = Connection { stream, answers };
        // MQTT 3.1.1, a clean session, no user: the broker takes its guest.
        let mut body = b"\0\x04MQTT\x04\x02\0\0".to_vec();
        body.extend((client.len() as u16).to_be_bytes());
        body.extend(client.as_bytes());
        connection.stream.write_all(&packet(CONNECT, &body))?;
        let answer = connection.take(CONNACK)?;
        if answer.get(1) == Some(&0) { Ok(connection) } else { Err(format!("RabbitMQ refused: {answer:?}").into()) }
    }
}

/// A connection to a broker.
pub struct Connection {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Connection {
    /// Publishes `count` records, at most `window` of them unacknowledged.
    pub fn publish(&mut self, payload: &[u8], count: u64, window: u64) -> Outcome<()> {
        let (mut sent, mut acknowledged) = (0, 0);
        let mut burst = Vec::new();
        while acknowledged < count {
            burst.clear();
            while sent < count && sent - acknowledged < window {
                let mut body = b"\0\x05bench".to_vec();
                // 0 numbers no packet.
                body.extend(((sent % u64::from(u16::MAX)) as u16 + 1).to_be_bytes());
                body.extend(payload);
                burst.extend(packet(PUBLISH, &body));
                sent += 1;
            }
            self.stream.write_all(&burst)?;
            loop {
                self.take(PUBACK)?;
                acknowledged += 1;
                // What has come already is taken before more is sent, as a client with a queue would.
                if self.answers.buffer().is_empty() || acknowledged == count {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The next packet, which is to be of this kind; its body.
    fn take(&mut self, kind: u8) -> Outcome<Vec<u8>> {
        if self.answers.fill_buf()?.is_empty() {
            return Err("RabbitMQ closed the connection".into());
        }
        let mut head = [0; 2];
        self.answers.read_exact(&mut head)?;
        let mut body = vec![0; head[1].into()];
        self.answers.read_exact(&mut body)?;
        if head[0] == kind { Ok(body) } else { Err(format!("RabbitMQ said {head:?} {body:?}").into()) }
    }
}

/// A packet of MQTT: its length has seven bits in each byte.
fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let (mut bytes, mut length) = (vec![kind], body.len());
    while length >= 128 {
        bytes.push((length % 128) as u8 | 128);
        length /= 128;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(body);
    bytes
}

/// A program of RabbitMQ that leaves nothing outside of this directory.
fn program(path: &Path, dir: &Path, names: u16) -> Command {
    let mut command = Command::new(path);
    command
        .current_dir(dir)
        .env("HOME", dir)
        .env("ERL_EPMD_PORT", names.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_packets_have_seven_bits_in_a_byte() {
        assert_eq!(packet(CONNECT, b"ab"), [0x10, 2, b'a', b'b']);
        assert_eq!(packet(PUBLISH, &[0; 321])[..3], [0x32, 0xC1, 2]);
    }
}
