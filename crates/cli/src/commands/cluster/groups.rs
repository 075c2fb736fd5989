//! `millrace cluster groups` and `millrace cluster group …`

use super::{host, id_of};
use crate::{
    args::{CreateGroupArgs, Global, GroupArg},
    out::{Out, Table},
    place::remote::Remote,
    report::Outcome,
    show,
};
use millrace_node::{Code, Result};
use serde_json::{Value, json};
use std::collections::HashMap;

pub fn create(args: &CreateGroupArgs, global: &Global, out: &mut Out) -> Outcome {
    let remote = host(global)?;
    let hosts = match &args.site {
        Some(site) => at_site(&remote, site, args.count)?,
        None => args.voters.iter().map(|named| id_of(&remote, named)).collect::<Result<Vec<u64>>>()?,
    };
    remote.client().create_group(&args.group, hosts, args.count)?;
    if out.json() {
        Ok(out.object(&json!({ "group": args.group, "change": "created" }))?)
    } else {
        Ok(out.line(format!("created group {}", args.group))?)
    }
}

/// So many hosts at a site: those that vote in the fewest groups.
fn at_site(remote: &Remote, site: &str, count: u64) -> Result<Vec<u64>> {
    let (cluster, groups): (Value, Vec<Value>) = (remote.document("cluster")?, remote.document("cluster/groups")?);
    let votes = |host: &Value| {
        let voters = groups.iter().filter_map(|group| group["voters"].as_array());
        voters.filter(|voters| voters.contains(host)).count()
    };
    let here = cluster["hosts"].as_array().into_iter().flatten().filter(|host| host["site"] == site);
    let mut hosts: Vec<(usize, &str)> =
        here.filter_map(|host| Some((votes(&host["host"]), host["host"].as_str()?))).collect();
    hosts.sort_unstable();
    let ids = hosts.iter().filter_map(|(_, id)| u64::from_str_radix(id, 16).ok());
    let ids: Vec<u64> = ids.take(usize::try_from(count).unwrap_or(usize::MAX)).collect();
    if (ids.len() as u64) < count {
        let detail = format!("{count} hosts are to vote; {} are at site '{site}'", ids.len());
        return Err(Code::HostNotInCluster.error(detail));
    }
    Ok(ids)
}

pub fn remove(args: &GroupArg, global: &Global, out: &mut Out) -> Outcome {
    host(global)?.client().remove_group(&args.group)?;
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
    let hosts = cluster["hosts"].as_array().into_iter().flatten();
    let names: HashMap<&str, &str> =
        hosts.filter_map(|host| Some((host["host"].as_str()?, host["name"].as_str()?))).collect();
    let is_unique = |name: &str| names.values().filter(|other| **other == name).count() == 1;
    // A name says more than an id, if only one host has it.
    let named = |id: &Value| {
        let id = id.as_str().unwrap_or("-");
        names.get(id).copied().filter(|name| !name.is_empty() && is_unique(name)).unwrap_or(id).to_owned()
    };
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
