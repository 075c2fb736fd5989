//! The names of a topic in NATS.
//!
//! ```text
//!  stream    millrace_CLUSTER_TOPIC
//!  subjects  millrace.CLUSTER.TOPIC.p                     records of publishers
//!            millrace.CLUSTER.TOPIC.f.HOST.SINCE.LOG      records of a log that feeds the topic
//! ```
//!
//! Letters, digits and `-` are unchanged. Any other byte is `_` and a letter, so two topics never have the same name.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// An escaped name that is longer is replaced by its hash: NATS accepts names of 255 bytes.
const ESCAPED_MAX_BYTES: usize = 200;

/// The names of a topic of a cluster in NATS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    pub(crate) topic: String,
    pub(crate) name: String,
    base: String,
}

/// A log of a host that feeds a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The host.
    pub host: u64,
    /// The entry that began the feed, which distinguishes it from earlier feeds of the same log.
    pub since: u64,
    /// The log.
    pub log: String,
}

impl Stream {
    /// The stream of a topic. A cluster's id consists of letters and digits.
    pub fn of(cluster: &str, topic: &str) -> Self {
        let (cluster, escaped) = (escape(cluster.as_bytes()), bounded(topic));
        let (name, base) = (format!("millrace_{cluster}_{escaped}"), format!("millrace.{cluster}.{escaped}"));
        Self { topic: topic.to_owned(), name, base }
    }

    pub(crate) fn subjects(&self) -> String {
        format!("{}.>", self.base)
    }

    pub(crate) fn published(&self) -> String {
        format!("{}.p", self.base)
    }

    pub(crate) fn fed_by(&self, source: &Source) -> String {
        format!("{}.f.{:016x}.{}.{}", self.base, source.host, source.since, bounded(&source.log))
    }
}

fn bounded(name: &str) -> String {
    let escaped = escape(name.as_bytes());
    if escaped.len() <= ESCAPED_MAX_BYTES {
        return escaped;
    }
    // No escaped name begins like this.
    let mut hashed = String::from("_h");
    for byte in Sha256::digest(name) {
        let _ = write!(hashed, "{byte:02x}");
    }
    hashed
}

/// Encodes a text with letters, digits, `-` and `_`. Different texts have different encodings.
pub(crate) fn escape(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => escaped.push(char::from(*byte)),
            b'_' => escaped.push_str("__"),
            b'/' => escaped.push_str("_s"),
            b'.' => escaped.push_str("_d"),
            other => {
                let _ = write!(escaped, "_x{other:02x}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_of_different_topics_are_different() {
        let long = "a/".repeat(99);
        let topics = ["a/b", "a.b", "a_b", "a-b", "a_sb", "a__b", "a", "b", "A", "_x", &long, &format!("{long}b")];
        let streams: Vec<Stream> = topics.iter().map(|topic| Stream::of("0123456789abcdef", topic)).collect();
        let names: HashSet<&str> = streams.iter().map(|stream| &*stream.name).collect();
        let subjects: HashSet<String> = streams.iter().map(Stream::subjects).collect();
        assert_eq!((names.len(), subjects.len()), (topics.len(), topics.len()));
        for stream in &streams {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            assert!(stream.name.len() <= 255 && stream.name.bytes().all(fits), "{}", stream.name);
        }
        assert_eq!(streams[0].name, "millrace_0123456789abcdef_a_sb");
        assert_ne!(Stream::of("01", "t").name, Stream::of("02", "t").name, "of two clusters");
    }

    #[test]
    fn a_feed_that_began_again_has_another_subject() {
        let stream = Stream::of("01", "t");
        let source = |since| Source { host: 7, since, log: "raw/in".into() };
        assert_eq!(stream.fed_by(&source(3)), "millrace.01.t.f.0000000000000007.3.raw_sin");
        assert_ne!(stream.fed_by(&source(3)), stream.fed_by(&source(4)));
    }
}
