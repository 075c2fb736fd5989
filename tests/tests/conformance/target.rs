//! The clients that run the script: each call takes JSON and returns JSON.

use millrace_client::{AppendOptions, Batch, Client, Options, Place, Receipt, Record, TailOptions, Wait, blocking};
use millrace_journal::Durability;
use millrace_node::Namespace;
use millrace_wire::{Code, EventId, LogName, Result};
use serde_json::{Value, json};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// The longest time that a tail waits for a record; it only bounds a test that would hang.
const LONG: Duration = Duration::from_secs(120);
/// No limit on the bytes.
const ALL: usize = usize::MAX;

/// A client. Each script has one, and so has each step `meanwhile`.
pub enum Target {
    Local(Box<Namespace>),
    Blocking(blocking::Client),
    Async(Client, Arc<tokio::runtime::Runtime>),
}

/// How to connect one.
#[derive(Clone, Debug)]
pub enum Way {
    Local(PathBuf),
    Blocking(Place),
    Async(Place),
}

/// Runs the same call on each kind of client.
macro_rules! remote {
    ($target:expr, $client:ident => $call:expr, $local:pat => $files:expr) => {
        match $target {
            Target::Blocking($client) => $call,
            Target::Async($client, runtime) => runtime.block_on($call),
            $local => $files,
        }
    };
}

impl Way {
    pub fn is_host(&self) -> bool {
        !matches!(self, Way::Local(_))
    }

    pub fn connect(&self) -> Result<Target> {
        let options = Options::default();
        Ok(match self {
            Way::Local(dir) => Target::Local(Box::new(Namespace::open(dir)?)),
            Way::Blocking(place) => Target::Blocking(blocking::Client::connect(place, &options)?),
            Way::Async(place) => {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
                let runtime = runtime.expect("a runtime starts");
                Target::Async(runtime.block_on(Client::connect(place, &options))?, Arc::new(runtime))
            }
        })
    }
}

fn number(step: &Value, name: &str) -> u64 {
    step[name].as_u64().unwrap_or(0)
}

fn text<'s>(step: &'s Value, name: &str) -> Option<&'s str> {
    step[name].as_str()
}

fn log(step: &Value) -> &str {
    text(step, "log").expect("the step names a log")
}

/// Decodes bytes of the script.
pub fn bytes(value: &Value) -> Vec<u8> {
    if let Some(text) = value["text"].as_str() {
        return text.into();
    }
    if let Some(count) = value["count"].as_u64() {
        return vec![value["fill"].as_u64().expect("a byte") as u8; count as usize];
    }
    let hex = value["hex"].as_str().unwrap_or_else(|| panic!("no bytes: {value}"));
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal")).collect()
}

fn shown(bytes: &[u8]) -> Value {
    json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()})
}

fn options(step: &Value) -> Result<AppendOptions<'_>> {
    let durability = text(step, "durability").map(|text| match text {
        "disk" => Durability::Disk,
        "memory" => Durability::Memory,
        odd => panic!("durability {odd}"),
    });
    let cause = text(step, "cause").map_or(Ok(EventId::NONE), str::parse)?;
    let (function, key) = (text(step, "function"), text(step, "key"));
    Ok(AppendOptions { durability, function, key, cause, ..AppendOptions::default() })
}

fn local<'a>(options: AppendOptions<'a>) -> millrace_node::AppendOptions<'a> {
    let AppendOptions { durability, function, key, fence, cause, .. } = options;
    millrace_node::AppendOptions { durability, function, key, fence, cause, ..Default::default() }
}

fn records(step: &Value) -> Vec<(String, Vec<u8>)> {
    let list = step["records"].as_array().expect("records");
    list.iter().map(|record| (log(record).to_owned(), bytes(&record["data"]))).collect()
}

fn record(record: &Record) -> Value {
    let Record { seqno, id, cause, data, .. } = record;
    json!({"seqno": seqno, "id": id.to_string(), "cause": cause.to_string(), "data": shown(data)})
}

fn receipt(receipt: &Receipt) -> Value {
    json!({"seqno": receipt.seqno, "id": receipt.id.to_string()})
}

fn of_files(record: millrace_node::Record) -> Record {
    let millrace_node::Record { seqno, id, hlc, cause, payload, headers, .. } = record;
    Record { seqno, id, hlc, cause, data: payload, headers }
}

fn batch(batch: &Batch) -> Value {
    let Batch { records, cursor } = batch;
    let records: Vec<Value> = records.iter().map(record).collect();
    json!({"records": records, "next": cursor.next, "incarnation": cursor.incarnation})
}

impl Target {
    /// Executes a step; returns the result.
    pub fn call(&self, step: &Value) -> Result<Value> {
        match text(step, "do").expect("a step does something") {
            "create_log" => self.create_log(log(step), number(step, "history")),
            "set_history" => self.set_history(log(step), number(step, "history")),
            "cancel_run" => self.cancel_run(text(step, "run").expect("a run").parse()?),
            "remove_log" => self.remove_log(log(step)),
            "append" => self.append(step),
            "append_many" => self.append_many(step),
            "get" => self.get(step),
            "range" => self.range(step),
            "latest" => self.latest(step),
            "tail" => self.tail(step),
            "show" => self.show(text(step, "path").expect("a path")),
            odd => panic!("the script asks for '{odd}'"),
        }
    }

    fn create_log(&self, log: &str, history: u64) -> Result<Value> {
        remote!(self, client => client.create_log(log, history), Target::Local(files) => {
            files.create_log(&log.parse::<LogName>()?, history).map(drop)
        })
        .map(|()| Value::Null)
    }

    fn set_history(&self, log: &str, history: u64) -> Result<Value> {
        remote!(self, client => client.set_history(log, history), Target::Local(files) => {
            files.set_history(&log.parse::<LogName>()?, history).map(drop)
        })
        .map(|()| Value::Null)
    }

    fn cancel_run(&self, run: EventId) -> Result<Value> {
        remote!(self, client => client.cancel_run(run), Target::Local(files) => {
            millrace_node::functions::cancel(files, run)
        })
        .map(|()| Value::Null)
    }

    fn remove_log(&self, log: &str) -> Result<Value> {
        remote!(self, client => client.remove_log(log), Target::Local(files) => files.remove_log(&log.parse::<LogName>()?))
            .map(|()| Value::Null)
    }

    fn append(&self, step: &Value) -> Result<Value> {
        let (data, options) = (bytes(&step["data"]), options(step)?);
        let appended = remote!(self, client => client.append(log(step), &data, options), Target::Local(files) => {
            let receipt = files.append(log(step), &data, local(options));
            receipt.map(|receipt| Receipt { seqno: receipt.seqno, id: receipt.id })
        })?;
        Ok(receipt(&appended))
    }

    fn append_many(&self, step: &Value) -> Result<Value> {
        let (records, options) = (records(step), options(step)?);
        let lent: Vec<(&str, &[u8])> = records.iter().map(|(log, data)| (&**log, &**data)).collect();
        let receipts = remote!(self, client => client.append_many(&lent, options), Target::Local(files) => {
            let new = |(log, payload): &(String, Vec<u8>)| {
                Ok(millrace_node::NewRecord { log: log.clone(), payload: payload.clone() })
            };
            let mut receipts = Vec::new();
            let note = |some: &[millrace_node::Receipt]| {
                receipts.extend(some.iter().map(|receipt| Receipt { seqno: receipt.seqno, id: receipt.id }));
            };
            files.append_many(records.iter().map(new), local(options), note).map(|()| receipts)
        })?;
        let list: Vec<Value> = receipts.iter().map(receipt).collect();
        Ok(json!({"records": list}))
    }

    fn get(&self, step: &Value) -> Result<Value> {
        let (seqno, wait_ms) = (number(step, "seqno"), number(step, "wait_ms") as u32);
        let got = remote!(self, client => client.get(log(step), seqno, Wait::ms(wait_ms)), Target::Local(files) => {
            if wait_ms > 0 {
                let wait = Duration::from_millis(wait_ms.into());
                files.journal().wait_log(&files.log(log(step))?, seqno.max(1) - 1, wait)?;
            }
            let seqno = if seqno == 0 { files.latest(log(step))? } else { seqno };
            files.get(log(step), seqno).map(of_files)
        })?;
        Ok(record(&got))
    }

    fn range(&self, step: &Value) -> Result<Value> {
        let (from, count) = (number(step, "from"), number(step, "count") as u32);
        let got = remote!(self, client => client.range(log(step), from, count, None), Target::Local(files) => {
            let records: Vec<Record> =
                files.range(log(step), from, count, ALL)?.into_iter().map(of_files).collect();
            let next = records.last().map_or(from, |last| last.seqno + 1);
            Ok(Batch { records, cursor: millrace_client::Cursor { incarnation: files.log(log(step))?.id(), next } })
        })?;
        Ok(batch(&got))
    }

    fn latest(&self, step: &Value) -> Result<Value> {
        let (above, wait_ms) = (number(step, "above"), number(step, "wait_ms") as u32);
        let wait = Wait::ms(wait_ms);
        let seqno = remote!(self, client => client.latest(log(step), above, wait), Target::Local(files) => {
            let found = files.log(log(step))?;
            files.journal().wait_log(&found, above, Duration::from_millis(wait_ms.into()))?;
            files.latest(log(step))
        })?;
        Ok(json!({"seqno": seqno}))
    }

    fn tail(&self, step: &Value) -> Result<Value> {
        let (from, take) = (number(step, "from"), number(step, "take") as usize);
        let options = TailOptions { incarnation: number(step, "incarnation") as u32, ..TailOptions::default() };
        let mut taken = Batch::default();
        match self {
            Target::Blocking(client) => {
                let mut tail = client.tail(log(step), from, options)?;
                while taken.records.len() < take {
                    taken.records.push(tail.next_within(LONG)?.expect("a record comes"));
                }
                taken.cursor = tail.cursor();
            }
            Target::Async(client, runtime) => runtime.block_on(async {
                let mut tail = client.tail(log(step), from, options).await?;
                while taken.records.len() < take {
                    let next = tokio::time::timeout(LONG, tail.next()).await;
                    taken.records.push(next.expect("a record comes")?);
                }
                taken.cursor = tail.cursor();
                Ok::<_, millrace_wire::Error>(())
            })?,
            Target::Local(files) => follow(files, step, from, take, &mut taken)?,
        }
        Ok(batch(&taken))
    }

    fn show(&self, path: &str) -> Result<Value> {
        let json = remote!(self, client => client.show(path), Target::Local(_) => {
            panic!("'{path}' is shown by hosts only")
        })?;
        serde_json::from_str(&json).map_err(|error| Code::HostInternal.error(format!("no JSON: {error}")))
    }
}

/// A tail over files: waits and reads.
fn follow(files: &Namespace, step: &Value, from: u64, take: usize, taken: &mut Batch) -> Result<()> {
    let found = files.log(log(step))?;
    let mut next = if from == 0 { found.latest() + 1 } else { from };
    while taken.records.len() < take {
        assert!(files.journal().wait_log(&found, next - 1, LONG)? >= next, "a record comes");
        let more = files.range(log(step), next, (take - taken.records.len()) as u32, ALL)?;
        next += more.len() as u64;
        taken.records.extend(more.into_iter().map(of_files));
    }
    taken.cursor = millrace_client::Cursor { incarnation: found.id(), next };
    Ok(())
}
