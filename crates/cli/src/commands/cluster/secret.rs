//! `millrace cluster secret …`

use super::{host, part::read_secret};
use crate::{
    args::{ClusterSecretArgs, ClusterSecretCommand, Global},
    out::Out,
    place,
    report::Outcome,
};
use millrace_node::{Code, Namespace, Result, cluster::use_secret, manage::Order, secrets::ClusterSecret};
use serde_json::{Value, json};
use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

pub fn run(args: &ClusterSecretArgs, global: &Global, out: &mut Out) -> Outcome {
    match (&args.change, &args.out) {
        (Some(ClusterSecretCommand::Rotate), _) => rotate(global, out),
        (Some(ClusterSecretCommand::Use(args)), _) => take(&args.file, global, out),
        (None, Some(file)) => write(file, global, out),
        (None, None) => Err(Code::ValueInvalid.error("--out FILE is missing").into()),
    }
}

fn write(to: &Path, global: &Global, out: &mut Out) -> Outcome {
    let namespace: Namespace = place::open(global)?;
    let secret = ClusterSecret::load(namespace.dir())?.ok_or_else(|| {
        Code::NotInCluster.error(format!("{} does not belong to a cluster", namespace.dir().display()))
    })?;
    let failed = |error: std::io::Error| Code::Io.error(format!("'{}': {error}", to.display()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed)?;
    file.write_all(secret.to_text().as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    if out.json() {
        out.object(&json!({ "cluster": secret.id().to_string(), "file": to }))?;
    } else {
        out.line(format!("wrote the secret of cluster {} to {}", secret.id(), to.display()))?;
    }
    Ok(())
}

fn rotate(global: &Global, out: &mut Out) -> Outcome {
    let rotated: Value = host(global)?.manage(&Order::RotateClusterSecret)?;
    if out.json() {
        return Ok(out.object(&rotated)?);
    }
    let named = |hosts: &Value| {
        let text = |host: &Value, key: &str| host[key].as_str().unwrap_or("?").to_owned();
        let hosts = hosts.as_array().into_iter().flatten();
        hosts.map(|host| format!("{} at {}", text(host, "name"), text(host, "address"))).collect::<Vec<_>>()
    };
    let cluster = rotated["cluster"].as_str().unwrap_or("?");
    out.line(format!("cluster {cluster} has a new secret; {} have it", named(&rotated["took"]).join(", ")))?;
    let away = named(&rotated["away"]);
    for host in &away {
        out.line(format!("{host} did not answer: the others refuse it until it has the new secret"))?;
    }
    if !away.is_empty() {
        out.line(
            "`millrace cluster secret --out FILE` writes it, and `millrace cluster secret use FILE` takes it there",
        )?;
    }
    Ok(out.line("files with the old secret are of no use any more")?)
}

fn take(file: &Path, global: &Global, out: &mut Out) -> Outcome {
    let namespace: Namespace = place::open(global)?;
    let taken: Result<()> = use_secret(&namespace, &read_secret(file)?);
    taken?;
    let dir = namespace.dir().display();
    if out.json() {
        return Ok(out.object(&json!({ "namespace": dir.to_string(), "change": "taken" }))?);
    }
    Ok(out.line(format!("{dir} has the secret of its cluster; start its host again"))?)
}
