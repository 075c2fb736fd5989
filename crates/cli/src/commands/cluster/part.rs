//! A host's part in its cluster while it serves.

use crate::{args::ClusterArgs, feed};
use millrace_gateway::{
    Bound,
    cluster::{Peers, join, nats},
};
use millrace_node::{
    Code, Error, Result, Served,
    application::units,
    cluster::{Cluster, ClusterOptions, ELECTION, Facts, Member, Streams},
    secrets::ClusterSecret,
};
use std::{fs, path::Path, sync::Arc, time::Duration};
use zeroize::Zeroizing;

/// How long a host tries to join.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);
/// The site of a host that names none.
const SITE: &str = "main";

/// The variable that takes the place of `--nats`.
const NATS_VARIABLE: &str = "MILLRACE_NATS";

/// The connection to the NATS servers that were named, if any were.
pub fn to_nats(args: &ClusterArgs) -> Result<Option<Arc<nats::Nats>>> {
    let Some(servers) = &args.nats else { return Ok(None) };
    // The variable may have one: only this user can read it.
    if servers.contains('@') && std::env::var(NATS_VARIABLE).ok().as_ref() != Some(servers) {
        return Err(Code::NatsOptions.error(format!(
            "an address of --nats has a user, a password or a token, which all users of this machine see in the list of processes; set \
             {NATS_VARIABLE} instead of --nats, or use --nats-creds"
        )));
    }
    let ClusterArgs { nats_creds, nats_ca, nats_replicas, .. } = args.clone();
    let options = nats::Options {
        servers: servers.clone(),
        credentials: nats_creds,
        authorities: nats_ca,
        replicas: nats_replicas,
        name: "millrace".into(),
    };
    nats::Nats::start(&options).map(Arc::new).map(Some)
}

/// The parts that end with the host.
pub struct Part {
    cluster: Arc<Cluster>,
    peers: Arc<Peers>,
}

impl Part {
    /// Connects a namespace with the cluster that it belongs to or joins; does nothing if there is none.
    pub fn take(
        served: &Served,
        bound: &Bound,
        args: &ClusterArgs,
        nats: Option<&Arc<nats::Nats>>,
    ) -> Result<Option<Part>> {
        let namespace = served.namespace();
        let found = match Facts::load(namespace) {
            // A copy of a host is a namespace like any other, as long as it does not want to be one.
            Err(error) if error.code() == Code::ClusterCopied && args.join.is_none() => return Ok(None),
            found => found?,
        };
        let was_host = found.is_some();
        let facts = match (found, &args.join) {
            (None, None) => return Ok(None),
            // A host may be started again with the same options, or look for the others through the host that is named.
            (Some(facts), _) => facts,
            (None, Some(at)) => {
                let own = member(served, bound, args, args.site.as_deref().unwrap_or(SITE))?;
                enter(served, at, args.cluster_secret.as_deref(), own)?
            }
        };
        let secret = ClusterSecret::load(namespace.dir())?.ok_or_else(|| {
            Code::ClusterSecretMissing.error(format!(
                "'{}' does not contain the secret of cluster {}",
                namespace.dir().display(),
                facts.cluster
            ))
        })?;
        if secret.id().to_string() != facts.cluster {
            let (dir, own, of) = (namespace.dir().display(), &facts.cluster, secret.id());
            let detail = format!("'{dir}' belongs to cluster {own}, and its secret is that of cluster {of}");
            return Err(Code::RecoveryUnfinished.error(detail));
        }
        let Member { address, name, .. } = member(served, bound, args, &facts.site)?;
        let peers = Peers::new(facts.host, &secret, served.keys())?;
        let streams =
            nats.map(|nats| Arc::new(nats::OfCluster::new(nats.clone(), facts.streams())) as Arc<dyn Streams>);
        let labels = args.label.iter().cloned().collect();
        let options = ClusterOptions { address, name, labels, election: args.election.unwrap_or(ELECTION), streams };
        let Some(cluster) = Cluster::start(namespace, &options, peers.clone())? else { return Ok(None) };
        let cluster = Arc::new(cluster);
        if let Some(at) = args.join.as_ref().filter(|_| was_host) {
            peers.seek(at, &cluster)?;
        }
        served.set_cluster(cluster.clone());
        Ok(Some(Part { cluster, peers }))
    }

    /// Takes no further part.
    pub fn stop(&self) {
        self.cluster.stop();
        self.peers.stop();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The description of this host for the others.
fn member(served: &Served, bound: &Bound, args: &ClusterArgs, site: &str) -> Result<Member> {
    let address = match (&args.advertise, bound.addresses.first()) {
        (Some(address), _) => address.clone(),
        (None, Some(first)) if !first.ip().is_unspecified() => first.to_string(),
        _ => {
            let detail =
                "the other hosts need an address at which they can reach this host: give HOST:PORT with --advertise";
            return Err(Code::ValueInvalid.error(detail));
        }
    };
    let id = served.namespace().journal().namespace().get();
    Ok(Member { id, address, name: served.name().to_string(), site: site.to_owned() })
}

/// The secret of a cluster in a file.
pub(super) fn read_secret(path: &Path) -> Result<ClusterSecret> {
    let missing = |error| Code::ClusterSecretMissing.error(format!("'{}': {error}", path.display()));
    ClusterSecret::from_text(&Zeroizing::new(fs::read_to_string(path).map_err(missing)?))
}

/// Joins: only once the cluster has taken this host in, anything is kept of it.
fn enter(served: &Served, at: &str, secret: Option<&Path>, own: Member) -> Result<Facts> {
    let missing = || Code::ClusterSecretMissing.error("--cluster-secret is missing");
    let secret = read_secret(secret.ok_or_else(missing)?)?;
    let patience = units::show_duration(JOIN_PATIENCE);
    feed::stderr(&format!("joining the cluster through {at}; waiting up to {patience} for it to accept this host\n"));
    let mut reported = None;
    let mut waits = |error: &Error| {
        if reported.replace(error.code()) != Some(error.code()) {
            feed::stderr(&format!("not joined yet: {}: {}; trying again\n", error.code().id(), error.detail()));
        }
    };
    let joined = join(at, &secret, &own, JOIN_PATIENCE, &mut waits)?;
    let namespace = served.namespace();
    secret.keep(namespace.dir())?;
    served.keys().set_cluster(Arc::new(secret));
    let facts = Facts {
        cluster: joined.cluster,
        host: own.id,
        site: own.site,
        founders: joined.founders,
        members: joined.members,
        streams: joined.streams,
    };
    facts.note(namespace)?;
    Ok(facts)
}
