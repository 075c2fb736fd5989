//! Serving namespaces: what `serve` and `dev` have in common.

use super::cluster::{Part, to_nats};
use crate::{
    args::{ClusterArgs, ListenArgs},
    out::Out,
    report::{self, Outcome},
    show,
};
use millrace_client::credentials;
use millrace_gateway::{
    Bound, Certificate, DatabaseWriters, Hosted, Linker, Listen, ORIGINS_MAX, Replicator, SOCKET, Server,
    ServerOptions, reach,
};
use millrace_node::{
    Code, Error, Host, HostOptions, Isolation, Level, Name, Namespace, Observer, Result, Served,
    application::units,
    default_name, is_local,
    links::LinkObserver,
    secrets::{HostKey, now_s},
};
use serde_json::{Value, json};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// Additional time for threads that end by themselves after the time to drain.
const GRACE: Duration = Duration::from_secs(5);

/// Ends the process after `patience` if something still waits: for a disk that does not answer, or for a lock that is not released. All
/// acknowledged records stay; the next start recovers the journal.
fn end_in_time(served: &[Served], patience: Duration, json: bool) -> Result<()> {
    let named = |served: &Served| (served.namespace().dir().display().to_string(), served.when_blocked());
    let served: Vec<_> = served.iter().map(named).collect();
    let wait = move || {
        thread::sleep(patience);
        let blocked = served.iter().find_map(|(dir, blocked)| Some(format!("{dir}: {}", blocked()?)));
        let time = units::show_duration(patience);
        let what = blocked.unwrap_or_else(|| "a thread of the host does not end".to_owned());
        report::say(&Code::HostStuck.error(format!("not stopped after {time}: {what}")), json);
        std::process::exit(1);
    };
    let started = millrace_threads::spawn(thread::Builder::new().name("stop".into()), wait);
    started.map(drop).map_err(|error| Code::HostStart.error(format!("cannot start a thread: {error}")))
}

/// Hosts that run functions, and the server through which the world reaches them.
pub struct Serving {
    hosts: Vec<Host>,
    served: Vec<Served>,
    server: Server,
    linkers: Vec<Linker>,
    replicators: Vec<Replicator>,
    parts: Vec<Part>,
    isolation: Arc<Isolation>,
    certificate: Option<Arc<Certificate>>,
    _tokens: Tokens,
    /// The thread that asks the others whether they are well is missed too.
    /// Until the last answer has left.
    writers: Vec<DatabaseWriters>,
    _main: millrace_threads::Watched,
}

/// How functions are kept apart: as well as this machine gives, unless less was asked for, and no less than was required.
pub fn isolation(args: &ListenArgs) -> Result<Arc<Isolation>> {
    let required = args.require_sandbox.unwrap_or(Level::None);
    let isolation = super::sandbox::at_most(args.sandbox.max(required));
    if isolation.level() < required {
        let found = isolation.summary();
        let remedies: Vec<&str> = isolation.shortcomings().iter().map(|missing| missing.remedy).collect();
        let detail =
            format!("--require-sandbox is {required}, but this machine supports only {found}: {}", remedies.join("; "));
        return Err(Code::HostStart.error(detail));
    }
    Ok(isolation)
}

/// The host's TLS key: created if the host listens beyond loopback, and used whenever it exists.
fn host_key(served: &[Served], listen: &Listen, certificate: bool) -> Result<Option<HostKey>> {
    let Some(first) = served.first() else { return Ok(None) };
    let dir = first.namespace().dir();
    if listen.is_beyond_loopback() || certificate { HostKey::ensure(dir).map(Some) } else { HostKey::load(dir) }
}

/// The files that say to programs of this user what to open the channel with. They go with the host.
struct Tokens {
    _files: Vec<credentials::Left>,
}

impl Tokens {
    /// Writes a token for each address that programs of this machine use. Without a directory for it, there is none.
    fn leave(served: &[Served], bound: &Bound) -> Self {
        let line = |served: &Served| {
            let token = served.keys().of_machine().ok()?;
            Some(Zeroizing::new(format!("{} {}\n", served.name(), *token.to_text())))
        };
        let mut text = Zeroizing::new(String::with_capacity(4096));
        served.iter().filter_map(line).for_each(|line| text.push_str(&line));
        let local = |address: &SocketAddr| match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
            IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port()),
            _ => *address,
        };
        let addresses = bound.addresses.iter().map(local).filter(|address| is_local(address.ip()));
        let files = addresses.filter_map(credentials::machine_file);
        Self { _files: files.filter_map(|file| credentials::Left::leave(file, &text).ok()).collect() }
    }
}

/// A namespace, and the name under which it is to be served, if one was given.
pub type Named = (Option<Name>, Namespace);

/// The observer of a host.
pub struct Observers {
    /// Of runs.
    pub runs: Observer,
    /// Of links.
    pub links: LinkObserver,
}

impl Serving {
    /// Becomes the host of each namespace, and listens.
    pub fn start(
        namespaces: Vec<Named>,
        args: &ListenArgs,
        cluster: &ClusterArgs,
        ca: Option<&Path>,
        observers: &Observers,
    ) -> Result<Serving> {
        // Links would report it again and again.
        ca.map_or(Ok(()), credentials::check_authorities)?;
        let refused = |error| millrace_node::Code::HostStart.error(format!("cannot start a thread: {error}"));
        let main = millrace_threads::watch_me().map_err(refused)?;
        let isolation = isolation(args)?;
        let mut hosts = Vec::new();
        let mut served: Vec<Served> = Vec::new();
        for (name, namespace) in namespaces {
            let options = HostOptions {
                observer: Some(observers.runs.clone()),
                isolation: Some(Arc::clone(&isolation)),
                reach: Some(reach(ca.map(Path::to_owned))),
            };
            let host = Host::start(namespace.clone(), options)?;
            let objects = host.objects().clone();
            hosts.push(host);
            let name = name.or_else(|| args.name.clone()).unwrap_or_else(|| default_name(namespace.dir()));
            if served.iter().any(|other| *other.name() == name) {
                let detail = format!("two namespaces have the name '{name}'; write NAME=DIR");
                return Err(millrace_node::Code::ValueInvalid.error(detail));
            }
            served.push(Served::with_objects(name, namespace, Some(objects))?);
        }
        let files = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
        let certificate = files.map(|(chain, key)| Certificate::open(chain, key).map(Arc::new)).transpose()?;
        let options = ServerOptions {
            listen: args.listen(),
            socket: served.first().map(|served| served.namespace().dir().join(SOCKET)),
            connections_max: usize::try_from(args.connections_max).unwrap_or(usize::MAX),
            key: host_key(&served, &args.listen(), certificate.is_some())?.map(Arc::new),
            certificate: certificate.clone(),
            ..ServerOptions::default()
        };
        if args.cors_origin.len() > ORIGINS_MAX {
            let detail = format!("{} origins; the limit is {ORIGINS_MAX}", args.cors_origin.len());
            return Err(Code::ValueInvalid.error(detail));
        }
        let hosted = Hosted::new(served.clone()).keeping_apart(Arc::clone(&isolation));
        let hosted = hosted.answering(args.cors_origin.clone()).showing(certificate.clone());
        // Before anything is answered.
        let writers = served.iter().map(|served| DatabaseWriters::start(served.namespace())).collect::<Result<_>>()?;
        let mut server = Server::bind(Arc::new(hosted), &options)?;
        let tokens = Tokens::leave(&served, server.bound());
        // Only now: what links bring in may be asked for at once.
        let link = |served: &Served| {
            let observer = Some(observers.links.clone());
            Linker::start_trusting(served.namespace().clone(), observer, ca.map(Path::to_owned))
        };
        let linkers = served.iter().map(link).collect::<Result<_>>()?;
        let follow = |served: &Served| Replicator::start(served.namespace().clone(), ca.map(Path::to_owned));
        let replicators = served.iter().map(follow).collect::<Result<_>>()?;
        if cluster.join.is_some() && served.len() != 1 {
            return Err(Code::ValueInvalid.error("a host that joins a cluster can serve only one namespace"));
        }
        let nats = to_nats(cluster)?;
        let part = |served: &Served| Part::take(served, server.bound(), cluster, nats.as_ref()).transpose();
        let parts = served.iter().filter_map(part).collect::<Result<_>>()?;
        // A request that comes earlier waits: before, the host does not know its cluster, and would refuse it.
        server.accept()?;
        Ok(Serving {
            hosts,
            served,
            server,
            linkers,
            replicators,
            parts,
            isolation,
            certificate,
            writers,
            _tokens: tokens,
            _main: main,
        })
    }

    /// Where it listens.
    pub fn bound(&self) -> &Bound {
        self.server.bound()
    }

    /// Reads the certificate again if its files have changed; an error in them is reported once. Warns before it expires.
    pub fn refresh_certificate(&self, json: bool) {
        let Some(certificate) = &self.certificate else { return };
        if let Err(error) = certificate.refresh() {
            report::say(&error.within("the host keeps using the previous certificate"), json);
        }
        let warning = certificate.warning(i64::from(now_s()));
        let notice = warning.as_ref().map(|(error, _)| error.to_string());
        self.hosts.iter().for_each(|host| host.set_notice(notice.clone()));
        if let Some((error, true)) = &warning {
            report::say(error, json);
        }
    }

    /// Why the process must end: a journal is closed to writes, or a host stopped running functions.
    pub fn failure(&self) -> Option<Error> {
        let closed = |served: &Served| {
            let error = served.namespace().journal().check_health().err()?;
            Some(error.within(served.namespace().dir().display()))
        };
        self.served.iter().find_map(closed).or_else(|| self.hosts.iter().find_map(Host::failure))
    }

    /// The name of the first namespace.
    pub fn name(&self) -> String {
        self.served.first().map(|served| served.name().to_string()).unwrap_or_default()
    }

    /// The addresses under which the namespaces can be reached.
    pub fn addresses(&self) -> Vec<String> {
        let named = |served: &Served| {
            self.bound().addresses.iter().map(move |address| format!("mr://{address}/{}", served.name())).collect()
        };
        self.served.iter().flat_map(|served| -> Vec<String> { named(served) }).collect()
    }

    /// Tells where it listens.
    pub fn announce(&self, out: &mut Out) -> Outcome {
        for address in self.addresses() {
            out.line(format!("  {address}"))?;
        }
        if let Some(address) = self.bound().addresses.first() {
            // Nothing leaves this machine unencrypted.
            let scheme = if millrace_node::is_local(address.ip()) { "http" } else { "https" };
            out.line(format!("  {scheme}://{address}"))?;
        }
        for (name, address) in &self.bound().others {
            out.line(format!("  {name} only: {address}"))?;
        }
        out.line(format!("  sandbox: {}", self.isolation.summary()))?;
        for missing in self.isolation.shortcomings() {
            out.line(format!("    {}", missing.remedy))?;
        }
        Ok(())
    }

    /// The same for programs.
    pub fn announcement(&self) -> Value {
        json!({
            "addresses": self.addresses(),
            "listening": self.bound().addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "only": self.bound().others.iter()
                .map(|(name, address)| json!({ "name": name, "address": address.to_string() })).collect::<Vec<_>>(),
            "socket": self.bound().socket,
            "sandbox": {
                "level": self.isolation.level().as_str(),
                "missing": self.isolation.shortcomings().iter()
                    .map(|missing| json!({ "cause": missing.cause, "remedy": missing.remedy })).collect::<Vec<_>>(),
            },
        })
    }

    /// Answers open requests, lets runs in progress end, and reports the outcome.
    pub fn finish(self, drain: Duration, out: &mut Out) -> Outcome {
        end_in_time(&self.served, drain + GRACE, out.json())?;
        // Before anything is waited for: a run that is started while connections are drained would have what is left of the time.
        self.hosts.iter().for_each(Host::stop_starting);
        let running: usize =
            self.hosts.iter().flat_map(|host| host.status().functions).map(|function| function.running.len()).sum();
        if running > 0 && !out.json() {
            let runs = show::count(running as u64, "run");
            let drain = units::show_duration(drain);
            out.line(format!("stopping: {runs} in progress; waiting up to {drain}"))?;
            out.flush()?;
        }
        // One time for all of it: connections get their answers while runs end.
        let deadline = Instant::now() + drain;
        drop(self.linkers);
        drop(self.replicators);
        self.parts.iter().for_each(Part::stop);
        self.server.stop(drain);
        let rest = || deadline.saturating_duration_since(Instant::now());
        let stopped: Result<Vec<()>> = self.hosts.into_iter().map(|host| host.stop(rest())).collect();
        stopped?;
        drop(self.writers);
        if out.json() {
            out.object(&json!({ "event": "stopped" }))?
        } else {
            out.line("stopped")?
        }
        Ok(())
    }
}
