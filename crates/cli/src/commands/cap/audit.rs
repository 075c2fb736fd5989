//! `millrace cap audit`: issued and revoked capabilities, and refused requests.

use crate::{
    args::{AuditArgs, Global},
    out::Out,
    place,
    report::Outcome,
    show,
};
use millrace_node::{
    AUDIT_HISTORY, Act, Audited, Namespace, Result, audit, audited,
    token::{Rules, TokenId},
};
use serde_json::json;

/// Audits that a capability with these rules was issued, before it is printed.
pub(super) fn issued(namespace: &Namespace, act: Act, rules: &Rules) -> Result<()> {
    let line = Audited::by_owner(act).of(&rules.ids);
    let label = rules.label.as_deref().map(String::from_utf8_lossy);
    audit(namespace, &label.map_or(line.clone(), |label| line.about(label)))
}

/// The ids that no line of the audit says were issued. It has no lines about capabilities that others derived.
pub(super) fn unknown(namespace: &Namespace, ids: &[TokenId]) -> Result<Vec<String>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let lines = audited(namespace, AUDIT_HISTORY)?;
    let issued = |id: &String| lines.iter().any(|(_, _, line)| line.act != Act::Revoke && line.ids.contains(id));
    Ok(ids.iter().map(TokenId::to_string).filter(|id| !issued(id)).collect())
}

pub(super) fn run(args: &AuditArgs, global: &Global, out: &mut Out) -> Outcome {
    let lines = audited(&place::open(global)?, args.limit)?;
    if lines.is_empty() && !out.json() {
        return Ok(out.line("no capability was issued or revoked, and no request was denied")?);
    }
    for (seqno, time, line) in lines {
        if out.json() {
            let object = json!({
                "seqno": seqno, "time": show::rfc3339(time), "act": line.act.as_str(), "by": line.by, "ids": line.ids,
                "about": line.about, "code": line.code, "again": line.again,
            });
            out.object(&object)?;
            continue;
        }
        let again = line.again.map(|again| format!("and {again} more times"));
        // One of a machine ends all that it was given, and the other one only this capability.
        let ids = match (line.act, &*line.ids) {
            (Act::Invite, [machine, one]) => format!("machine {machine}, invitation {one}"),
            (Act::Redeem, [machine, one]) => format!("machine {machine}, capability {one}"),
            (_, ids) => ids.join(" "),
        };
        let more = [line.about, Some(ids), line.code, again].into_iter().flatten();
        let more: Vec<String> = more.filter(|part| !part.is_empty()).collect();
        out.line(format!("{}  {:<10}  {}  {}", show::rfc3339(time), line.act.as_str(), line.by, more.join(", ")))?;
    }
    Ok(())
}
