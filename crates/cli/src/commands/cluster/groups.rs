//! `millrace cluster groups` and `millrace cluster group …`

use super::{Names, host, id_of, patience::patiently};
use crate::{
    args::{CreateGroupArgs, Global, GroupArg},
    out::{Out, Table},
    place::remote::Remote,
    report::Outcome,
    show,
};
use millrace_node::{Code, Result};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a host that has just joined may take to hear of the others, and how often it is asked.
const JOINING_MAX: Duration = Duration::from_secs(10);
const ASKED_EVERY: Duration = Duration::from_millis(100);

pub fn create(args: &CreateGroupArgs, global: &Global, out: &mut Out) -> Outcome {
    let remote = host(global)?;
    let groups: Vec<Value> = remote.document("cluster/groups")?;
    let existed = groups.iter().any(|group| group["group"] == *args.group);
    let hosts = match (&args.site, &args.near) {
        // Others might be chosen now.
        (site, near) if existed && (site.is_some() || near.is_some() || args.here) => None,
        (Some(site), _) => {
            Some(chosen(&remote, args.count, |host| host["site"] == **site, &format!("at site '{site}'"), true)?)
        }
        (_, Some((key, value))) => {
            let has = |host: &Value| host["labels"][key] == **value;
            Some(chosen(&remote, args.count, has, &format!("with the label {key}={value}"), false)?)
        }
        _ if args.here => Some(chosen(&remote, args.count, |host| host["here"] == true, "asked", false)?),
        _ => Some(args.voters.iter().map(|named| id_of(&remote, named)).collect::<Result<Vec<u64>>>()?),
    };
    if let Some(hosts) = hosts {
        patiently(remote.client(), out, |client| client.create_group(&args.group, hosts, args.count))?;
    }
    let (change, line) = if existed {
        ("unchanged", format!("group {} already exists", args.group))
    } else {
        ("created", format!("created group {}", args.group))
    };
    if out.json() { Ok(out.object(&json!({ "group": args.group, "change": change }))?) } else { Ok(out.line(line)?) }
}

/// The cluster as a host sees it once it has heard of its own join, and so of the hosts that had joined before.
fn joined(remote: &Remote) -> Result<Value> {
    let start = Instant::now();
    loop {
        let cluster: Value = remote.document("cluster")?;
        if cluster["hosts"].as_array().is_some_and(|hosts| hosts.iter().any(|host| host["here"] == true)) {
            return Ok(cluster);
        }
        if start.elapsed() > JOINING_MAX {
            let detail = "this host has joined the cluster, but does not know the other hosts yet; try again, \
                          or run `millrace cluster why`";
            return Err(Code::GroupUnavailable.error(detail));
        }
        thread::sleep(ASKED_EVERY);
    }
}

/// So many hosts: those that fit, and of them those that vote in the fewest groups. If they are too few, and they need not be the only ones,
/// then others at their sites, and then any: each at a site with the fewest of them.
fn chosen(remote: &Remote, count: u64, fits: impl Fn(&Value) -> bool, what: &str, only: bool) -> Result<Vec<u64>> {
    let (cluster, groups): (Value, Vec<Value>) = (joined(remote)?, remote.document("cluster/groups")?);
    let votes = |host: &Value| {
        let voters = groups.iter().filter_map(|group| group["voters"].as_array());
        voters.filter(|voters| voters.contains(host)).count()
    };
    let mut left: Vec<&Value> = cluster["hosts"].as_array().into_iter().flatten().collect();
    let fitting: Vec<&Value> = left.iter().copied().filter(|host| fits(host)).collect();
    let (all, needed) = (left.len() as u64, if only { count } else { 1 });
    if (fitting.len() as u64) < needed {
        let detail = format!("{needed} hosts {what} are needed; the cluster has {}", fitting.len());
        return Err(Code::HostNotInCluster.error(detail));
    }
    if all < count {
        return Err(
            Code::HostNotInCluster.error(format!("{count} voters are needed; the cluster has only {all} hosts"))
        );
    }
    let is_beside = |host: &Value| fitting.iter().any(|fit| fit["site"] == host["site"]);
    let mut hosts: Vec<&Value> = Vec::new();
    while (hosts.len() as u64) < count {
        let rank = |host: &Value| {
            let at_site = hosts.iter().filter(|chosen| chosen["site"] == host["site"]).count();
            let apart = if is_beside(host) { 0 } else { at_site };
            // Of those that fit, hosts that do not answer come last.
            let is_silent = host["trouble"].is_string();
            (
                only && !fits(host),
                is_silent,
                !fits(host),
                !is_beside(host),
                apart,
                votes(&host["host"]),
                host["host"].as_str().map(str::to_owned),
            )
        };
        let Some(at) = (0..left.len()).min_by_key(|at| rank(left[*at])) else { break };
        hosts.push(left.remove(at));
    }
    Ok(hosts.iter().filter_map(|host| u64::from_str_radix(host["host"].as_str()?, 16).ok()).collect())
}

pub fn remove(args: &GroupArg, global: &Global, out: &mut Out) -> Outcome {
    patiently(host(global)?.client(), out, |client| client.remove_group(&args.group))?;
    if out.json() {
        Ok(out.object(&json!({ "group": args.group, "change": "removed" }))?)
    } else {
        Ok(out.line(format!("removed group {}", args.group))?)
    }
}

pub fn ls(global: &Global, out: &mut Out) -> Outcome {
    let remote = host(global)?;
    let groups: Vec<Value> = remote.document("cluster/groups")?;
    let cluster: Value = remote.document("cluster")?;
    let names = Names::of(&cluster);
    let named = |id: &Value| names.show(id).to_owned();
    let all = |hosts: &Value| hosts.as_array().into_iter().flatten().map(named).collect::<Vec<_>>().join(", ");
    let mut table = Table::new(&["group", "leader", "voters", "followers", "topics>", "behind>", "here", ""]);
    for group in groups {
        if out.json() {
            out.object(&group)?;
            continue;
        }
        table.row(vec![
            group["group"].as_str().unwrap_or("?").to_owned(),
            if group["leader"].is_null() { "-".into() } else { named(&group["leader"]) },
            all(&group["voters"]),
            all(&group["followers"]),
            show::grouped(group["topics"].as_u64().unwrap_or(0)),
            group["behind"].as_u64().map_or("-".into(), show::grouped),
            group["role"].as_str().unwrap_or("?").to_owned(),
            if group["resting"] == true { "resting".into() } else { String::new() },
        ]);
    }
    if out.json() { Ok(()) } else { Ok(out.table(&table)?) }
}
