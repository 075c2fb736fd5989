//! Builds the documents about a namespace: the same for a host, and for a program that uses the files.

mod records;
pub(crate) mod series;
mod work;

pub use records::{damaged, entry, link, whole_record};
pub use work::{failures, output, tasks};

use crate::{
    FunctionStat, KeysRead, LogStat, Namespace, RecordRef, ResultKind, RunFilter, RunIsolation, RunResult, RunState,
    RunView, TableStat, WhichKeys,
    databases::DatabaseStat,
    replicas::{ReplicaStage, ReplicaStat},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use millrace_documents::{
    AttemptDoc, DatabaseDoc, DefinitionDoc, ErrorDoc, FunctionDoc, KeyText, KeysReadDoc, LogDoc, RecordName,
    ReplicaDoc, ResultDoc, RunDoc, TableDoc, TroubleDoc, WhyDoc, id_text, rfc3339,
};
use millrace_wire::{Code, LogName, Name, Result, table::TableOptions};
use std::fmt::Display;

/// A list of names.
fn names<T: Display>(names: &[T]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// A log; with `newest`, also reads its newest record for the time of the append.
pub fn log(namespace: &Namespace, stat: &LogStat, newest: bool) -> Result<LogDoc> {
    let log = namespace.log(&stat.name)?;
    let mut payload = Vec::new();
    // It may be overtaken while we look; then nothing is said of it.
    let newest =
        (newest && stat.latest > 0).then(|| namespace.journal().get(&log, stat.latest, &mut payload).ok()).flatten();
    Ok(LogDoc {
        name: stat.name.to_string(),
        history: stat.history,
        // A log may be trimmed of all its records: then the earliest is the one to come.
        records: if stat.earliest == 0 { 0 } else { (stat.latest + 1).saturating_sub(stat.earliest) },
        earliest: stat.earliest,
        latest: stat.latest,
        functions: names(&stat.functions),
        last_append: newest.map(|record| rfc3339(record.hlc)),
        incarnation: log.id(),
        time: namespace.time_field(&log)?,
    })
}

/// The same, or nothing if the log was removed while we looked.
pub fn log_if_there(namespace: &Namespace, stat: &LogStat, newest: bool) -> Result<Option<LogDoc>> {
    match log(namespace, stat, newest) {
        Err(error) if error.code() == Code::LogNotFound => Ok(None),
        document => document.map(Some),
    }
}

/// The tables that the caller `sees`, by name.
pub fn tables(namespace: &Namespace, sees: &dyn Fn(&str) -> bool) -> Result<Vec<TableDoc>> {
    let stats =
        namespace.table_stats()?.into_iter().filter(|stat| !LogName::is_internal(&stat.name) && sees(&stat.name));
    let mut replicas = namespace.replica_stats()?;
    let doc = |TableStat { name, options, history, latest }| {
        let TableOptions { keys, codec, ttl_ms, database, mode } = options;
        let replica = replicas.remove(&name).map(replica);
        TableDoc { table: name, keys, codec, ttl_ms, database, mode, history, latest, replica }
    };
    let mut docs: Vec<TableDoc> = stats.map(doc).collect();
    // Those that the host has not begun to load.
    for (name, stat) in replicas.into_iter().filter(|(name, _)| sees(name)) {
        let TableOptions { keys, codec, ttl_ms, database, mode } = TableOptions::default();
        let (history, replica) = (stat.replica.history, Some(replica(stat)));
        docs.push(TableDoc { table: name, keys, codec, ttl_ms, database, mode, history, latest: 0, replica });
    }
    docs.sort_by(|a, b| a.table.cmp(&b.table));
    Ok(docs)
}

fn replica(stat: ReplicaStat) -> ReplicaDoc {
    let ReplicaStat { replica, owner, is_connected, records, age_ms, trouble } = stat;
    let stage = match replica.stage {
        ReplicaStage::New => "new",
        ReplicaStage::Loading => "loading",
        ReplicaStage::Following => "following",
    };
    let stopped = owner.stopped.is_some();
    ReplicaDoc {
        owner: format!("{}/{}", owner.address, replica.table),
        stage: stage.to_owned(),
        connected: is_connected,
        position: owner.position.map(|position| position.to_string()),
        records,
        age_ms,
        trouble: trouble.map(|trouble| TroubleDoc { code: trouble.code, error: trouble.detail, stopped }),
    }
}

/// The databases to which tables are written, and what they do not have.
pub fn databases(namespace: &Namespace) -> Result<Vec<DatabaseDoc>> {
    let tables = namespace.table_stats()?;
    let now_us = millrace_namespace::now_us();
    let doc = |DatabaseStat { settings, lag, report }: DatabaseStat| {
        let its = tables.iter().filter(|table| table.options.database == Some(settings.name));
        DatabaseDoc {
            tables: its.map(|table| table.name.clone()).collect(),
            database: settings.name,
            url: settings.url,
            secret: settings.secret,
            server: Some(report.server).filter(|server| !server.is_empty()),
            unwritten: lag.rows,
            unwritten_bytes: lag.bytes,
            oldest_ms: (lag.oldest_us > 0).then(|| now_us.saturating_sub(lag.oldest_us) / 1000),
            waiting: lag.waiting as u64,
            transactions: report.transactions,
            rows: report.rows,
            coalesced: report.coalesced,
            refused: report.refused,
            trouble: report.trouble.map(|trouble| TroubleDoc {
                code: trouble.code,
                error: trouble.detail,
                stopped: report.is_stopped,
            }),
        }
    };
    Ok(namespace.database_stats()?.into_iter().map(doc).collect())
}

/// The log of this name.
pub fn log_named(namespace: &Namespace, name: &str) -> Result<LogDoc> {
    // Looked up by name first, so that an invalid name is reported as such.
    let name = namespace.log(name)?.name().clone();
    let stat = namespace.logs()?.into_iter().find(|stat| stat.name == name);
    log(namespace, &stat.ok_or_else(|| Code::LogNotFound.error(format!("no log '{name}'")))?, true)
}

/// A function and its pending runs.
pub fn function(stat: &FunctionStat) -> FunctionDoc {
    let mut doc = FunctionDoc {
        name: stat.name.to_string(),
        triggered: stat.triggered,
        done: stat.done,
        pending: stat.pending(),
        dead: stat.dead_letters.given_up,
        dead_kept: stat.dead_letters.kept,
        dead_retried: stat.dead_letters.retried,
        ..FunctionDoc::default()
    };
    match &stat.definition {
        Ok(definition) => {
            let spec = &definition.spec;
            doc.definition = Some(DefinitionDoc {
                runtime: spec.runtime.to_string(),
                on: names(&spec.on),
                at: spec.at.as_ref().map(ToString::to_string),
                ordered: spec.ordered,
                streamed: spec.streamed,
                isolation: (spec.isolation != RunIsolation::Snapshot).then(|| spec.isolation.as_str().to_owned()),
                table_mode: spec.table_mode,
                network: spec.network,
                reads: spec.rights.reads.as_deref().map(names),
                appends: spec.rights.appends.as_deref().map(names),
                sends: names(&spec.rights.sends),
                secrets: names(&spec.rights.secrets),
                concurrency: spec.concurrency,
                monitor: spec.monitor.as_ref().map(ToString::to_string),
                retries: spec.retries,
                dead_letter: spec.dead_letter.to_string(),
                code: definition.code.clone(),
            });
        }
        Err(error) => doc.error = Some(error.into()),
    }
    doc
}

/// The function of this name.
pub fn function_named(namespace: &Namespace, name: &str) -> Result<FunctionDoc> {
    let name: Name = name.parse()?;
    let found = namespace.functions()?.into_iter().find(|function| function.name == name);
    found.as_ref().map(function).ok_or_else(|| Code::FunctionNotFound.error(format!("no function '{name}'")))
}

fn record(record: &RecordRef) -> RecordName {
    RecordName { log: record.log.as_ref().map(ToString::to_string), seqno: record.seqno }
}

/// A run.
pub fn run(view: &RunView) -> RunDoc {
    let attempts = view.attempts.iter();
    let dead = view.ending.as_ref().and_then(|ending| ending.dead.as_ref());
    RunDoc {
        id: view.id.to_string(),
        function: view.function.as_ref().map(ToString::to_string),
        state: state_word(view.state).into(),
        record: record(&view.record),
        cause: id_text(view.cause),
        caused_by: id_text(view.caused_by),
        triggered: rfc3339(view.triggered),
        ended: view.ended.map(rfc3339),
        attempts: attempts.map(|a| AttemptDoc { attempt: a.attempt, time: rfc3339(a.at) }).collect(),
        reads: view.reads.iter().map(record).collect(),
        keys: view.keys.iter().map(keys_read).collect(),
        appends: view.appends.iter().map(record).collect(),
        output: view.ending.as_ref().map(|ending| ending.output.clone()),
        error: dead.map(|death| ErrorDoc {
            code: death.code.clone(),
            detail: death.error.clone(),
            ..ErrorDoc::default()
        }),
        result: view.result.as_ref().map(result),
        retried_as: view.retried_as.and_then(id_text),
        partial: view.partial,
    }
}

fn keys_read(read: &KeysRead) -> KeysReadDoc {
    let doc = KeysReadDoc { table: read.table.as_ref().map(ToString::to_string), ..KeysReadDoc::default() };
    let bound = |key: &[u8]| (!key.is_empty()).then(|| KeyText(key.into()));
    match &read.which {
        WhichKeys::Absent(key) => KeysReadDoc { absent: Some(KeyText(key.clone())), ..doc },
        WhichKeys::Range { from, to, limit } => {
            KeysReadDoc { from: bound(from), to: bound(to), limit: (*limit != u32::MAX).then_some(*limit), ..doc }
        }
    }
}

/// The result of a run.
pub fn result(result: &RunResult) -> ResultDoc {
    let kind = match result.kind {
        ResultKind::Text => "text",
        ResultKind::Bytes => "bytes",
        ResultKind::Json => "json",
        ResultKind::Dropped => "dropped",
    };
    let doc = ResultDoc { kind: kind.into(), ..ResultDoc::default() };
    match (result.kind, std::str::from_utf8(&result.bytes)) {
        (ResultKind::Dropped, _) => {
            ResultDoc { reason: Some(String::from_utf8_lossy(&result.bytes).into_owned()), ..doc }
        }
        (_, Ok(text)) => ResultDoc { data: Some(text.into()), ..doc },
        (_, Err(_)) => ResultDoc { base64: Some(BASE64_STANDARD.encode(&result.bytes)), ..doc },
    }
}

/// The run with this id, or the newest for `latest`.
pub fn run_named(namespace: &Namespace, id: &str) -> Result<RunDoc> {
    if id != "latest" {
        return Ok(run(&namespace.run(id.parse()?)?));
    }
    let newest = namespace.runs(&RunFilter { limit: 1, ..RunFilter::default() })?;
    newest.first().map(run).ok_or_else(|| Code::RunNotFound.error("there are no runs yet"))
}

/// A run's state as it is in documents.
pub fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Pending => "pending",
        RunState::Started => "started",
        RunState::Done => "done",
        RunState::Dead => "dead",
        RunState::Cancelled => "cancelled",
    }
}

/// Why nothing more is running for a function, a log or a run, or (for an empty target) in the namespace.
pub fn why(namespace: &Namespace, target: &str) -> Result<WhyDoc> {
    let why = crate::why(namespace, target)?;
    Ok(WhyDoc { target: why.target, reasons: why.reasons.into_iter().map(Into::into).collect() })
}
