//! The topics of an application: they are applied through a host of the cluster, whose namespace has the functions and the logs.

use crate::{
    commands::cluster::topic::topics,
    place::{Place, remote::Remote},
};
use millrace_node::{
    Code, HISTORY_ALL, Namespace, Result,
    application::{Application, TopicDeclaration},
    changes::{Action, Step, What},
    history,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The engine of topics whose group keeps their records.
const BUILTIN: &str = "builtin";

/// A topic, and a function that runs for it or a log that feeds it.
type Pair = (String, String);

/// The topics of the cluster, and what of them is of this host.
struct There {
    topics: Vec<Value>,
    own: String,
}

/// The topics of an application, and the host that applies them.
pub struct Topics<'a> {
    remote: &'a Remote,
    application: &'a Application,
}

/// The host that serves a namespace, if the application has to be applied by one.
pub fn host_of(application: &Application, namespace: Option<&Namespace>) -> Result<Option<Remote>> {
    if !application.has_topics() {
        return Ok(None);
    }
    let Some(namespace) = namespace else {
        return Err(need_host(application, "the namespace does not exist yet"));
    };
    match Place::Local(namespace.clone()).connect() {
        Err(error) if error.code() == Code::HostNotRunning => Err(need_host(application, error.detail())),
        connected => connected.map(Some),
    }
}

/// The refusal of an application that says something of topics.
pub fn need_host(application: &Application, why: &str) -> millrace_node::Error {
    Code::TopicsNeedHost.error(format!("{}: {why}", application.path.display()))
}

impl<'a> Topics<'a> {
    /// Those of the application, if it says anything of them.
    pub fn of(application: &'a Application, remote: &'a Remote) -> Option<Self> {
        application.has_topics().then_some(Self { remote, application })
    }

    /// The current state.
    fn there(&self) -> Result<There> {
        // A host follows the group of a topic that it was asked for, and knows all that was agreed on before it answers.
        for topic in self.named().collect::<BTreeSet<_>>() {
            match self.remote.client().latest_topic(topic, 0, 0) {
                Err(error) if error.code() != Code::TopicNotFound => return Err(error),
                _ => {}
            }
        }
        Ok(There { topics: topics(self.remote)?, own: own_id(self.remote)? })
    }

    /// The topics that the application declares, and those that its functions run for.
    fn named(&self) -> impl Iterator<Item = &str> {
        let declared = self.application.topics.iter().map(|topic| &*topic.name);
        declared
            .chain(self.application.functions.iter().flat_map(|function| function.topics.iter().map(|name| &**name)))
    }

    /// The changes to the topics; an error if they are impossible.
    fn plan_topics(&self, there: &There) -> Result<Vec<Step>> {
        let steps = self.application.topics.iter().map(|topic| match there.topic(&topic.name) {
            None => Ok(Step::new(What::Topic, &topic.name, Action::Created)),
            Some(found) => same(topic, found).map(|()| Step::new(What::Topic, &topic.name, Action::Unchanged)),
        });
        let steps = steps.collect::<Result<Vec<_>>>()?;
        let declared = |name: &str| self.application.topics.iter().any(|topic| *topic.name == *name);
        match self.named().find(|name| !declared(name) && there.topic(name).is_none()) {
            None => Ok(steps),
            Some(name) => {
                let detail =
                    format!("no topic '{name}', which a function of {} subscribes to", self.application.path.display());
                Err(Code::TopicNotFound.error(detail))
            }
        }
    }

    /// Subscriptions as they are to be, and as they are: topics and functions of the application.
    fn subscriptions(&self, there: &There) -> (BTreeSet<Pair>, BTreeSet<Pair>) {
        let functions = &self.application.functions;
        let wanted = functions.iter().flat_map(|function| {
            function.topics.iter().map(|topic| (topic.to_string(), function.spec.name.to_string()))
        });
        let mut are = there.pairs("subscriptions", "function");
        are.retain(|(_, function)| functions.iter().any(|declared| *declared.spec.name == **function));
        (wanted.collect(), are)
    }

    /// Likewise the feeds of the topics with `fed_by` in the file: topics and logs.
    fn feeds(&self, there: &There) -> (BTreeSet<Pair>, BTreeSet<Pair>) {
        let topics = &self.application.topics;
        let wanted = topics
            .iter()
            .flat_map(|topic| topic.fed_by.iter().flatten().map(|log| (topic.name.to_string(), log.to_string())));
        let mut are = there.pairs("feeds", "log");
        are.retain(|(topic, _)| topics.iter().any(|declared| declared.fed_by.is_some() && *declared.name == **topic));
        (wanted.collect(), are)
    }

    /// The changes that applying would make. Changes nothing.
    pub fn plan(&self) -> Result<Vec<Step>> {
        let there = self.there()?;
        let mut steps = self.plan_topics(&there)?;
        for (what, (wanted, are)) in
            [(What::Subscription, self.subscriptions(&there)), (What::Feed, self.feeds(&there))]
        {
            steps.extend(changes(&wanted, &are).map(|(pair, action)| step(what, pair, action)));
        }
        Ok(steps)
    }

    /// Creates the topics, before anything else is changed.
    pub fn create(&self, done: &mut dyn FnMut(&Step)) -> Result<()> {
        let planned = self.plan_topics(&self.there()?)?;
        for (topic, step) in self.application.topics.iter().zip(&planned) {
            if step.action == Action::Created {
                let group = topic.group.as_deref();
                let engine = Some(topic.engine).filter(|engine| *engine != BUILTIN);
                let (client, durability) = (self.remote.client(), Some(topic.durability));
                client.create_topic_in(&topic.name, topic.history, durability, group, engine)?;
            }
            done(step);
        }
        Ok(())
    }

    /// Lets the functions run for their topics, and the logs feed theirs.
    pub fn bind(&self, done: &mut dyn FnMut(&Step)) -> Result<()> {
        let (there, client) = (self.there()?, self.remote.client());
        let (wanted, are) = self.subscriptions(&there);
        for (pair, action) in changes(&wanted, &are) {
            match action {
                Action::Created => client.subscribe_topic(&pair.0, &pair.1)?,
                Action::Removed => client.unsubscribe_topic(&pair.0, &pair.1)?,
                Action::Unchanged | Action::Updated => {}
            }
            done(&step(What::Subscription, pair, action));
        }
        let (wanted, are) = self.feeds(&there);
        for (pair, action) in changes(&wanted, &are) {
            match action {
                Action::Created => client.feed_topic(&pair.0, &pair.1)?,
                Action::Removed => client.unfeed_topic(&pair.0, &pair.1)?,
                Action::Unchanged | Action::Updated => {}
            }
            done(&step(What::Feed, pair, action));
        }
        Ok(())
    }

    /// Ends the subscriptions of the functions, and the feeds that the file declares.
    pub fn release(&self, done: &mut dyn FnMut(&Step)) -> Result<()> {
        let (there, client) = (self.there()?, self.remote.client());
        for pair in self.subscriptions(&there).1 {
            client.unsubscribe_topic(&pair.0, &pair.1)?;
            done(&step(What::Subscription, &pair, Action::Removed));
        }
        let (declared, are) = self.feeds(&there);
        for pair in are.intersection(&declared) {
            client.unfeed_topic(&pair.0, &pair.1)?;
            done(&step(What::Feed, pair, Action::Removed));
        }
        Ok(())
    }
}

/// Ends the subscriptions of functions that were removed, if the host is one of a cluster.
pub fn release_removed(remote: &Remote, removed: &BTreeSet<String>, done: &mut dyn FnMut(&Step)) -> Result<()> {
    let topics = match topics(remote) {
        // A deployer that may not see the topics leaves the subscriptions, which run nothing without their function.
        Err(error) if [Code::NotInCluster, Code::CapabilityDenied].contains(&error.code()) => return Ok(()),
        topics => topics?,
    };
    let there = There { topics, own: own_id(remote)? };
    for pair in there.pairs("subscriptions", "function").into_iter().filter(|(_, function)| removed.contains(function))
    {
        remote.client().unsubscribe_topic(&pair.0, &pair.1)?;
        done(&step(What::Subscription, &pair, Action::Removed));
    }
    Ok(())
}

/// The logs of a host that feed topics or mirror them, each with its topic; `None` if the host does not tell.
pub fn of_logs(remote: &Remote) -> Result<Option<Vec<Pair>>> {
    let found = || -> Result<Vec<Pair>> {
        let there = There { topics: topics(remote)?, own: own_id(remote)? };
        let feeds = there.pairs("feeds", "log").into_iter().map(|(topic, log)| (log, topic));
        let mirrors: Vec<Value> = remote.document("mirrors")?;
        let text = |of: &Value, key: &str| of[key].as_str().map(str::to_owned);
        let mirrors = mirrors.iter().filter_map(|of| text(of, "log").zip(text(of, "topic")));
        Ok(feeds.chain(mirrors).collect())
    };
    match found() {
        Err(error) if error.code() == Code::NotInCluster => Ok(Some(Vec::new())),
        Err(error) if error.code() == Code::CapabilityDenied => Ok(None),
        found => found.map(Some),
    }
}

impl There {
    fn topic(&self, name: &str) -> Option<&Value> {
        self.topics.iter().find(|topic| topic["topic"] == name)
    }

    /// This host's subscriptions or feeds, each with its topic.
    fn pairs(&self, kind: &str, key: &str) -> BTreeSet<Pair> {
        let of_topic = |topic: &'_ Value| {
            let name = topic["topic"].as_str().unwrap_or_default().to_owned();
            let own = topic[kind].as_array().cloned().unwrap_or_default();
            let own = own.into_iter().filter(|one| one["host"] == *self.own);
            own.filter_map(|one| Some((name.clone(), one[key].as_str()?.to_owned()))).collect::<Vec<_>>()
        };
        self.topics.iter().flat_map(of_topic).collect()
    }
}

/// The id of the host that was asked.
fn own_id(remote: &Remote) -> Result<String> {
    let cluster: Value = remote.document("cluster")?;
    let hosts = cluster["hosts"].as_array().into_iter().flatten();
    let own = hosts.filter(|host| host["here"] == true).find_map(|host| host["host"].as_str());
    own.map(str::to_owned).ok_or_else(|| Code::NotInCluster.error("the host is not in the cluster's list of hosts"))
}

/// The items to add, to keep, and to remove.
fn changes<'p>(
    wanted: &'p BTreeSet<Pair>,
    are: &'p BTreeSet<Pair>,
) -> impl Iterator<Item = (&'p Pair, Action)> + use<'p> {
    let kept = |pair| if are.contains(pair) { Action::Unchanged } else { Action::Created };
    wanted.iter().map(move |pair| (pair, kept(pair))).chain(are.difference(wanted).map(|pair| (pair, Action::Removed)))
}

fn step(what: What, (topic, other): &Pair, action: Action) -> Step {
    Step::new(what, &format!("{other} to {topic}"), action)
}

/// Refuses a topic that is there with other settings.
fn same(topic: &TopicDeclaration, found: &Value) -> Result<()> {
    let known = found["history"].as_u64().unwrap_or(HISTORY_ALL);
    let (durability, group) = (found["durability"].as_str().unwrap_or("?"), found["group"].as_str().unwrap_or("?"));
    let wanted = topic.group.as_deref().unwrap_or(millrace_node::cluster::MAIN_NAME);
    let engine = found["engine"].as_str().unwrap_or(BUILTIN);
    if (known, durability, group, engine) == (topic.history, topic.durability, wanted, topic.engine) {
        return Ok(());
    }
    let detail = format!(
        "topic '{}' exists in group '{group}' with a history of {}, durability {durability} and engine {engine}",
        topic.name,
        history::show(known)
    );
    Err(Code::TopicExists.error(detail))
}
