//! `millrace cluster plan`

use crate::{
    args::PlanGroupArgs,
    out::{Out, Table},
    report::Outcome,
};
use millrace_node::{
    Code, Result,
    application::units,
    cluster::plan::{Candidate, Plan, RoundTrips, plans},
};
use serde_json::json;

pub fn run(args: &PlanGroupArgs, out: &mut Out) -> Outcome {
    let hosts = args.host.iter().map(|text| candidate(text)).collect::<Result<Vec<Candidate>>>()?;
    let mut times = RoundTrips::default();
    for text in &args.rtt {
        let (sites, time) = text.split_once('=').ok_or_else(|| unfit(text, "SITE,SITE=DURATION"))?;
        let (one, other) = sites.split_once(',').ok_or_else(|| unfit(text, "SITE,SITE=DURATION"))?;
        let time = units::parse_duration(time).map_err(|error| unfit(text, &error.to_string()))?;
        times.set(one, other, time.as_secs_f64() * 1e3);
    }
    let all = plans(&hosts, args.count, &times, args.from.as_deref())?;
    let named = |at: &usize| hosts[*at].name.clone();
    let mut table = Table::new(&["voters", "availability>", "bound>", "leader", "commit>", "publish>"]);
    for Plan { voters, availability, bound, leader, commit_ms, publish_ms } in &all {
        let voters: Vec<String> = voters.iter().map(named).collect();
        if out.json() {
            let leader = leader.as_ref().map(named);
            out.object(&json!({ "voters": voters, "availability": availability, "bound": bound, "leader": leader,
                "commit_ms": commit_ms, "publish_ms": publish_ms }))?;
            continue;
        }
        let ms = |time: &Option<f64>| time.map_or("-".into(), |ms| format!("{ms:.1} ms"));
        table.row(vec![
            voters.join(", "),
            format!("{:.4} %", availability * 100.0),
            format!("{:.4} %", bound * 100.0),
            leader.as_ref().map_or("-".into(), named),
            ms(commit_ms),
            ms(publish_ms),
        ]);
    }
    if out.json() { Ok(()) } else { Ok(out.table(&table)?) }
}

fn candidate(text: &str) -> Result<Candidate> {
    let form = "NAME=UPTIME or NAME@SITE=UPTIME, with an uptime from 0 to 100";
    let (host, uptime) = text.split_once('=').ok_or_else(|| unfit(text, form))?;
    let uptime: f64 = uptime.trim_end_matches('%').parse().map_err(|_| unfit(text, form))?;
    if host.is_empty() || !(0.0..=100.0).contains(&uptime) {
        return Err(unfit(text, form));
    }
    let (name, site) = host.split_once('@').unwrap_or((host, host));
    Ok(Candidate { name: name.into(), site: site.into(), uptime: uptime / 100.0 })
}

fn unfit(text: &str, form: &str) -> millrace_node::Error {
    let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    Code::ValueInvalid.error(format!("'{shown}': {form}"))
}
