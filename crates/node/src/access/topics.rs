//! The access of a caller to the cluster's topics: a topic takes the rights on the log `topics/NAME`.
//!
//! Answers of a group pass no gate: it has their content on the disks of a majority before it answers. What this host alone has on its disk
//! passes the gate.

use super::{Access, Served};
use crate::{
    Gated,
    cluster::{Cluster, DELIVERED, Facts, NewPublish},
};
use millrace_security::token::{Resource, Right};
use millrace_wire::{Code, Hlc, Name, Result};
use std::{borrow::Cow, sync::Arc};

type ToPublish<'c, 'k> = (&'c Arc<Cluster>, Option<Cow<'k, str>>);

impl Served {
    /// The namespace's part in its cluster, once it takes part.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.inner.cluster.get()
    }

    /// Starts the namespace's part in its cluster; can be called once.
    pub fn set_cluster(&self, cluster: Arc<Cluster>) {
        if let Some(objects) = &self.inner.objects {
            objects.set_cluster(&cluster);
        }
        let _ = self.inner.cluster.set(cluster);
    }
}

impl Access {
    /// The cluster, for a caller with this right on a topic.
    pub fn topics(&self, right: Right, topic: &str) -> Result<&Arc<Cluster>> {
        self.check(right, Resource::log(&as_log(topic)))?;
        self.of_cluster()
    }

    /// The cluster, for a caller that may publish this many bytes, and the key as it is stored.
    pub fn topics_to_publish<'k>(&self, topic: &str, bytes: usize, key: Option<&'k str>) -> Result<ToPublish<'_, 'k>> {
        self.check_append(&as_log(topic), bytes, None)?;
        Ok((self.of_cluster()?, self.own_key(key)?))
    }

    /// Keeps a record on the disk of this host until it is published. The key is stored as that of a publish.
    pub fn publish_later(&self, record: NewPublish<'_>, clock: Hlc) -> Gated<()> {
        let publish = || {
            let (cluster, key) = self.topics_to_publish(record.topic, record.data.len(), record.key)?;
            cluster.publish_later(NewPublish { key: key.as_deref(), ..record }, clock)
        };
        self.out(publish(), None)
    }

    /// Discards the records that wait on this host for a topic.
    pub fn discard_waiting(&self, topic: &str) -> Gated<()> {
        let discard = || self.topics(Right::Delete, topic)?.discard_waiting(topic);
        self.out(discard(), None)
    }

    /// The cluster, for a caller that may mirror a topic in a log.
    pub fn topics_to_mirror(&self, topic: &str, log: &str) -> Result<&Arc<Cluster>> {
        self.check(Right::Create, Resource::log(log))?;
        self.topics(Right::Read, topic)
    }

    /// Begins a mirror of a topic that this host knows.
    pub fn mirror(&self, topic: &str, log: &str, history: Option<u64>) -> Gated<()> {
        let begin = || self.topics_to_mirror(topic, log)?.begin_mirror(topic, log, history);
        self.out(begin(), None)
    }

    /// Ends a mirror.
    pub fn unmirror(&self, topic: &str, log: &str) -> Gated<()> {
        let end = || self.topics_to_mirror(topic, log)?.end_mirror(topic, log);
        self.out(end(), None)
    }

    /// The cluster, for a caller that may subscribe a function to a topic.
    pub fn topics_to_subscribe(&self, topic: &str, function: &str) -> Result<&Arc<Cluster>> {
        self.check(Right::Run, Resource::function(function))?;
        self.topics(Right::Read, topic)
    }

    /// The cluster, for a caller that may let a log feed a topic.
    pub fn topics_to_feed(&self, topic: &str, log: &str) -> Result<&Arc<Cluster>> {
        self.check(Right::Read, Resource::log(log))?;
        self.topics_to_publish(topic, 0, None).map(|(cluster, _)| cluster)
    }

    /// The topics that a function of this name runs for here, as the logs whose rights they take.
    pub(super) fn topics_of(&self, function: &Name) -> impl Iterator<Item = String> {
        let cluster = self.served.cluster();
        let topics = cluster.map(|cluster| cluster.subscribed(function)).unwrap_or_default();
        topics.into_iter().map(|topic| as_log(&topic))
    }

    /// The cluster, for a caller that may change its hosts.
    pub fn cluster_to_change(&self) -> Result<&Arc<Cluster>> {
        self.check(Right::Admin, Resource::NAMESPACE)?;
        self.of_cluster()
    }

    /// The cluster, for another host of it.
    pub fn cluster_of_peer(&self) -> Result<&Arc<Cluster>> {
        let refused = || Code::CapabilityRefused.error("only hosts of the cluster may send this message");
        let secret = self.served.keys().cluster().ok_or_else(refused)?;
        let parts = self.caller.chain().map(|chain| &*chain.parts).unwrap_or_default();
        if parts.is_empty() || parts.iter().any(|part| part.authority != secret.id()) {
            return Err(refused());
        }
        self.check_peer()?;
        self.of_cluster()
    }

    /// The cluster that the namespace belongs to.
    pub fn of_cluster(&self) -> Result<&Arc<Cluster>> {
        self.served.cluster().ok_or_else(|| {
            let other =
                || Code::NotInCluster.error(format!("namespace '{}' does not belong to a cluster", self.served.name()));
            // A copy of a host's namespace cannot become a host by `cluster init`, which other advice would name.
            let copied = Facts::load(self.namespace()).err().filter(|error| error.code() == Code::ClusterCopied);
            copied.unwrap_or_else(other)
        })
    }
}

fn as_log(topic: &str) -> String {
    format!("topics/{topic}")
}

/// The resource whose right is needed to read this log: for the log of a subscription, the topic.
pub(super) fn source_of(log: &str) -> Cow<'_, str> {
    let delivered = log.strip_prefix(DELIVERED).and_then(|name| name.split_once('/'));
    delivered.map_or(Cow::Borrowed(log), |(_function, topic)| Cow::Owned(as_log(topic)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AppendOptions, FunctionSpec, Namespace, Runtime,
        cluster::{self, ClusterOptions, ELECTION, Facts, Labels, Member, Post, Reply, TopicOptions},
        functions,
        manage::{Order, Sending, Up},
        secrets::{Authority, ClusterSecret},
    };
    use millrace_journal::CreateOptions;
    use millrace_security::token::Caller;
    use millrace_security::token::{
        AuthorityId, Grant, Key, Kind, Peer, Proof, Rights, Rules, Token, TokenId, Way, admit,
    };
    use millrace_wire::{LogName, protocol::Link};
    use std::{
        collections::BTreeMap,
        os::unix::fs::PermissionsExt,
        sync::mpsc::channel,
        time::{Duration, Instant},
    };

    struct Nowhere;

    impl Post for Nowhere {
        fn send(&self, _: u64, _: u32, _: Vec<u8>) {}
        fn members(&self, _: &[Member]) {}
        fn trouble(&self, _: u64) -> Option<String> {
            None
        }
    }

    fn served(dir: &std::path::Path) -> Served {
        let namespace = Namespace::create(&dir.join("ns"), &CreateOptions::default()).unwrap();
        Authority::ensure(namespace.dir()).unwrap();
        Facts::begin(&namespace, "lab", None).unwrap();
        let options = ClusterOptions {
            address: "127.0.0.1:9".into(),
            name: "n".into(),
            labels: Labels::new(),
            election: ELECTION,
            streams: None,
        };
        let cluster = Cluster::start(&namespace, &options, Arc::new(Nowhere)).unwrap().unwrap();
        let served = Served::new("n".parse().unwrap(), namespace).unwrap();
        served.set_cluster(Arc::new(cluster));
        served
    }

    fn access(served: &Served, token: &Token) -> Access {
        access_from(served, token, Peer { way: Way::Unix, address: None, key: None })
    }

    fn access_from(served: &Served, token: &Token, peer: Peer) -> Access {
        let keys = served.keys().current().unwrap();
        let caller = admit(&*keys, token.body(), Proof::Bearer(token.signature()), peer).unwrap();
        served.access(&Arc::new(caller))
    }

    fn everything(id: u8) -> Rules {
        Rules { grants: vec![Grant::namespace(Rights::ALL)], ids: vec![TokenId([id; 8])], ..Rules::default() }
    }

    #[test]
    fn a_clusters_secret_gives_no_right_but_that_of_its_hosts() {
        let dir = tempfile::tempdir().unwrap();
        let served = served(dir.path());
        served.namespace().create_log(&"raw".parse().unwrap(), 10).unwrap();
        // Anyone who has the secret has its key, and issues what it likes: here all rights.
        let secret = ClusterSecret::load(served.namespace().dir()).unwrap().unwrap();
        let text = secret.to_text();
        let digits = text.strip_prefix("mrc1_").unwrap();
        let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..48).map(byte).collect();
        let (id, key) = (AuthorityId(bytes[8..16].try_into().unwrap()), Key::new(bytes[16..48].try_into().unwrap()));
        assert_eq!(id, secret.id());
        let access_of = |token: &Token| access(&served, token);
        let own = secret.tokens().unwrap();
        assert!(!own.is_empty());
        for token in own.into_iter().chain([Token::issue(&key, id, 1, &everything(1)).unwrap()]) {
            let peer = access_of(&token);
            for right in [Right::Read, Right::Append, Right::Admin, Right::Link, Right::Observe, Right::Grant] {
                for on in [Resource::NAMESPACE, Resource::log("raw")] {
                    assert_eq!(peer.check(right, on).unwrap_err().code(), Code::CapabilityDenied, "{right} {on:?}");
                    assert!(!peer.may(right, on), "{right} {on:?}");
                }
            }
            assert!(!peer.sees("raw") && !peer.sees_all());
            let link = Link { stream: "in", namespace: 7, epoch: 1, ..Link::default() };
            assert_eq!(peer.link(&link).wait().err().map(|error| error.code()), Some(Code::CapabilityDenied));
            assert_eq!(peer.topics(Right::Read, "t").err().map(|error| error.code()), Some(Code::CapabilityDenied));
            peer.cluster_of_peer().unwrap();
        }
        // Those of the namespace's own authority have their rights, and are no hosts.
        let holder = access_of(&Authority::ensure(served.namespace().dir()).unwrap().issue(&everything(2)).unwrap());
        assert!(holder.check(Right::Append, Resource::log("raw")).is_ok() && holder.sees("raw"));
        assert_eq!(holder.cluster_of_peer().err().map(|error| error.code()), Some(Code::CapabilityRefused));
    }

    #[test]
    fn records_that_a_topic_has_not_received_are_trimmed_by_force_only() {
        let dir = tempfile::tempdir().unwrap();
        let served = served(dir.path());
        let (namespace, cluster) = (served.namespace(), served.cluster().unwrap());
        let log: LogName = "l".parse().unwrap();
        let called = |call: &dyn Fn(Reply<()>)| {
            let (sender, receiver) = channel();
            call(Box::new(move |outcome| drop(sender.send(outcome))));
            receiver.recv().unwrap().unwrap();
        };
        let append = || namespace.append("l", b"x", AppendOptions::default()).unwrap();
        let options = TopicOptions {
            history: 10,
            durability: cluster::Durability::Quorum,
            group: None,
            engine: cluster::Engine::Builtin,
        };
        called(&|reply| cluster.create("t", &options, reply));
        namespace.create_log(&log, 10).unwrap();
        called(&|reply| cluster.feed("t", "l", reply));
        append();
        let start = Instant::now();
        while cluster.latest("t") != Ok(1) {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is fed");
            std::thread::sleep(Duration::from_millis(5));
        }
        let peer = Peer { way: Way::Unix, address: None, key: None };
        let owner = served.access(&Arc::new(Caller::owner(peer)));
        let trim = |before, force| owner.manage(Order::TrimLog { log: log.clone(), before, force }, None).wait();
        trim(Some(2), false).unwrap();
        // A log that was created again is not published, so the topic has only its first record.
        namespace.remove_log(&log).unwrap();
        namespace.create_log(&log, 10).unwrap();
        for _ in 0..3 {
            append();
        }
        let refused = trim(None, false).unwrap_err();
        assert_eq!(refused.code(), Code::LogNotForwarded);
        assert_eq!(refused.detail(), "topic 't' has not received records 2 to 3 of log 'l'");
        assert_eq!(namespace.log("l").unwrap().earliest(), 1, "nothing was dropped");
        trim(Some(2), false).unwrap();
        trim(None, true).unwrap();
        assert_eq!(namespace.log("l").unwrap().earliest(), 4);
    }

    #[test]
    fn other_code_of_a_function_takes_the_right_to_the_topics_that_it_runs_for() {
        let dir = tempfile::tempdir().unwrap();
        let served = served(dir.path());
        let (namespace, cluster) = (served.namespace(), served.cluster().unwrap());
        let code = dir.path().join("run.sh");
        std::fs::write(&code, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&code, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut spec = FunctionSpec::new("keep".parse().unwrap(), Runtime::Oneshot);
        spec.command = vec!["./run.sh".into()];
        functions::deploy(namespace, &spec, &code).unwrap();
        let called = |call: &dyn Fn(Reply<()>)| {
            let (sender, receiver) = channel();
            call(Box::new(move |outcome| drop(sender.send(outcome))));
            receiver.recv().unwrap().unwrap();
        };
        let options = TopicOptions {
            history: 10,
            durability: cluster::Durability::Quorum,
            group: None,
            engine: cluster::Engine::Builtin,
        };
        called(&|reply| cluster.create("news", &options, reply));
        called(&|reply| cluster.subscribe("news", "keep", reply));
        let authority = Authority::ensure(namespace.dir()).unwrap();
        let upped = |reads: Option<&str>| {
            let on = |kind, name: &str, rights: &[Right]| Grant {
                kind,
                name: name.as_bytes().into(),
                subtree: false,
                rights: rights.iter().copied().collect(),
            };
            let mut grants = vec![
                on(Kind::Function, "keep", &[Right::Bind]),
                on(Kind::Log, "dead/keep", &[Right::Append, Right::Create]),
            ];
            grants.extend(reads.map(|log| on(Kind::Log, log, &[Right::Read])));
            let rules = Rules { grants, ids: vec![TokenId([3; 8])], ..Rules::default() };
            let text = "[functions.keep]\nruntime = \"oneshot\"\ncode = \"run.sh\"\ncommand = [\"./run.sh\"]\n\
                on = []\nreads = []\nappends = []\n";
            let (file, origin, text) = ("millrace.toml".into(), "/x/millrace.toml".into(), text.into());
            let sending = Sending { file, origin, text, functions: BTreeMap::new() };
            let order = Order::Up(Up { sending, dry_run: true, ..Up::default() });
            access(&served, &authority.issue(&rules).unwrap()).manage(order, None).wait().unwrap_err().code()
        };
        // With all rights there is something else: strangers' code runs in a sandbox, and here is none.
        assert_eq!((upped(None), upped(Some("topics/news"))), (Code::DeployerRights, Code::SandboxWeak));
        cluster.publish("news", b"x", None, None, Box::new(drop));
        let start = Instant::now();
        while !namespace.latest("_topic/keep/news").is_ok_and(|latest| latest > 0) {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing is delivered");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((upped(Some("other")), upped(Some("topics/news"))), (Code::DeployerRights, Code::SandboxWeak));
        // A subscription stays when its function goes, and another one of its name would get the records.
        functions::give_up(namespace, &spec.name).unwrap();
        assert_eq!((upped(None), upped(Some("topics/news"))), (Code::DeployerRights, Code::SandboxWeak));
    }

    #[test]
    fn callers_cannot_reach_the_keys_of_others_in_a_topic() {
        let dir = tempfile::tempdir().unwrap();
        let served = served(dir.path());
        let authority = Authority::ensure(served.namespace().dir()).unwrap();
        let kept = |access: &Access| access.topics_to_publish("t", 1, Some("k")).unwrap().1.unwrap().into_owned();
        let [one, two] = [1, 2].map(|id| kept(&access(&served, &authority.issue(&everything(id)).unwrap())));
        let peer = Peer { way: Way::Unix, address: None, key: None };
        assert_eq!(kept(&served.access(&Arc::new(Caller::owner(peer)))), "k");
        assert!(one != "k" && two != "k" && one != two);
    }
    #[test]
    fn the_streams_of_a_caller_are_those_of_the_key_that_it_shows_and_formerly_of_its_capability() {
        let dir = tempfile::tempdir().unwrap();
        let served = served(dir.path());
        let authority = Authority::ensure(served.namespace().dir()).unwrap();
        let streams = |id, key| {
            let peer = Peer { way: Way::TlsProof, address: None, key };
            let access = access_from(&served, &authority.issue(&everything(id)).unwrap(), peer);
            (access.own_streams(), access.own_prefix())
        };
        // A capability that takes the place of another one, shown by the same host.
        let ((one, one_before), one_name) = streams(1, Some([7; 32]));
        let ((two, two_before), two_name) = streams(2, Some([7; 32]));
        assert!(one.is_some() && one == two, "{one:?} {two:?}");
        assert!(one_before == one_name && two_before == two_name && one_name != two_name);
        let ((other, _), _) = streams(1, Some([8; 32]));
        assert!(other.is_some() && other != one, "another host has streams of its own");
        // Without a key, the capability is all that is known.
        assert_eq!(streams(1, None), ((one_name.clone(), None), one_name));
    }
}
