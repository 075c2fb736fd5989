//! `millrace cluster recover`: a cluster whose majority is lost continues with one host.

use crate::{
    args::{Global, RecoverArgs},
    out::Out,
    place,
    report::Outcome,
    show::grouped,
};
use millrace_node::{
    Namespace,
    cluster::{RecoveredGroup, Recovery},
};
use serde_json::json;

pub fn run(args: &RecoverArgs, global: &Global, out: &mut Out) -> Outcome {
    let namespace: Namespace = place::open(global)?;
    let recovery = Recovery::plan(&namespace)?;
    let dir = namespace.dir().display().to_string();
    let mut document = json!({
        "cluster": recovery.cluster(),
        "host": recovery.host(),
        "copy": recovery.is_copy(),
        "removed": recovery.was_removed,
        "groups": recovery.groups,
        "lost": recovery.lost,
        "forgotten": recovery.forgotten,
        "recovered": args.yes,
    });
    if !out.json() {
        explain(&recovery, &dir, out)?;
    }
    if !args.yes {
        if out.json() {
            return Ok(out.object(&document)?);
        }
        return Ok(out.line(format!("nothing was changed; `millrace -n {dir} cluster recover --yes` does it"))?);
    }
    let facts = recovery.carry_out()?;
    if out.json() {
        document["new_cluster"] = facts.cluster.into();
        return Ok(out.object(&document)?);
    }
    out.line(format!("{dir} is the first host of the new cluster {}", facts.cluster))?;
    Ok(out.line("start it with `millrace serve`; other hosts need the new secret to join: `millrace cluster secret --out FILE` writes it")?)
}

fn explain(recovery: &Recovery, dir: &str, out: &mut Out) -> Outcome {
    let (host, cluster) = (recovery.host(), recovery.cluster());
    out.line(match recovery.is_copy() {
        true => format!("{dir} is a copy of host {host} of cluster {cluster}"),
        false => format!("{dir} is host {host} of cluster {cluster}"),
    })?;
    if recovery.was_removed {
        out.line("this host had been removed from the cluster: it has nothing of what was written after that")?;
    }
    out.line("")?;
    out.line("what it has, and what the new cluster would have:")?;
    for group in &recovery.groups {
        out.line(format!("  {}", line_of(group)))?;
        for topic in &group.topics {
            out.line(match (topic.outside, topic.latest) {
                (true, _) => format!("    topic {}: its records are in NATS, and stay there", topic.topic),
                (false, 0) => format!("    topic {}: no records", topic.topic),
                (false, latest) => format!("    topic {}: records up to {}", topic.topic, grouped(latest)),
            })?;
        }
        for topic in &group.missing {
            out.line(format!("    topic {topic}: lost; this host has nothing of it"))?;
        }
    }
    out.line("")?;
    out.line("what would be lost:")?;
    out.line("  records and objects that other hosts acknowledged without this host; how many there are is unknown")?;
    for lost in &recovery.lost {
        let topics = if lost.topics.is_empty() { "none".into() } else { lost.topics.join(", ") };
        out.line(format!("  group {} with its topics ({topics}): this host has no copy of it", lost.group))?;
    }
    out.line("  the subscriptions and feeds of the other hosts, and records that wait on them to be published")?;
    out.line("")?;
    if recovery.forgotten.is_empty() {
        return Ok(out.line("the new cluster knows no other host")?);
    }
    out.line(
        "hosts that the new cluster would refuse; do not start them again, and if one still runs, stop it first:",
    )?;
    for host in &recovery.forgotten {
        out.line(format!("  {} at {} ({:016x})", host.name, host.address, host.id))?;
    }
    Ok(out.line("")?)
}

fn line_of(group: &RecoveredGroup) -> String {
    let RecoveredGroup { group: name, last, committed, voted, .. } = group;
    let role = if *voted { "it has a vote" } else { "it has no vote, and may be behind the voters" };
    let certain = match last - committed {
        0 => "all of them committed".to_owned(),
        unsure => format!("{} of them not known to be committed", grouped(unsure)),
    };
    format!("group {name}: entries up to {}, {certain}; {role}", grouped(*last))
}
