//! The script, as far as a device can do it (`needs`): this test is the host that the device connects to, and asks it over its connection.

use super::target::bytes;
use millrace_wire::{
    Code, EventId, NamespaceId, Result,
    protocol::{
        self, Append, Appended, Attach, Attached, Entered, Entries, Failure, Frame, Get, Heading, Hello, Latest,
        Message, PREFACE, Range, Records, Seqno, Welcome, encode, split,
    },
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command},
    time::Duration,
};

/// The longest frame of a device.
const FRAME_MAX: usize = 600;

/// A device that runs, and its connection.
pub struct Device {
    program: Child,
    stream: TcpStream,
    input: Vec<u8>,
    request: u64,
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The program, which the first test compiles.
fn station() -> std::path::PathBuf {
    let device = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("device");
    let mut made = Command::new("flock");
    made.arg(device.join("Makefile")).args(["make", "-s", "-C"]).arg(&device);
    made.args(["CC=clang", "BUILD=build/checked", "build/checked/station"]);
    made.arg("CFLAGS=-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all");
    assert!(made.status().expect("make starts").success(), "the device is not compiled");
    device.join("build/checked/station")
}

impl Device {
    /// Starts a device with these logs and their histories, and waits until it is attached.
    pub fn start(flash: &Path, logs: &[(String, u64)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let host = listener.local_addr().expect("an address").to_string();
        // A device has at least one log.
        let logs = if logs.is_empty() { &[("unused".to_owned(), 1)][..] } else { logs };
        let logs: Vec<String> = logs.iter().map(|(name, history)| format!("{name}:{history}")).collect();
        let mut program = Command::new(station());
        program.arg(flash).args(["--host", &host, "--linger", "600000", "--logs", &logs.join(",")]);
        let program = program.spawn().expect("the device starts");
        let (mut stream, _) = listener.accept().expect("it connects");
        stream.set_read_timeout(Some(Duration::from_secs(100))).expect("a timeout");
        let mut preface = [0; 4];
        stream.read_exact(&mut preface).expect("it speaks");
        assert_eq!(preface, PREFACE);
        let mut device = Self { program, stream, input: Vec::new(), request: 1 << 32 };
        while device.take(|frame| (frame.kind == Attach::TYPE).then_some(())).is_none() {}
        device
    }

    fn say<M: Message>(&mut self, request: u64, cause: EventId, message: &M) {
        let mut out = Vec::new();
        encode(&mut out, Heading { request, cause, ..Heading::default() }, message);
        self.stream.write_all(&out).expect("the device takes it");
    }

    /// Takes one frame: answers what the device asks, and lets `wanted` look at everything.
    fn take<T>(&mut self, wanted: impl Fn(&Frame<'_>) -> Option<T>) -> Option<T> {
        let mut buffer = [0; FRAME_MAX];
        while split(&self.input, FRAME_MAX).expect("frames").is_none() {
            let got = self.stream.read(&mut buffer).expect("it answers");
            assert!(got > 0, "the device has ended the connection");
            self.input.extend_from_slice(&buffer[..got]);
        }
        let input = std::mem::take(&mut self.input);
        let (frame, used) = split(&input, FRAME_MAX).expect("frames").expect("one is there");
        let request = frame.heading.request;
        match frame.kind {
            Hello::TYPE => {
                self.say(request, EventId::NONE, &welcome());
            }
            Attach::TYPE => self.say(request, EventId::NONE, &Attached { sequence: 0 }),
            Entries::TYPE => self.say(request, EventId::NONE, &Entered { sequence: 0 }),
            _ => {}
        }
        let found = wanted(&frame);
        self.input.extend_from_slice(&input[used..]);
        found
    }

    fn ask<M: Message, T>(&mut self, cause: EventId, message: &M, told: impl Fn(&Frame<'_>) -> Result<T>) -> Result<T> {
        self.request += 1;
        let request = self.request;
        self.say(request, cause, message);
        loop {
            let taken = self.take(|frame| match (frame.heading.request == request, frame.kind) {
                (false, _) => None,
                (true, Failure::TYPE) => {
                    let failure: Failure<'_> = frame.message().expect("a failure");
                    Some(Err(Code::from_id(failure.code).expect("a known code").error("")))
                }
                (true, _) => Some(told(frame)),
            });
            if let Some(answer) = taken {
                return answer;
            }
        }
    }

    /// Executes a step; returns the result.
    pub fn call(&mut self, step: &Value) -> Result<Value> {
        let text = |name: &str| step[name].as_str();
        let number = |name: &str| step[name].as_u64().unwrap_or(0);
        let log = text("log").expect("a log");
        let none = EventId::NONE;
        match text("do").expect("a step does something") {
            "append" => {
                let data = bytes(&step["data"]);
                let cause = text("cause").map_or(Ok(none), str::parse)?;
                let append =
                    Append { log, data: &data, function: text("function"), key: text("key"), ..Append::default() };
                self.ask(cause, &append, |frame| {
                    let Appended { seqno, id } = frame.message()?;
                    Ok(json!({ "seqno": seqno, "id": id.to_string() }))
                })
            }
            "get" => {
                let get = Get { log, seqno: number("seqno"), ..Get::default() };
                self.ask(none, &get, |frame| Ok(record(&frame.message()?)))
            }
            "range" => {
                let (from, count) = (number("from"), number("count") as u32);
                self.ask(none, &Range { log, from, count, ..Range::default() }, |frame| {
                    let Records { records, next, .. } = frame.message()?;
                    Ok(json!({ "records": records.iter().map(record).collect::<Vec<_>>(), "next": next }))
                })
            }
            "latest" => self.ask(none, &Latest { log, ..Latest::default() }, |frame| {
                Ok(json!({ "seqno": frame.message::<Seqno>()?.seqno }))
            }),
            odd => panic!("a device cannot do '{odd}': the step lacks `needs`"),
        }
    }
}

fn welcome() -> Welcome<'static> {
    Welcome {
        version: protocol::VERSION,
        host: "test",
        name: "test",
        namespace: NamespaceId::MAX,
        epoch: 1,
        frame_max_bytes: 1 << 20,
        record_max_bytes: 1 << 20,
        requests_max: 1,
        durability: millrace_wire::Durability::Disk,
    }
}

fn record(record: &protocol::Record<'_>) -> Value {
    let protocol::Record { seqno, id, cause, data, .. } = record;
    let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "seqno": seqno, "id": id.to_string(), "cause": cause.to_string(), "data": { "hex": hex } })
}
