//! The function `streams` of each side: what it publishes one by one, and what it was told before, in whatever attempt.
//!
//! ```text
//!  asks --streams--> parts:        ask|newest of raw|its seqno|time|chance|1       then the run fails, twice
//!                    from_parts:   the same, at the other side
//!                    parts:        …|seqno of part 1|number of its message|2       by a later attempt, in a later life perhaps
//!                    from_parts:   the same, at the other side
//! ```

use crate::{
    clients::{self, Asked, of_document},
    evidence::all,
    reported::Fact,
    world::{Kind, Pen, address},
};
use millrace_client::{Batch, Client, Wait};
use millrace_node::{FunctionSpec, Namespace, Result, Runtime};
use std::time::Duration;

/// An attempt fails until it is this one, so that runs are cut short between what they publish.
const ATTEMPT: u32 = 3;
const BACKOFF: Duration = Duration::from_millis(20);

/// The function's source; `side` is where it runs.
pub fn source(side: usize) -> String {
    let to = address(1 - side, "from_parts");
    format!(
        r#"
        #include "millrace.h"
        static char text[512];
        static size_t at;
        static void word(const void *data, size_t size) {{
            const char *from = (const char *)data;
            while (size-- > 0 && at < sizeof text - 32) text[at++] = *from++;
            text[at++] = '|';
        }}
        static void number(uint64_t value) {{
            char digits[24];
            size_t count = sizeof digits;
            do digits[--count] = (char)('0' + value % 10); while ((value /= 10) != 0);
            word(digits + count, sizeof digits - count);
        }}
        int handle(const mr_record *record) {{
            char raw[64];
            uint64_t chance;
            int64_t first, message, size = 0, newest = mr_latest("raw");
            if (newest < 0) return 1;
            if (newest > 0 && (size = mr_get("raw", (uint64_t)newest, raw, sizeof raw)) < 0) return 2;
            if (mr_random(&chance, sizeof chance) != 0) return 3;
            at = 0;
            word(record->data, record->size);
            word(raw, (size_t)size < sizeof raw ? (size_t)size : sizeof raw);
            number((uint64_t)newest);
            number((uint64_t)mr_now_ns());
            number(chance);
            text[at++] = '1';
            if ((first = mr_publish("parts", text, at)) < 0) return 4;
            if ((message = mr_publish("{to}", text, at)) < 0) return 5;
            if (record->attempt < {ATTEMPT}) return 6;
            at--;
            number((uint64_t)first);
            number((uint64_t)message);
            text[at++] = '2';
            if (mr_publish("parts", text, at) < 0) return 7;
            return mr_publish("{to}", text, at) < 0;
        }}"#
    )
}

pub fn spec(side: usize) -> FunctionSpec {
    let mut spec = FunctionSpec::new("streams".parse().unwrap(), Runtime::Wasm);
    spec.on = vec!["asks".parse().unwrap()];
    spec.rights.sends = vec![address(1 - side, "from_parts").parse().unwrap()];
    (spec.streamed, spec.retries, spec.backoff) = (true, 100, BACKOFF);
    spec
}

/// Asks for a run, and for everything that it publishes and is told.
pub async fn ask(client: &Client, asked: &mut Asked, pen: &Pen, text: &str) -> Result<()> {
    if pen.phase.kind != Kind::Flow {
        return Ok(()); // Its messages would be under way while others are looked at.
    }
    let seen = parts(&pen.namespace);
    client.append("asks", text.as_bytes(), clients::MEMORY).await?;
    let of_task = client.clone();
    let waits = async move { of_task.get("parts", seen + 1, Wait::ms(clients::WAIT_MS)).await };
    asked.ask(waits, clients::good(|reported| vec![clients::record("parts", &reported)]));
    let of_task = client.clone();
    let follows = async move { of_task.tail("parts", seen + 1, Default::default()).await?.next_batch().await };
    let records = |reported: Batch| reported.records.iter().map(|one| clients::record("parts", one)).collect();
    asked.ask(follows, clients::good(records));
    pen.inside(|namespace| parts(namespace) > seen).await;
    let of_task = client.clone();
    asked.ask(async move { of_task.range("parts", seen.max(1), 10, None).await }, clients::good(records));
    let of_task = client.clone();
    let latest = async move { of_task.latest("parts", 0, Wait::default()).await };
    asked.ask(latest, clients::good(|latest| vec![Fact::Reaches { log: "parts".into(), latest }]));
    // What a run was told, and what it published.
    let of_task = client.clone();
    let run = async move {
        let runs = of_document("runs", &of_task.show("runs?function=streams&limit=2").await?);
        let Some(Fact::Run { id, .. }) = runs.into_iter().next() else { return Ok(Vec::new()) };
        Ok(of_document("runs/", &of_task.show(&format!("runs/{id}")).await?))
    };
    asked.ask(run, clients::good(|facts| facts));
    Ok(())
}

fn parts(namespace: &Namespace) -> u64 {
    namespace.log("parts").map_or(0, |log| log.latest())
}

/// Whether what the runs published is of one mind: in the order in which they were asked, each part once, and the second as the
/// first.
pub fn lies(namespace: &Namespace) -> Vec<String> {
    let (asks, parts, raw) = (all(namespace, "asks"), all(namespace, "parts"), all(namespace, "raw"));
    let mut lies: Vec<String> = all(namespace, "dead/streams")
        .into_iter()
        .map(|letter| format!("a streamed run was given up: {letter}"))
        .collect();
    for (place, part) in parts.iter().enumerate() {
        let words: Vec<&str> = part.split('|').collect();
        let first: Vec<&str> = parts[place / 2 * 2].split('|').collect();
        let is_whole = match (words.len(), place % 2) {
            (6, 0) => {
                words[5] == "1" && asks.get(place / 2).is_some_and(|ask| ask == words[0]) && is_told(&words, &raw)
            }
            // `place` counts from 0.
            (8, 1) => words[..5] == first[..5] && words[5] == place.to_string() && words[7] == "2",
            _ => false,
        };
        if !is_whole {
            let before = &parts[place.saturating_sub(2)..place];
            lies.push(format!("record {} of log 'parts' is {part:?}, behind {before:?}", place + 1));
            break; // Those behind it are not in their places either.
        }
    }
    lies
}

/// Whether the record that the run was told is there.
fn is_told(words: &[&str], raw: &[String]) -> bool {
    let seqno: usize = words[2].parse().unwrap_or(usize::MAX);
    seqno == 0 || raw.get(seqno - 1).is_some_and(|record| record.bytes().take(64).eq(words[1].bytes()))
}

/// What `other` has of runs of `recovered` that these have not published.
pub fn lies_there(other: &Namespace, recovered: &Namespace) -> Vec<String> {
    let (there, here) = (all(other, "from_parts"), all(recovered, "parts"));
    match there.iter().enumerate().find(|(place, message)| here.get(*place) != Some(message)) {
        Some((place, message)) => {
            vec![format!(
                "message {} of streamed runs, {message:?}, arrived; {:?} was published",
                place + 1,
                here.get(place)
            )]
        }
        None => Vec::new(),
    }
}

/// Whether all runs of one side have published all, and all has come to the other one.
pub fn has_arrived(from: &Namespace, to: &Namespace) -> bool {
    all(from, "parts").len() == 2 * all(from, "asks").len() && all(to, "from_parts").len() == all(from, "parts").len()
}
