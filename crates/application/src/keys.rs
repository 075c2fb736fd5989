//! Every key an application file may hold: the reader refuses any other, and `docs/reference/millrace-toml.md` explains
//! each of them (a test compares the two).

/// One key of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// The type of its value.
    pub value: &'static str,
    /// Its default.
    pub default: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

const fn key(name: &'static str, value: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { name, value, default, meaning }
}

/// The sections at the top of the file.
pub const SECTIONS: &[&str] = &["namespace", "logs", "databases", "tables", "topics", "mqtt", "devices", "functions"];

/// Keys of `[namespace]`.
pub const NAMESPACE: &[Key] = &[
    key("path", "path", "`.millrace`", "The directory of the namespace, relative to the file."),
    key(
        "segment_size",
        "size",
        "`64MiB`, less on a small disk",
        "Size of a journal segment: a power of two from 1 MiB to 1 GiB. Fixed at creation.",
    ),
    key(
        "retain_bytes",
        "size",
        "`1GiB`, or a quarter of the free space if that is less",
        "Minimum size of the journal that is kept, up to 4032 segments. Above this size, the oldest segments are dropped as soon as no \
         more than a quarter of their content is still needed. If free space is low, segments are dropped below this size, too. `up` changes it.",
    ),
    key(
        "retain_age",
        "duration",
        "none",
        "Segments older than this are dropped as well, even below `retain_bytes`. Above `retain_bytes`, segments are dropped at any age. \
         `up` changes it; without the key, it stays as it is.",
    ),
    key(
        "durability",
        "`\"disk\"` or `\"memory\"`",
        "`\"disk\"`",
        "What an append waits for: the disk, or only the kernel (the record survives the end of the process, but not a power failure). \
         Fixed at creation.",
    ),
];

/// Keys of `[logs."NAME"]`.
pub const LOG: &[Key] = &[
    key(
        "history",
        "1 to 268435456, a string such as `\"10k\"` or `\"2M\"`, or `\"all\"`",
        "`10000`",
        "How many of its newest records the log keeps; `\"all\"` keeps records until they are trimmed.",
    ),
    key(
        "amendable",
        "`true` or `false`",
        "`false`",
        "Whether clients can *amend* records of the log, that is, correct them later; a client needs the right to append for this, \
         and the right to delete to make a record void. The host repairs the log, and what depended on the records, automatically.",
    ),
    key(
        "amend_count",
        "1 to 10000",
        "`1000`",
        "With `amendable`: the number of waiting amendments that starts a repair.",
    ),
    key(
        "amend_age",
        "duration up to `\"168h\"`",
        "`\"1m\"`",
        "With `amendable`: the age of the oldest waiting amendment that starts a repair.",
    ),
    key(
        "time",
        "a JSON pointer such as `\"/observed_at\"`, or `{ field = \"/t\", unit = \"ms\" }`",
        "none",
        "The field of the records that has the time of the observation, as text in the form of RFC 3339. With `unit` (`\"s\"`, `\"ms\"` or \
         `\"us\"`), numbers in the field are such units since 1970. Plots, exports, data frames and corrections by time then use this \
         time; for a record without it, they use the time of its append.",
    ),
];

/// Keys of `[databases.NAME]`.
pub const DATABASE: &[Key] = &[
    key(
        "url",
        "address",
        "required",
        "The address, without a password: `postgresql://USER@HOST:5432/DATABASE`, `redis://HOST:6379`, `etcd://HOST:2379` or \
         `dynamodb://REGION`.",
    ),
    key(
        "secret",
        "name",
        "none",
        "The name of the secret that has the password (`millrace secret set NAME`); for DynamoDB the id of the access key and its secret, with a \
         colon between them.",
    ),
    key(
        "authorities",
        "text",
        "none",
        "The certificates of authorities to trust besides those of the system: their text in PEM, between `'''`. The host opens no file for it.",
    ),
    key(
        "in_flight",
        "1 to 1000",
        "as many as the database permits",
        "The most transactions that are unanswered at once.",
    ),
    key(
        "rows",
        "1 to 65536",
        "`1000`",
        "The usual number of rows of a transaction. After an outage transactions are larger.",
    ),
    key(
        "unwritten_max",
        "size",
        "`256MiB`",
        "When the journal is this much ahead of the database, changes of its tables are refused until it has caught up.",
    ),
    key(
        "accept_volatile",
        "`true` or `false`",
        "`false`",
        "Whether the database may acknowledge writes that are not durable.",
    ),
    key(
        "on_refused",
        "`\"stop\"` or `\"dead-letter\"`",
        "`\"stop\"`",
        "What happens to writes that the database refuses for their content: nothing is written until it accepts them, or they become dead letters \
         in the log `dead/TABLE`.",
    ),
    key(
        "refuse_outside",
        "`true` or `false`",
        "`false`",
        "Whether the database refuses changes of its tables by anybody else. Only for PostgreSQL: each table gets a trigger, and loses it \
         with `false`.",
    ),
];

/// Keys of `[tables."NAME"]`.
pub const TABLE: &[Key] = &[
    key(
        "codec",
        "`\"json\"`, `\"text\"` or `\"bytes\"`",
        "`\"json\"`",
        "What the values are. A value that is something else is refused. Fixed at creation.",
    ),
    key("keys", "`\"text\"` or `\"bytes\"`", "`\"text\"`", "What the keys are. Fixed at creation."),
    key("database", "name", "none", "The database of this namespace to which the table is written. Fixed at creation."),
    key(
        "mode",
        "`\"external\"`, `\"asynchronous\"` or `\"synchronous\"`",
        "`\"external\"`",
        "With `database`: what waits until the database has a change: answers that depend on it, nothing, or answers and also runs that it causes \
         or that read it. Fixed at creation.",
    ),
    key(
        "ttl",
        "duration",
        "none",
        "After this time, a value that was put without a lifetime expires. Fixed at creation.",
    ),
    key(
        "history",
        "1 to 268435456, a string such as `\"10k\"` or `\"2M\"`, or `\"all\"`",
        "`10000`",
        "How many of its newest changes can be read as records of the table's log. The newest value of each key is kept in any case.",
    ),
    key(
        "from",
        "address",
        "none",
        "The table is a replica of this table of another namespace, or of the one with the same name there: `mr://HOST/NAMESPACE/TABLE` or \
         `mr://HOST/NAMESPACE`. Its owner decides about the other keys except `history`. Fixed at creation.",
    ),
];

/// Keys of `[topics."NAME"]`.
pub const TOPIC: &[Key] = &[
    key(
        "history",
        "1 to 268435456, a string such as `\"10k\"` or `\"2M\"`, or `\"all\"`",
        "`10000`",
        "How many of its newest records can be read. Fixed at creation.",
    ),
    key(
        "durability",
        "`\"quorum\"` or `\"leader\"`",
        "`\"quorum\"`",
        "When a publish is acknowledged: once a majority of the group has the record on disk, or once the leader has it. Fixed at \
         creation.",
    ),
    key(
        "engine",
        "`\"builtin\"` or `\"nats\"`",
        "`\"builtin\"`",
        "What keeps the records: the hosts of the topic's group, or the NATS cluster of `millrace serve --nats`. Fixed at creation.",
    ),
    key("group", "name", "`\"main\"`", "The group whose hosts keep the topic. Fixed at creation."),
    key(
        "fed_by",
        "list of logs",
        "none",
        "Logs of this file whose records are published to the topic, each once and in order. A function publishes to a topic by \
         appending to one of these logs. Without this key, `millrace up` does not change which logs feed the topic.",
    ),
];

/// Keys of `[mqtt]`.
pub const MQTT: &[Key] = &[key(
    "topics",
    "list of rules",
    "none",
    "Which topics of MQTT are which logs; the first rule that matches a topic decides. A topic without a rule is the log of its own name, if \
     there is one. An empty list removes all rules; without this key, `up` does not change them.",
)];

/// Keys of a rule in `[mqtt] topics`.
pub const MQTT_TOPIC: &[Key] = &[
    key("filter", "topic filter", "required", "The topics, such as `\"raw/+\"` or `\"tele/#\"`."),
    key(
        "log",
        "name of a log",
        "required",
        "The log of each topic. Use each wildcard of the filter exactly once in it: `{1}` is the level of the first `+`, `{2}` of the second, and \
         `{#}` the levels of `#`. The log is created when a message for it arrives.",
    ),
    key("retain", "`\"latest\"`", "none", "New subscribers get the newest record of the log, whoever appended it."),
];

/// Keys of `[devices.MODEL]`.
pub const DEVICES: &[Key] = &[
    key(
        "units",
        "list of names",
        "required",
        "The devices of this model. The log `raw` of the device `kitchen` is the log `kitchen/raw` of the namespace.",
    ),
    key(
        "logs",
        "list of logs",
        "`[]`",
        "Logs of the firmware, without the name of the device. They are created for each device, besides those in `on`; others when the device \
         sends records of them.",
    ),
    key(
        "history",
        "1 to 268435456, a string such as `\"10k\"` or `\"2M\"`, or `\"all\"`",
        "`10000`",
        "How many of its newest records each of these logs keeps in the namespace. A log that `[logs]` declares is as it says there.",
    ),
    key(
        "functions",
        "table of tables",
        "none",
        "Functions of the firmware that have a twin, such as `functions.mean = { on = \"raw\", twin = \"mean.wasm\" }`. In the namespace such a \
         function is `MODEL.NAME`. Runs of other functions of the firmware are imported as runs of `DEVICE.NAME`.",
    ),
];

/// Keys of a function in `functions` of `[devices.MODEL]`.
pub const DEVICE_FUNCTION: &[Key] = &[
    key(
        "on",
        "log",
        "required",
        "The log of the firmware whose records run the function, without the name of the device.",
    ),
    key(
        "twin",
        "path",
        "required",
        "The same source as a WebAssembly module, relative to this file. Repairs replay runs of the devices with it.",
    ),
    key("handler", "text", "`\"handle\"`", "The name of the exported function."),
];

/// Keys of `[functions.NAME]`.
pub const FUNCTION: &[Key] = &[
    key(
        "runtime",
        "`\"python\"`, `\"wasm\"`, `\"process\"` or `\"oneshot\"`",
        "required",
        "What runs the code: Python worker processes that stay alive between runs, a WebAssembly engine, a process that stays alive and \
         implements the worker protocol, or a new process for each record.",
    ),
    key(
        "code",
        "path",
        "required",
        "File or directory with the code, relative to this file. It is copied when the function is deployed, so later edits have no \
         effect until the next `millrace up`.",
    ),
    key(
        "handler",
        "text",
        "python: required; wasm: `\"handle\"`",
        "For python: `\"MODULE:FUNCTION\"`; for wasm: the name of the exported function.",
    ),
    key(
        "command",
        "list of strings",
        "required for process, oneshot",
        "The program and its arguments. `\"./smooth.sh\"` is a file of the copied code; a name without `/` is looked up in `PATH`.",
    ),
    key(
        "python",
        "path",
        "`\"python3\"`",
        "The interpreter, relative to this file if it has a `/`. To use the packages of a virtual environment, name its `bin/python`.",
    ),
    key(
        "on",
        "list of logs and topics",
        "`[]`",
        "Logs and topics whose records trigger the function; `\"topic:NAME\"` is a topic of the cluster. A log must be declared in this \
         file, or be the dead-letter log of one of its functions. If the list is empty, the function runs only when it is invoked, for \
         example by `millrace function invoke` or `millrace log append --function`.",
    ),
    key("concurrency", "1 to 64", "`1`", "Maximum number of runs at once. More than 1 needs `ordered = false`."),
    key(
        "ordered",
        "`true` or `false`",
        "`true`",
        "Runs are executed one at a time, in the order of their records. A failing run delays the later ones until it succeeds or its \
         record goes to the dead-letter log.",
    ),
    key(
        "monitor",
        "name",
        "none",
        "At most one of the functions that share this name runs at a time, in the order of their records. If a function fails to start \
         three times in a row, the other functions continue without it until it can be started.",
    ),
    key(
        "streamed",
        "`true` or `false`",
        "`false`",
        "Each append becomes visible at once, not when the run ends. A retry sees the same time, random numbers and records as the \
         previous attempt, and does not repeat its appends.",
    ),
    key(
        "isolation",
        "`\"snapshot\"` or `\"serializable\"`",
        "`\"snapshot\"`",
        "What others may change while a run is in progress. With `snapshot`, a run is repeated if a key of a table that it has read and \
         changes was changed meanwhile. With `serializable`, a run that changes anything is repeated if anything that it has read was \
         changed: another key, a range, or the number of a log's newest record. Not for streamed functions.",
    ),
    key(
        "table_mode",
        "`\"external\"`, `\"asynchronous\"` or `\"synchronous\"`",
        "that of each table",
        "How what depends on the function's changes of tables waits for their databases, instead of the `mode` of the tables.",
    ),
    key(
        "network",
        "`true` or `false`",
        "`false`",
        "Whether the function may use the host's network, including loopback. On a host that does not run as root, every client at a \
         loopback address then needs a capability.",
    ),
    key(
        "reads",
        "list of logs",
        "the logs of this file",
        "Logs that the function may read besides the record that it runs for; `\"raw/\"` is `raw` and all logs below it, `\"/\"` every \
         log whose name does not begin with `_`. The logs of a file are those that it declares and the dead-letter logs of its \
         functions.",
    ),
    key(
        "appends",
        "list of logs",
        "the logs of this file",
        "Logs that the function may append to, written as in `reads`.",
    ),
    key(
        "sends",
        "list of addresses",
        "`[]`",
        "Addresses that the function may send messages to: `\"mr://edge:7070/farm/raw\"` is one log, with a trailing `/` also all logs \
         below it, `\"mr://edge:7070/farm\"` every log of that namespace.",
    ),
    key(
        "secrets",
        "list of names",
        "`[]`",
        "Secrets that the function may read (`ctx.secret(NAME)`, or the file `$MILLRACE_SECRETS/NAME`); see `millrace secret set`. If \
         one is missing, the function does not start.",
    ),
    key(
        "timeout",
        "duration, 1 ms to 24 h",
        "`\"60s\"`",
        "Maximum duration of a run; a longer run is stopped and counts as failed.",
    ),
    key("memory", "size, 64 KiB to 1 TiB", "`\"256MiB\"`", "Maximum memory of one run or worker."),
    key("output", "size, up to 1 MiB", "`\"64KiB\"`", "How much of a run's output is stored."),
    key(
        "retries",
        "0 to 100",
        "`3`",
        "Maximum number of attempts after the first one. Then the record goes to the dead-letter log.",
    ),
    key(
        "backoff",
        "duration, up to 30 s",
        "`\"100ms\"`",
        "Pause before the first retry; it doubles with each further retry, up to 30 s.",
    ),
    key(
        "dead_letter",
        "log",
        "`\"dead/NAME\"`",
        "The log that receives a dead letter for each run whose attempts all failed: the error, and the record, if it has at most \
         64 KiB. `up` creates the log with a history of 1000 records, unless `[logs]` sets another one. See `millrace run retry`.",
    ),
    key(
        "pending_max",
        "1 to 10000000",
        "`100000`",
        "Maximum number of pending runs. At this number, appends by clients are refused (MR2019); for appends by runs, the limit is \
         twice as high.",
    ),
    key(
        "pool",
        "`true` or `false`",
        "`false`",
        "The function is a pool. Its section has to be named `[functions.pool-NAME]`, where NAME is the name of the pool. With `runtime \
         = \"process\"` its workers run the tasks of executors; with `runtime = \"wasm\"` its module has the methods of a class of \
         shared objects. A pool cannot have `on`, `reads`, `appends`, `streamed` or `isolation`.",
    ),
    key(
        "env",
        "table of strings",
        "`{}`",
        "Environment variables of the function's process (python, process, oneshot).",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_has_a_row_for_every_key() {
        let page = include_str!("../../../docs/reference/millrace-toml.md");
        for key in
            [NAMESPACE, LOG, DATABASE, TABLE, TOPIC, MQTT, MQTT_TOPIC, DEVICES, DEVICE_FUNCTION, FUNCTION].concat()
        {
            let row = format!("| `{}` | {} | {} | {} |", key.name, key.value, key.default, key.meaning);
            assert!(page.contains(&row), "docs/reference/millrace-toml.md lacks this row:\n{row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(
            rows,
            [NAMESPACE, LOG, DATABASE, TABLE, TOPIC, MQTT, MQTT_TOPIC, DEVICES, DEVICE_FUNCTION, FUNCTION]
                .concat()
                .len(),
            "a row documents a key that does not exist"
        );
    }
}
