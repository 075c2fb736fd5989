//! mqtt.publish, mqtt.acknowledged, mqtt.latency: clients of MQTT, beside mosquitto, which stores nothing, and beside NATS.

use super::Host;
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples},
    peers::{Server, patiently},
    rows::Measured,
};
use std::{
    fs,
    io::{BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

const BYTES: usize = 100;
const CLIENTS: usize = 100;
const WINDOW: u64 = 16;
const TOPIC: &str = "a";
/// Bytes of a burst of PUBLISH with quality 0.
const BURST_BYTES: usize = 64 << 10;

/// A broker that the same clients load.
struct MqttBroker {
    name: &'static str,
    port: u16,
    /// The user's name, by which a host of several namespaces chooses one.
    user: Option<&'static str>,
    _server: Option<Server>,
}

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn mosquitto(dir: &Path) -> Outcome<Option<MqttBroker>> {
    let port = free_port()?;
    let config = dir.join("mosquitto.conf");
    // By default it drops what a client of quality 1 does not take fast enough.
    fs::write(&config, format!("listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"))?;
    let arguments = ["-c".to_owned(), config.display().to_string()];
    let mut server = Server::start("mosquitto", &arguments, dir)?;
    if server.is_none() {
        server = Server::start("/usr/sbin/mosquitto", &arguments, dir)?;
    }
    let Some(server) = server else { return Ok(None) };
    let broker = MqttBroker { name: "mosquitto", port, user: None, _server: Some(server) };
    Ok(patiently(|| broker.connect("probe").map(drop)).is_ok().then_some(broker))
}

fn nats(dir: &Path) -> Outcome<Option<MqttBroker>> {
    let (port, own) = (free_port()?, free_port()?);
    let (config, store) = (dir.join("nats-mqtt.conf"), dir.join("jetstream-mqtt"));
    let text = format!(
        "server_name: bench\nlisten: 127.0.0.1:{own}\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n\
         mqtt {{ listen: 127.0.0.1:{port} }}\n",
        store.display()
    );
    fs::write(&config, text)?;
    let Some(server) = Server::start("nats-server", &["-c".to_owned(), config.display().to_string()], dir)? else {
        return Ok(None);
    };
    let broker = MqttBroker { name: "NATS", port, user: None, _server: Some(server) };
    Ok(patiently(|| broker.connect("probe").map(drop)).is_ok().then_some(broker))
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// A packet, whose body is shorter than 16 KiB.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let (low, high) = ((body.len() & 0x7f) as u8, (body.len() >> 7) as u8);
    let head: &[u8] = if high == 0 { &[first, low] } else { &[first, low | 0x80, high] };
    [head, body].concat()
}

struct Connection {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl MqttBroker {
    fn of(host: &Host, namespace: &'static str) -> Self {
        Self { name: "millrace", port: host.port(), user: Some(namespace), _server: None }
    }

    fn connect(&self, client: &str) -> Outcome<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let answers = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let mut connection = Connection { stream, answers };
        let flags = if self.user.is_some() { 0x82 } else { 2 };
        let user = self.user.map(text).unwrap_or_default();
        let body = [text("MQTT"), vec![4, flags, 0, 0], text(client), user].concat();
        connection.stream.write_all(&packet(0x10, &body))?;
        match connection.read()? {
            (0x20, body) if body.get(1) == Some(&0) => Ok(connection),
            (first, body) => Err(format!("{} refused: {first:#x} {body:?}", self.name).into()),
        }
    }
}

impl Connection {
    fn read(&mut self) -> Outcome<(u8, Vec<u8>)> {
        let mut byte = [0];
        let mut next = |answers: &mut BufReader<TcpStream>| answers.read_exact(&mut byte).map(|()| byte[0]);
        let first = next(&mut self.answers)?;
        let (mut length, mut shift) = (0, 0);
        loop {
            let byte = next(&mut self.answers)?;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.answers.read_exact(&mut body)?;
        Ok((first, body))
    }

    fn publish(&mut self, qos: u8, count: u64, window: u64) -> Outcome<()> {
        let (mut sent, mut done, mut burst) = (0, 0, Vec::new());
        while done < count {
            burst.clear();
            while sent < count && sent - done < window && burst.len() < BURST_BYTES {
                let id = (sent % 60_000) as u16 + 1; // 0 numbers no packet
                let body = [text(TOPIC), id.to_be_bytes().to_vec(), vec![7; BYTES]].concat();
                burst.extend(packet(0x30 | qos << 1, &body));
                sent += 1;
            }
            self.stream.write_all(&burst)?;
            // Whatever has come is taken before more is sent.
            loop {
                let (first, body) = self.read()?;
                match first {
                    0x50 => self.stream.write_all(&packet(0x62, &body[..2]))?,
                    _ => done += 1,
                }
                if done == count || (self.answers.buffer().is_empty() && sent - done < window) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn subscribe(&mut self) -> Outcome<()> {
        self.stream.write_all(&packet(0x82, &[vec![0, 1], text(TOPIC), vec![0]].concat()))?;
        match self.read()? {
            (0x90, _) => Ok(()),
            (first, _) => Err(format!("a packet {first:#x} in place of SUBACK").into()),
        }
    }
}

/// Messages of quality 0 from one client to another, in a second.
fn passed_on(broker: &MqttBroker, count: u64) -> Outcome<f64> {
    let (mut from, mut to) = (broker.connect("from")?, broker.connect("to")?);
    to.subscribe()?;
    let start = Instant::now();
    let sending = thread::spawn(move || -> Result<(), String> {
        let one = packet(0x30, &[text(TOPIC), vec![7; BYTES]].concat());
        let each = BURST_BYTES / one.len();
        let burst = one.repeat(each);
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(each);
            from.stream.write_all(&burst[..now * one.len()]).map_err(|error| error.to_string())?;
            left -= now;
        }
        // The connection stays until everything has come.
        let _ = from.answers.read(&mut [0]);
        Ok(())
    });
    for _ in 0..count {
        to.read()?;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    drop(to);
    drop(sending);
    Ok(rate)
}

/// Acknowledged messages of many clients in a second.
fn acknowledged(broker: &MqttBroker, qos: u8, each: u64) -> Outcome<f64> {
    let connections = (0..CLIENTS).map(|client| broker.connect(&format!("c{client}"))).collect::<Outcome<Vec<_>>>()?;
    let start = Instant::now();
    let publish = |mut connection: Connection| connection.publish(qos, each, WINDOW).map_err(|error| error.to_string());
    thread::scope(|scope| {
        let threads: Vec<_> =
            connections.into_iter().map(|connection| scope.spawn(move || publish(connection))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panics"))
    })?;
    Ok((each * CLIENTS as u64) as f64 / start.elapsed().as_secs_f64())
}

/// Times from PUBLISH with quality 1 to PUBACK, one message at a time.
fn latency(broker: &MqttBroker, count: u64) -> Outcome<Samples> {
    let (mut connection, mut samples) = (broker.connect("one")?, Samples::new());
    for _ in 0..count {
        let start = Instant::now();
        connection.publish(1, 1, 1)?;
        samples.record(start.elapsed());
    }
    Ok(samples)
}

const INSTALL: &str = "mosquitto is not installed (apt-get install mosquitto) and was not measured.";

pub fn publish(context: &Context) -> Outcome<Measured> {
    let count = if context.quick { 20_000 } else { 500_000 };
    let host = Host::start(context, 1_000_000)?;
    let dir = context.fresh()?;
    let peer = mosquitto(dir.path())?;
    let (mut own, mut theirs) = (Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(5) {
        own.push(passed_on(&MqttBroker::of(&host, "memory"), count)?);
        if let Some(peer) = &peer {
            theirs.push(passed_on(peer, count)?);
        }
    }
    let value = own.median();
    let mut note = format!(
        "One client sends {count} messages of {BYTES} bytes as fast as its connection takes them, and another one, which is subscribed, reads \
         them all. Each message is a record of a log here. Messages per second until the last one has come, {}.",
        own.spread()
    );
    let mut measured = Measured::new(value, count);
    if theirs.is_empty() {
        note = format!("{note} {INSTALL}");
    } else {
        note = format!("{note} mosquitto, in turn: {}.", theirs.spread());
        let ratio = value / theirs.median();
        measured = measured.peer("mosquitto", theirs.median()).target("≥ 0.5 × mosquitto", ratio >= 0.5);
    }
    Ok(measured.note(note))
}

pub fn many(context: &Context) -> Outcome<Measured> {
    let each = if context.quick { 50 } else { 1000 };
    let host = Host::start(context, 1_000_000)?;
    let dir = context.fresh()?;
    let (peer, stored) = (mosquitto(dir.path())?, nats(dir.path())?);
    let [mut own, mut twice, mut theirs, mut durable] = [(); 4].map(|()| Repeated::default());
    for _ in 0..context.repetitions(5) {
        own.push(acknowledged(&MqttBroker::of(&host, "disk"), 1, each)?);
        twice.push(acknowledged(&MqttBroker::of(&host, "disk"), 2, each)?);
        if let Some(peer) = &peer {
            theirs.push(acknowledged(peer, 1, each)?);
        }
        if let Some(stored) = &stored {
            durable.push(acknowledged(stored, 1, each)?);
        }
    }
    let value = own.median();
    let mut measured = Measured::new(value, each * CLIENTS as u64).also("QoS 2", twice.median(), "/s");
    if !theirs.is_empty() {
        measured = measured.peer("mosquitto, which stores nothing", theirs.median());
    }
    let mut note = format!(
        "{CLIENTS} clients send {each} messages of {BYTES} bytes each, with {WINDOW} unacknowledged; each acknowledgement comes when the record \
         is on the disk. Acknowledged messages per second, {}; with QoS 2 {}. The clients are threads of one program.",
        own.spread(),
        twice.spread()
    );
    if durable.is_empty() {
        note += " NATS with MQTT (nats-server 2.10 or newer) was not measured.";
    } else {
        note = format!("{note} NATS, in turn: {}.", durable.spread());
        let ratio = value / durable.median();
        measured = measured.peer("NATS", durable.median()).target("≥ 2 × NATS", ratio >= 2.0);
    }
    Ok(measured.note(note))
}

pub fn one(context: &Context) -> Outcome<Measured> {
    let count = if context.quick { 200 } else { 5000 };
    let host = Host::start(context, 1_000_000)?;
    let dir = context.fresh()?;
    let samples = latency(&MqttBroker::of(&host, "disk"), count)?;
    let measured = Measured::new(samples.p50_us(), count).also("p99", samples.p99_us(), "µs").also(
        "memory",
        latency(&MqttBroker::of(&host, "memory"), count)?.p50_us(),
        "µs",
    );
    let note = format!(
        "One client sends {count} messages of {BYTES} bytes, the next one when the PUBACK before has come: the time from the PUBLISH to the \
         PUBACK, which waits for the disk."
    );
    Ok(match mosquitto(dir.path())? {
        Some(peer) => measured.peer("mosquitto, which stores nothing", latency(&peer, count)?.p50_us()).note(note),
        None => measured.note(format!("{note} {INSTALL}")),
    })
}
