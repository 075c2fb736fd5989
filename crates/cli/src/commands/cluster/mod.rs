//! `millrace cluster …`, and how a host takes part in its cluster.

mod groups;
mod part;
mod patience;
mod plan;
mod recover;
mod secret;
pub mod topic;

pub use part::{Part, to_nats};

use crate::{
    args::{ClusterCommand, Global, GroupCommand, InitClusterArgs, RemoveHostArgs},
    out::{Out, Table},
    place::{self, Place, remote::Remote},
    report::Outcome,
    show,
};
use millrace_node::{Code, Namespace, Result, cluster::Facts};
use patience::patiently;
use serde_json::{Value, json};
use std::collections::HashMap;

pub fn run(command: &ClusterCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        ClusterCommand::Init(args) => init(args, global, out),
        ClusterCommand::Secret(args) => secret::run(args, global, out),
        ClusterCommand::Ls => ls(global, out),
        ClusterCommand::Why => why(global, out),
        ClusterCommand::Lead(args) => {
            let remote = host(global)?;
            let named = &args.host.host;
            let id = id_of(&remote, named)?;
            patiently(remote.client(), out, |client| client.lead_group(args.of.group.as_deref(), id))?;
            changed(named, "leads", format!("host {named} is the leader{}", of_group(args.of.group.as_deref())), out)
        }
        ClusterCommand::Prefer(args) => {
            let site = args.site.as_deref().unwrap_or("");
            let group = args.of.group.as_deref();
            patiently(host(global)?.client(), out, |client| client.prefer_site(group, site))?;
            let line = if site.is_empty() {
                format!("any host can be the leader{}", of_group(group))
            } else {
                format!("hosts at site {site} are preferred as leaders{}", of_group(group))
            };
            if out.json() { Ok(out.object(&json!({ "preferred": site }))?) } else { Ok(out.line(line)?) }
        }
        ClusterCommand::Voters(args) => {
            let group = args.of.group.as_deref();
            patiently(host(global)?.client(), out, |client| client.set_voters(group, args.voters))?;
            let line =
                format!("{} hosts will vote{}, as soon as this many have caught up", args.voters, of_group(group));
            if out.json() { Ok(out.object(&json!({ "voters": args.voters }))?) } else { Ok(out.line(line)?) }
        }
        ClusterCommand::Group(GroupCommand::Create(args)) => groups::create(args, global, out),
        ClusterCommand::Group(GroupCommand::Rm(args)) => groups::remove(args, global, out),
        ClusterCommand::Plan(args) => plan::run(args, out),
        ClusterCommand::Groups => groups::ls(global, out),
        ClusterCommand::Recover(args) => recover::run(args, global, out),
        ClusterCommand::Rm(args) => remove(args, global, out),
    }
}

fn remove(args: &RemoveHostArgs, global: &Global, out: &mut Out) -> Outcome {
    let (remote, host) = (host(global)?, &args.host.host);
    let id = id_of(&remote, host)?;
    let lose: Vec<&str> = args.lose.iter().map(|group| &**group).collect();
    patiently(remote.client(), out, |client| client.remove_host(id, &lose))?;
    let mut line = format!("removed host {host}");
    if !lose.is_empty() {
        line += &format!(
            "; gave up {} with all topics",
            lose.iter().map(|group| format!("group {group}")).collect::<Vec<_>>().join(", ")
        );
    }
    changed(host, "removed", line, out)
}

/// The host of the namespace that a command is about: for a directory, the one that serves it.
fn host(global: &Global) -> Result<Remote> {
    Place::find(global)?.connect()
}

/// The id of a host that was named by its name or its id.
fn id_of(remote: &Remote, named: &str) -> Result<u64> {
    let cluster: Value = remote.document("cluster")?;
    let hosts = cluster["hosts"].as_array().into_iter().flatten();
    let found: Vec<&str> = hosts
        .filter(|host| host["host"] == named || host["name"] == named)
        .filter_map(|host| host["host"].as_str())
        .collect();
    let id = match found.as_slice() {
        [one] => u64::from_str_radix(one, 16).ok(),
        _ => None,
    };
    id.ok_or_else(|| {
        let named: String = named.chars().take(80).flat_map(char::escape_debug).collect();
        Code::HostNotInCluster.error(match found.len() {
            0 => format!("no host has the name or id '{named}'"),
            hosts => format!("{hosts} hosts have the name '{named}'; use the id of one of them"),
        })
    })
}

/// The names of the hosts of a cluster, by id.
struct Names(HashMap<String, String>);

impl Names {
    fn of(cluster: &Value) -> Self {
        let text = |host: &Value, key: &str| host[key].as_str().map(str::to_owned);
        let hosts = cluster["hosts"].as_array().into_iter().flatten();
        Self(hosts.filter_map(|host| Some((text(host, "host")?, text(host, "name")?))).collect())
    }

    /// The name of a host, which says more than an id, if only one host has it; otherwise the id.
    fn show<'a>(&'a self, id: &'a Value) -> &'a str {
        let id = id.as_str().unwrap_or("-");
        let is_unique = |name: &str| self.0.values().filter(|other| **other == name).count() == 1;
        self.0.get(id).map(|name| &**name).filter(|name| !name.is_empty() && is_unique(name)).unwrap_or(id)
    }
}

fn of_group(group: Option<&str>) -> String {
    group.map(|group| format!(" in group {group}")).unwrap_or_default()
}

fn changed(host: &str, change: &str, line: String, out: &mut Out) -> Outcome {
    if out.json() { Ok(out.object(&json!({ "host": host, "change": change }))?) } else { Ok(out.line(line)?) }
}

fn init(args: &InitClusterArgs, global: &Global, out: &mut Out) -> Outcome {
    let namespace: Namespace = place::open(global)?;
    let secret = args.cluster_secret.as_deref().map(part::read_secret).transpose()?;
    let facts = Facts::begin(&namespace, &args.site, secret)?;
    let dir = namespace.dir().display();
    if out.json() {
        out.object(
            &json!({ "cluster": facts.cluster, "host": millrace_node::cluster::shown(facts.host), "site": facts.site }),
        )?;
    } else {
        out.line(format!("{dir} is the first host of cluster {}, at site {}", facts.cluster, facts.site))?;
        out.line("other hosts need its secret to join: `millrace cluster secret --out FILE` writes it")?;
    }
    Ok(())
}

fn why(global: &Global, out: &mut Out) -> Outcome {
    let cluster: Value = host(global)?.document("cluster")?;
    let reasons: Vec<&str> = cluster["why"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if out.json() {
        return Ok(out.object(&json!({ "why": reasons }))?);
    }
    if reasons.is_empty() {
        return Ok(out.line("no problems found")?);
    }
    for reason in reasons {
        out.line(reason)?;
    }
    Ok(())
}

/// The labels of a host.
fn labels(host: &Value) -> String {
    let labels = host["labels"].as_object().into_iter().flatten();
    labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("?"))).collect::<Vec<_>>().join(", ")
}

fn ls(global: &Global, out: &mut Out) -> Outcome {
    let cluster: Value = host(global)?.document("cluster")?;
    if out.json() {
        return Ok(out.object(&cluster)?);
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let leader = if cluster["leader"].is_null() { "none".into() } else { text(&cluster["leader"]) };
    out.line(format!(
        "cluster {}  group {}  term {}  leader {leader}",
        text(&cluster["cluster"]),
        text(&cluster["group"]),
        cluster["term"]
    ))?;
    let mut table = Table::new(&["host", "name", "site", "labels", "address", "role", "behind>", ""]);
    for host in cluster["hosts"].as_array().into_iter().flatten() {
        table.row(vec![
            text(&host["host"]),
            text(&host["name"]),
            text(&host["site"]),
            labels(host),
            text(&host["address"]),
            text(&host["role"]),
            host["behind"].as_u64().map_or("-".into(), show::grouped),
            if host["here"] == true { "(this host)".into() } else { String::new() },
        ]);
    }
    Ok(out.table(&table)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_shown_by_its_name_if_only_one_has_it() {
        let host = |host: &str, name: &str| json!({ "host": host, "name": name });
        let cluster = json!({ "hosts": [host("0a", "lab"), host("0b", "farm"), host("0c", "farm"), host("0d", "")] });
        let names = Names::of(&cluster);
        let shown = ["0a", "0b", "0c", "0d", "0e"].map(|id| names.show(&json!(id)).to_owned());
        assert_eq!(shown, ["lab", "0b", "0c", "0d", "0e"]);
    }
}
