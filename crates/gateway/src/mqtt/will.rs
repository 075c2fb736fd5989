//! The last wills of clients.

use super::{
    hub::{Hub, Slot},
    incoming::{Message, Note, Said, append},
    line::LastWill,
    saving::SavedWill,
};
use crate::server::tasks;
use millrace_mqtt::packet::Qos;
use millrace_node::Access;
use millrace_wire::Code;
use std::{sync::Arc, time::Duration};
use tokio::{runtime::Handle, time::sleep};

/// Appends the will of a client that is gone; after its delay, unless the client is back.
pub(super) fn publish(hub: &Arc<Hub>, slot: &Arc<Slot>, access: &Access, will: LastWill) {
    let (hub, slot, access) = (hub.clone(), slot.clone(), access.clone());
    if Handle::try_current().is_err() {
        return; // The host ends.
    }
    let delay = will.delay.min(slot.expiry());
    tasks::of_connection(async move {
        if !delay.is_zero() {
            let taken = slot.taken.notified();
            tokio::pin!(taken);
            taken.as_mut().enable();
            let is_back = !slot.is_free()
                || tokio::select! {
                    () = sleep(delay) => false,
                    () = &mut taken => true,
                };
            // The client is back: what it does from now on has a will of its own. If it has begun another session, the will of this one is due.
            if is_back && !slot.is_over() {
                return;
            }
        }
        append_will(&hub, &access, slot.key().client(), will).await;
    });
}

/// Appends the will of a client whose host died; after a time, unless the client is back.
pub(super) fn publish_saved(hub: &Arc<Hub>, row: Vec<u8>, delay: Duration) {
    let hub = hub.clone();
    tasks::of_connection(async move {
        sleep(delay).await;
        let found = {
            let mut state = hub.state();
            let at = state.wills.iter().position(|(_, will)| will.row == row);
            at.map(|at| state.wills.swap_remove(at))
        };
        if let Some((key, will)) = found {
            let access = hub.served.own_access();
            let SavedWill { row, topic, payload, headers } = will;
            let will = LastWill { topic, payload, headers, delay: Duration::ZERO, row: Some(row) };
            append_will(&hub, &access, key.client(), will).await;
        }
    });
}

async fn append_will(hub: &Hub, access: &Access, client: &str, will: LastWill) {
    let LastWill { topic, payload, headers, row, .. } = will;
    let rules = hub.rules();
    let appended = match rules.log_of(&topic) {
        Some(log) => {
            let (creates, note) = (rules.is_ruled(&topic), row.map_or(Note::Nothing, Note::Takes));
            let said = Said { headers, ..Said::default() };
            let message = Message { log, creates, payload, said, qos: Qos::AtLeastOnce, id: 0, note };
            access.submit(move |access| append(access, &message)).await.await
        }
        None => Err(Code::MqttTopicUnmapped.error("its records would have another topic")),
    };
    if let Err(error) = appended {
        tracing::warn!(
            target: "requests", protocol = "mqtt", code = error.code().id(),
            "the will of client '{}' for '{}' was not appended: {}",
            client.escape_debug(), topic.escape_debug(), error.detail()
        );
    }
}
