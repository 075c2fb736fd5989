//! What the host says of its clients of MQTT.

use super::hub::{Hub, Mqtt, Slot};
use millrace_documents::{MqttClientDoc, MqttDoc, MqttQueueDoc, Reason, ReasonDoc, WhyDoc};
use millrace_mqtt::filter::{overlap, shared};
use millrace_node::Served;
use std::{sync::Arc, time::Duration};

/// Clients of one answer, and logs of one client.
const CLIENTS_MAX: usize = 1000;
const LOGS_MAX: usize = 100;

fn ms(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// The clients of a namespace; with `of`, only the one with this id, and those that receive topics of this filter.
pub(crate) fn clients(mqtt: &Mqtt, served: &Served, of: Option<&str>) -> MqttDoc {
    let hub = mqtt.hub(served);
    let mut slots: Vec<Arc<Slot>> = {
        let state = hub.state();
        state.slots.values().filter(|slot| of.is_none_or(|of| is_of(slot, of))).cloned().collect()
    };
    slots.sort_by(|one, other| one.key().client().cmp(other.key().client()));
    let more = slots.len().saturating_sub(CLIENTS_MAX) as u64;
    let is_wanted = |client: &str| of.is_none_or(|of| of == client);
    let refused = hub.state().refused.iter().filter(|refused| is_wanted(&refused.client)).cloned().collect();
    MqttDoc { clients: slots.iter().take(CLIENTS_MAX).map(|slot| client(&hub, slot)).collect(), more, refused }
}

/// What the clients wait for.
pub(crate) fn why(mqtt: &Mqtt, served: &Served, of: Option<&str>) -> WhyDoc {
    let MqttDoc { clients, more, refused } = clients(mqtt, served, of);
    let texts = clients.iter().map(ToString::to_string).chain(refused.iter().map(ToString::to_string));
    let mut reasons: Vec<ReasonDoc> = texts.map(|notice| Reason::Notice { notice }.into()).collect();
    if more > 0 {
        reasons.push(Reason::Notice { notice: format!("{more} more clients are not listed") }.into());
    }
    if reasons.is_empty() {
        let notice = match of {
            Some(of) => format!("no client has the id '{of}' or receives such topics", of = of.escape_debug()),
            None => "no client of MQTT has a session".to_owned(),
        };
        reasons.push(Reason::Notice { notice }.into());
    }
    let target = of.map_or_else(|| "MQTT".to_owned(), |of| format!("MQTT, '{}'", of.escape_debug()));
    WhyDoc { target, reasons }
}

fn is_of(slot: &Slot, of: &str) -> bool {
    let within = |filter: &str| overlap(shared(filter).ok().flatten().map_or(filter, |(_, within)| within), of);
    slot.key().client() == of || slot.see(|session| session.filters().any(|(filter, _)| within(filter)))
}

fn client(hub: &Hub, slot: &Slot) -> MqttClientDoc {
    let (rules, state) = (hub.rules(), hub.state());
    let inner = slot.inner();
    let mut queues: Vec<(u32, u64, u64)> =
        inner.session.pending().map(|(log, range)| (log, range.from, range.upto + 1 - range.from)).collect();
    for sharing in inner.groups.iter().filter_map(|number| state.groups.get(number)) {
        queues.extend(sharing.group.waiting());
    }
    let named = |(log, next, queued): &(u32, u64, u64)| {
        let log = state.logs.get(log)?;
        let topic = rules.topic_of(log.name());
        Some(MqttQueueDoc { log: log.name().to_string(), topic, next: *next, queued: *queued })
    };
    MqttClientDoc {
        client: slot.key().client().to_owned(),
        principal: slot.key().principal.clone(),
        connected: inner.away().is_none(),
        away_ms: inner.away().map(ms),
        kept_ms: ms(inner.expiry),
        filters: inner.session.filters().map(|(filter, _)| filter.to_owned()).collect(),
        queued: queues.iter().map(|(.., queued)| queued).sum(),
        logs: queues.iter().take(LOGS_MAX).filter_map(named).collect(),
        in_flight: inner.session.flights().len() as u64,
        in_flight_max: inner.in_flight_max() as u64,
        paused: inner.is_paused(),
    }
}
