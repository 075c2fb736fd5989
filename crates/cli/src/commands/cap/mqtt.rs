//! `millrace mqtt …`: users of MQTT.

use crate::{
    args::{Global, MqttCommand, MqttUserCommand},
    out::Out,
    place::{self, Place, remote::segment},
    report::Outcome,
};
use millrace_documents::MqttDoc;
use millrace_node::{
    Code, Name,
    mqtt::{Allowed, add_mqtt_user, mqtt_users, remove_mqtt_user},
};
use serde_json::json;

mod bridge;

fn ls(of: Option<&str>, global: &Global, out: &mut Out) -> Outcome {
    let path = of.map_or_else(|| "mqtt".to_owned(), |of| format!("mqtt?of={}", segment(of)));
    let MqttDoc { clients, more, refused } = Place::find(global)?.connect()?.document(&path)?;
    if out.json() {
        clients.iter().try_for_each(|client| out.object(&json!(client)))?;
        return Ok(refused.iter().try_for_each(|refused| out.object(&json!({ "refused": refused })))?);
    }
    clients.iter().try_for_each(|client| out.line(client.to_string()))?;
    refused.iter().try_for_each(|refused| out.line(refused.to_string()))?;
    if more > 0 {
        out.line(format!("{more} more clients are not listed; name one, or a topic filter"))?;
    }
    if clients.is_empty() && refused.is_empty() {
        out.line("no client of MQTT has a session")?;
    }
    Ok(())
}

pub fn run(command: &MqttCommand, global: &Global, out: &mut Out) -> Outcome {
    let command = match command {
        MqttCommand::User(command) => command,
        MqttCommand::Ls { of } => return ls(of.as_deref(), global, out),
        MqttCommand::Bridge(args) => return bridge::run(args, global, out),
    };
    let namespace = place::open(global)?;
    match command {
        MqttUserCommand::Add(args) => {
            let name: Name = args.name.parse()?;
            let allowed = Allowed { publish: args.publish.clone(), subscribe: args.subscribe.clone() };
            let password = add_mqtt_user(&namespace, &name, allowed)?;
            match out.json() {
                true => Ok(out.object(&json!({ "user": name, "password": password }))?),
                false => Ok(out.line(password)?),
            }
        }
        MqttUserCommand::Ls => {
            let users = mqtt_users(&namespace)?;
            for (name, Allowed { publish, subscribe }) in &users {
                if out.json() {
                    out.object(&json!({ "user": name, "publish": publish, "subscribe": subscribe }))?;
                } else {
                    let filters = |filters: &[String]| match filters {
                        [] => "nothing".to_owned(),
                        filters => filters.join(", "),
                    };
                    out.line(format!("{name}  publishes {}; receives {}", filters(publish), filters(subscribe)))?;
                }
            }
            if users.is_empty() && !out.json() {
                out.line("no users; `millrace mqtt user add NAME` adds one")?;
            }
            Ok(())
        }
        MqttUserCommand::Rm { name } => {
            let name: Name = name.parse()?;
            if !remove_mqtt_user(&namespace, &name)? {
                return Err(Code::MqttUserNotFound.error(format!("no MQTT user '{name}'")).into());
            }
            match out.json() {
                true => Ok(out.object(&json!({ "user": name, "change": "removed" }))?),
                false => Ok(out.line(format!("removed MQTT user {name}"))?),
            }
        }
    }
}
