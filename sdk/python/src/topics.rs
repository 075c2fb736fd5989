//! Topics of the cluster that a namespace belongs to, through a host of it.

use crate::{
    arguments::{History, SLICE, Seqno, bytes_of, history_of, patiently, seconds, text},
    errors::{OrRaise, check_importing},
    forks::Connections,
    record::{Meta, Record},
    remote::{Raised, answer, options, wait_for},
};
use millrace_client::{Place, Placement, blocking::Client};
use millrace_node::cluster::MAIN_NAME;
use millrace_wire::{Code, Result};
use pyo3::{
    prelude::*,
    types::{PyAny, PyString},
};
use std::path::PathBuf;

/// Connections to a host, for requests about topics.
#[pyclass(frozen, module = "millrace._native")]
pub struct Topics {
    open: Connections,
    place: Place,
    raised: Raised,
}

impl Topics {
    /// Asks the host while other Python threads run.
    fn ask<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&Client) -> Result<T> + Send) -> PyResult<T> {
        let client = self.open.client(py, &self.place)?;
        let answered = py.detach(|| ask(&client));
        answer(py, &self.raised, answered)
    }
}

fn shown(topic: &Bound<'_, PyString>, record: &millrace_client::Record) -> Record {
    let meta = Meta {
        seqno: record.seqno,
        id: record.id,
        hlc: record.hlc,
        cause: record.cause,
        headers: record.headers.clone(),
    };
    Record::of(topic, meta, &record.data)
}

/// The arguments `beside`, `near`, `here`, `site` and `spread`.
type PlaceArguments = (Option<String>, Option<String>, bool, Option<String>, bool);

/// The place of a new topic, unless its group is named or the default.
fn placement<'p>(
    (beside, near, here, site, spread): &'p PlaceArguments,
    group: Option<&str>,
) -> Result<Option<Placement<'p>>> {
    let near = near.as_deref().map(|near| {
        let shown: String = near.chars().take(80).flat_map(char::escape_debug).collect();
        let invalid =
            || Code::ValueInvalid.error(format!("near='{shown}' is not a label KEY=VALUE such as 'zone=barn'"));
        near.split_once('=').map(|(key, value)| Placement::Near(key, value)).ok_or_else(invalid)
    });
    let asked = [
        beside.as_deref().map(Placement::Beside),
        near.transpose()?,
        here.then_some(Placement::Here),
        site.as_deref().map(Placement::Site),
        spread.then_some(Placement::Spread),
    ];
    let mut asked = asked.into_iter().flatten();
    let (first, more) = (asked.next(), asked.next().is_some());
    if more || (first.is_some() && group.is_some()) {
        let detail = "only one of group, beside, near, here, site and spread can be given";
        return Err(Code::ValueInvalid.error(detail));
    }
    Ok(first)
}

#[pymethods]
impl Topics {
    #[new]
    #[pyo3(signature = (address, ca=None))]
    fn new(py: Python<'_>, address: &str, ca: Option<PathBuf>) -> PyResult<Self> {
        check_importing(py, address)?;
        let place: Place = address.parse().or_raise(py)?;
        let raised = Raised::default();
        let options = options(&raised, ca, None);
        let connected = py.detach(|| Client::connect(&place, &options));
        let client = answer(py, &raised, connected)?;
        Ok(Self { open: Connections::new(client), place, raised })
    }

    fn close(&self, py: Python<'_>) {
        self.open.close(py);
    }

    /// Creates a topic, and returns the name of its group.
    #[pyo3(signature = (topic, history, durability, group, engine, place))]
    #[expect(clippy::too_many_arguments, reason = "one for each of Python's")]
    fn create(
        &self,
        py: Python<'_>,
        topic: &str,
        history: Option<History>,
        durability: &str,
        group: Option<&str>,
        engine: Option<&str>,
        place: PlaceArguments,
    ) -> PyResult<String> {
        let history = history_of(history);
        let placement = placement(&place, group).or_raise(py)?;
        self.ask(py, |client| {
            let group = match placement {
                Some(placement) => client.place_topics(&[topic], placement)?.pop(),
                None => group.map(str::to_owned),
            };
            client.create_topic_in(topic, history, Some(durability), group.as_deref(), engine)?;
            Ok(group.unwrap_or_else(|| MAIN_NAME.to_owned()))
        })
    }

    fn remove(&self, py: Python<'_>, topic: &str) -> PyResult<()> {
        self.ask(py, |client| client.remove_topic(topic))
    }

    #[pyo3(signature = (topic, data, key, durability, patience))]
    fn publish(
        &self,
        py: Python<'_>,
        topic: &str,
        data: &Bound<'_, PyAny>,
        key: Option<&str>,
        durability: Option<&str>,
        patience: f64,
    ) -> PyResult<u64> {
        let data = bytes_of(data)?;
        let payload = data.as_bytes();
        patiently(py, seconds(py, "patience", patience)?, SLICE, |_| {
            self.ask(py, |client| client.publish(topic, payload, key, durability))
        })
    }

    /// A record of a topic; without an index, the newest.
    #[pyo3(signature = (topic, index=None))]
    fn get(&self, py: Python<'_>, topic: &Bound<'_, PyString>, index: Option<Seqno>) -> PyResult<Record> {
        let (name, index) = (text(topic)?, index.map_or(0, |index| index.0));
        let record = self.ask(py, |client| client.get_topic(name, index))?;
        Ok(shown(topic, &record))
    }

    /// At most `count` records from `start` on, as many as one answer holds.
    fn range(&self, py: Python<'_>, topic: &Bound<'_, PyString>, start: Seqno, count: u32) -> PyResult<Vec<Record>> {
        let name = text(topic)?;
        let batch = self.ask(py, |client| client.range_topic(name, start.0, count))?;
        Ok(batch.records.iter().map(|record| shown(topic, record)).collect())
    }

    /// The index of the newest record; waits for at most `wait` seconds until it is above `above`.
    #[pyo3(signature = (topic, above=0, wait=0.0))]
    fn latest(&self, py: Python<'_>, topic: &str, above: u64, wait: f64) -> PyResult<u64> {
        let wait = wait_for(seconds(py, "wait", wait)?);
        self.ask(py, |client| client.latest_topic(topic, above, wait.wait_ms))
    }

    fn subscribe(&self, py: Python<'_>, topic: &str, function: &str) -> PyResult<()> {
        self.ask(py, |client| client.subscribe_topic(topic, function))
    }

    fn unsubscribe(&self, py: Python<'_>, topic: &str, function: &str) -> PyResult<()> {
        self.ask(py, |client| client.unsubscribe_topic(topic, function))
    }

    fn feed(&self, py: Python<'_>, topic: &str, log: &str) -> PyResult<()> {
        self.ask(py, |client| client.feed_topic(topic, log))
    }

    fn unfeed(&self, py: Python<'_>, topic: &str, log: &str) -> PyResult<()> {
        self.ask(py, |client| client.unfeed_topic(topic, log))
    }

    /// The topics behind this name, as the host's document.
    fn page(&self, py: Python<'_>, after: &str) -> PyResult<String> {
        let path = format!("topics?after={}", crate::remote::escaped(after));
        self.ask(py, |client| client.show(&path))
    }
}
