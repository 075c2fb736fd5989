//! Small commands: `why`, `error`, `version`.

use crate::{
    args::{ErrorArgs, Global, WhyArgs},
    out::{Out, Style, Table},
    place::Place,
    report::Outcome,
};
use millrace_node::Code;
use serde_json::json;

pub fn version(out: &mut Out) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    if out.json() {
        out.object(&json!({ "version": version }))?;
    } else {
        out.line(format!("millrace {version}"))?;
    }
    Ok(())
}

pub fn error(args: &ErrorArgs, out: &mut Out) -> Outcome {
    let Some(given) = &args.code else { return all_errors(out) };
    // `mr2101` and `2101` are as clear as `MR2101`.
    let id = format!("MR{}", given.trim_start_matches(['M', 'm', 'R', 'r']));
    let Some(code) = Code::from_id(&id) else {
        let shown: String = given.chars().take(40).flat_map(char::escape_debug).collect();
        return Err(Code::CodeUnknown.error(format!("'{shown}' is not an error code")).into());
    };
    if out.json() {
        return Ok(out.object(&explained(code))?);
    }
    let title = out.styled(Style::Bold, &format!("{} {}", code.id(), words(code)));
    out.line(title)?;
    out.line(format!("  cause: {}", code.cause()))?;
    out.line(format!("  remedy: {}", code.remedy()))?;
    out.line(format!("  exit code {}, HTTP status {}", code.exit_code(), code.http_status()))?;
    Ok(())
}

fn explained(code: Code) -> serde_json::Value {
    json!({
        "code": code.id(),
        "name": format!("{code:?}"),
        "cause": code.cause(),
        "remedy": code.remedy(),
        "http_status": code.http_status(),
        "exit_code": code.exit_code(),
        "retry_after_ms": code.error("").retry_after_ms(),
    })
}

/// A code's name as words: `LogNotFound` is "log not found".
fn words(code: Code) -> String {
    let name = format!("{code:?}");
    let mut words = String::with_capacity(name.len() + 4);
    for (i, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && i > 0 {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

fn all_errors(out: &mut Out) -> Outcome {
    let mut codes: Vec<Code> = millrace_wire::catalogue().map(|(code, ..)| code).collect();
    codes.sort_by_key(|code| code.id());
    let mut table = Table::new(&["code", "meaning"]);
    for code in codes {
        if out.json() {
            out.object(&explained(code))?;
        } else {
            table.row(vec![code.id().into(), words(code)]);
        }
    }
    if !out.json() {
        out.table(&table)?;
        out.line("\n`millrace error CODE` prints the cause and the remedy.")?;
    }
    Ok(())
}

pub fn why(args: &WhyArgs, global: &Global, out: &mut Out) -> Outcome {
    let (place, target) = (Place::find(global)?, args.target.as_deref().unwrap_or(""));
    // Only the host knows the clients of MQTT.
    let of_clients = target.starts_with("mqtt:") || (target == "mqtt" && place.log(target).is_err());
    let why = if of_clients { place.connect()?.why(target)? } else { place.why(target)? };
    if out.json() {
        return Ok(out.object(&json!(why))?);
    }
    let title = out.styled(Style::Bold, &why.target);
    out.line(title)?;
    for reason in &why.reasons {
        for (at, line) in reason.text.lines().enumerate() {
            let lead = if at == 0 { "  - " } else { "    " };
            out.line(format!("{lead}{}", crate::show::one_line(line.as_bytes())))?;
        }
    }
    Ok(())
}
