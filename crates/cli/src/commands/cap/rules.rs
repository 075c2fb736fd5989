//! Makes the rules of a capability's block from options.

use super::new_id;
use crate::args::RuleArgs;
use millrace_node::{
    Code, Result,
    secrets::{grant, now_s, unite},
    token::{Rate, Right, Rights, Rules, Ways},
};
use std::time::Duration;

/// The rules that the options ask for, with an id of their own.
pub fn of(args: &RuleArgs) -> Result<Rules> {
    let mut grants = Vec::new();
    for (right, resources) in [(Right::Read, &args.read), (Right::Append, &args.append)] {
        for on in resources {
            grants.push(grant([right].into_iter().collect(), on)?);
        }
    }
    for allowed in &args.allow {
        let Some((rights, on)) = allowed.split_once('=') else {
            let detail = format!("'{}' is not RIGHTS=RESOURCE, such as read,append=raw/", allowed.escape_debug());
            return Err(Code::CapabilityRuleInvalid.error(detail));
        };
        grants.push(grant(rights.split(',').map(str::parse).collect::<Result<Rights>>()?, on)?);
    }
    if args.expires.is_some_and(|time| time.as_secs() == 0) {
        return Err(invalid("the capability would expire at once; --expires is at least 1s".into()));
    }
    let bits = args.way.iter().fold(0, |bits, way| bits | *way as u8);
    let record_max_bytes = args.record_max.map(|bytes| {
        u32::try_from(bytes).map_err(|_| invalid(format!("--record-max is {bytes} bytes; the limit is 4 GiB")))
    });
    let rules = Rules {
        grants: unite(grants),
        not_after: args.expires.map(from_now).transpose()?,
        not_before: args.after.map(from_now).transpose()?,
        record_max_bytes: record_max_bytes.transpose()?,
        ways: Ways::from_bits(bits),
        nets: args.from.clone(),
        keys: args.key.iter().map(|key| public_key(key)).collect::<Result<_>>()?,
        rate: args.rate.as_deref().map(rate).transpose()?,
        sources: args.source.clone(),
        once: false,
        ids: vec![new_id()?],
        subject: args.subject.as_ref().map(|text| text.as_bytes().into()),
        label: args.label.as_ref().map(|text| text.as_bytes().into()),
    };
    if rules.not_before.zip(rules.not_after).is_some_and(|(start, end)| start >= end) {
        return Err(invalid("the capability would expire before it becomes valid".into()));
    }
    Ok(rules)
}

fn invalid(detail: String) -> millrace_node::Error {
    Code::CapabilityRuleInvalid.error(detail)
}

fn from_now(time: Duration) -> Result<u32> {
    let seconds = u32::try_from(time.as_secs()).ok().and_then(|seconds| now_s().checked_add(seconds));
    seconds.ok_or_else(|| {
        invalid(
            "a capability can expire at most in the year 2106; leave the option out for one that does not expire"
                .into(),
        )
    })
}

fn public_key(text: &str) -> Result<[u8; 32]> {
    let wrong = || invalid(format!("'{}' is not a SHA-256: 64 hexadecimal digits", text.escape_debug()));
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
    }
    Ok(key)
}

fn rate(text: &str) -> Result<Rate> {
    let (per_second, burst) = text.split_once('/').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().ok().filter(|number| *number > 0);
    number(per_second).zip(number(burst)).map(|(per_second, burst)| Rate { per_second, burst }).ok_or_else(|| {
        invalid(format!("'{}' is not a rate such as 10 or 10/50, with numbers from 1 to 65535", text.escape_debug()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read() -> Rights {
        [Right::Read].into_iter().collect()
    }

    #[test]
    fn resources_are_written_in_one_way() {
        for (text, shown) in [
            ("raw/kitchen", "read on log raw/kitchen"),
            ("raw/", "read on log raw and everything below it"),
            ("/", "read on every log"),
            ("log:raw", "read on log raw"),
            ("function:smooth", "read on function smooth"),
            ("function:/", "read on every function"),
            ("store:s3/bucket/", "read on store s3/bucket and everything below it"),
            ("namespace", "read on the namespace and everything in it"),
        ] {
            assert_eq!(grant(read(), text).unwrap().to_string(), shown, "{text}");
        }
        for text in [
            "",
            "raw//",
            "../x",
            "_links",
            "_inbox/",
            "namespace:",
            "namespace:x",
            "topic:x",
            "function:a/b",
            "object:",
        ] {
            assert_eq!(grant(read(), text).unwrap_err().code().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn rates_and_keys_are_read() {
        assert_eq!(rate("10").unwrap(), Rate { per_second: 10, burst: 10 });
        assert_eq!(rate("10/50").unwrap(), Rate { per_second: 10, burst: 50 });
        for text in ["", "0", "10/0", "65536", "-1", "1/2/3"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(public_key(&"0f".repeat(32)).unwrap(), [15; 32]);
        for text in ["", "0f", &"0g".repeat(32), &"é".repeat(32)] {
            assert!(public_key(text).is_err(), "{text}");
        }
    }
}
