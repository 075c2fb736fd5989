// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! The verbs of MANAGE.

/// A member: its name, its type, and whether it may be missing.
pub type Member = (&'static str, &'static str, bool);

/// Each verb and its members.
#[rustfmt::skip]
pub const VERBS: &[(&str, &[Member])] = &[
    ("retry", &[
        ("run", "id", false),
    ]),
    ("retry-function", &[
        ("function", "text", false),
        ("code", "text", true),
    ]),
    ("backfill", &[
        ("function", "text", false),
        ("log", "text", true),
        ("from", "u64", true),
        ("to", "u64", true),
        ("missed", "flag", true),
    ]),
    ("trim-log", &[
        ("log", "text", false),
        ("before", "u64", true),
        ("force", "flag", true),
    ]),
    ("remove-function", &[
        ("function", "text", false),
        ("force", "flag", true),
    ]),
    ("add-relay", &[
        ("from", "text", false),
        ("to", "text", false),
        ("name", "text", true),
        ("start", "u64", true),
        ("on_gap", "text", true),
    ]),
    ("remove-relay", &[
        ("name", "text", false),
        ("force", "flag", true),
    ]),
    ("resume-relay", &[
        ("name", "text", false),
        ("skip", "flag", true),
        ("start", "u64", true),
    ]),
    ("reset-outbox", &[
        ("peer", "text", false),
        ("skip", "flag", true),
    ]),
    ("retry-outbox", &[
        ("peer", "text", false),
    ]),
    ("remove-peer", &[
        ("peer", "text", false),
        ("force", "flag", true),
    ]),
    ("rotate-cluster-secret", &[
    ]),
    ("set-relay", &[
        ("name", "text", false),
        ("from", "text", true),
        ("to", "text", true),
    ]),
    ("set-outbox", &[
        ("peer", "text", false),
        ("to", "text", false),
    ]),
    ("create-table", &[
        ("table", "text", false),
        ("history", "u64", true),
        ("keys", "text", true),
        ("codec", "text", true),
        ("ttl_ms", "u64", true),
        ("database", "text", true),
        ("mode", "text", true),
    ]),
    ("set-database", &[
        ("database", "text", false),
        ("url", "text", false),
        ("secret", "text", true),
        ("authorities", "text", true),
        ("in_flight", "u64", true),
        ("rows", "u64", true),
        ("unwritten_max", "u64", true),
        ("accept_volatile", "flag", true),
        ("on_refused", "text", true),
        ("refuse_outside", "flag", true),
    ]),
    ("resume-database", &[
        ("database", "text", true),
    ]),
    ("resync-database", &[
        ("database", "text", false),
        ("previous_owner", "text", true),
    ]),
    ("externalize", &[
        ("table", "text", true),
    ]),
    ("set-time", &[
        ("log", "text", false),
        ("time", "object", true),
    ]),
    ("up", &[
        ("file", "text", false),
        ("origin", "text", false),
        ("text", "text", false),
        ("functions", "object", false),
        ("force", "flag", true),
        ("dry_run", "flag", true),
        ("take_over", "flag", true),
    ]),
    ("down", &[
        ("file", "text", false),
        ("origin", "text", false),
        ("text", "text", false),
        ("functions", "object", false),
        ("logs", "flag", true),
        ("force", "flag", true),
        ("take_over", "flag", true),
    ]),
    ("send-command", &[
        ("device", "text", false),
        ("log", "text", false),
        ("data", "text", true),
        ("base64", "text", true),
    ]),
    ("begin-update", &[
        ("device", "text", false),
        ("size", "u64", false),
        ("sha256", "text", false),
        ("version", "text", false),
    ]),
    ("mirror-table", &[
        ("table", "text", false),
        ("from", "text", false),
        ("history", "u64", true),
        ("reload", "flag", true),
    ]),
    ("add-firmware", &[
        ("device", "text", false),
        ("update", "u64", false),
        ("offset", "u64", false),
        ("base64", "text", false),
    ]),
    ("unmirror-table", &[
        ("table", "text", false),
    ]),
    ("append-on-device", &[
        ("device", "text", false),
        ("log", "text", false),
        ("data", "text", true),
        ("base64", "text", true),
    ]),
];
