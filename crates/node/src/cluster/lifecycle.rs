//! Creates and removes topics.
//!
//! ```text
//!            in the first group      in another group N
//!  make      CREATE                  the first group: PLACE reserves the name   N: CREATE
//!  remove    REMOVE                  the first group: DISPLACE begins it        N: REMOVE    the first group: DISPLACED frees the name
//! ```
//!
//! Each of these commands can be repeated, so a request that was interrupted is completed by the same request. A CREATE that comes after
//! the REMOVE of a topic that had been reserved before creates nothing: it has the number of its PLACE, and REMOVE that of its DISPLACE.

use super::{
    Cluster, MAIN, MAIN_NAME, Reply, Shared,
    calls::{Settings, done},
    driver::Input,
    groups::Group,
    locked, outside,
};
use millrace_group::{Action, Durability, Engine, check_topic};
use millrace_wire::{Code, Result};
use std::sync::Arc;

/// The settings of a new topic.
#[derive(Clone, Debug)]
pub struct TopicOptions {
    /// How many of its newest records can be read.
    pub history: u64,
    /// The hosts that must have a record on disk before its publish is acknowledged, by default.
    pub durability: Durability,
    /// The group that has it; `None` for the first.
    pub group: Option<String>,
    /// Its engine.
    pub engine: Engine,
}

/// A topic to be created.
#[derive(Clone)]
struct Wanted {
    topic: String,
    history: u64,
    durability: Durability,
    engine: Engine,
}

impl Wanted {
    /// The command. `born` is the entry that reserved the name, or 0; `None` as long as no topic was ever removed, so that hosts of a
    /// version without removals can be in the cluster.
    fn action(&self, born: Option<u64>) -> Action {
        let Self { topic, history, durability, engine } = self.clone();
        match (born, engine) {
            (Some(born), _) => Action::CreateAt { topic, history, durability, engine, born },
            (None, Engine::Builtin) => Action::Create { topic, history, durability },
            (None, _) => Action::CreateOutside { topic, history, engine },
        }
    }
}

/// Whether a request came between the commands of a removal, and must be repeated once.
fn came_between(outcome: &Result<u64>) -> bool {
    outcome.as_ref().is_err_and(|error| error.code() == Code::TopicRemoving)
}

impl Shared {
    /// Whether a topic was ever removed, as far as is known here.
    fn has_removed(&self) -> bool {
        locked(&self.main.replica).topics().horizon() > 0
    }

    /// Creates a topic in a group: the first one, unless another one is named.
    fn agree(self: &Arc<Self>, wanted: Wanted, group: Option<String>, reply: Reply<()>) {
        let Some(name) = group.filter(|name| name != MAIN_NAME) else {
            let shared = self.clone();
            let made = self.has_removed().then_some(0);
            let create = wanted.action(made);
            let created = move |outcome: Result<u64>| {
                if made.is_none() && came_between(&outcome) {
                    return shared.submit(MAIN, wanted.action(Some(0)), Vec::new(), Durability::Quorum, done(reply));
                }
                reply(outcome.map(drop));
            };
            return self.submit(MAIN, create, Vec::new(), Durability::Quorum, Box::new(created));
        };
        // First the name is reserved, so that no other group can take it; repeating the command completes an interrupted creation.
        self.of_group(&name, reply, move |shared, group, reply| shared.agree_in(group.id, wanted, true, reply));
    }

    /// The same, in another group than the first.
    fn agree_in(self: &Arc<Self>, group: u32, wanted: Wanted, again: bool, reply: Reply<()>) {
        let shared = self.clone();
        let place = Action::Place { topic: wanted.topic.clone(), group };
        let placed = move |outcome: Result<u64>| {
            let entry = match outcome {
                Ok(entry) => entry,
                Err(error) => return reply(Err(error)),
            };
            let create = wanted.action(shared.has_removed().then_some(entry));
            let retried = shared.clone();
            let created = move |outcome: Result<u64>| {
                if again && came_between(&outcome) {
                    return retried.agree_in(group, wanted, false, reply);
                }
                reply(outcome.map(drop));
            };
            shared.submit(group, create, Vec::new(), Durability::Quorum, Box::new(created));
        };
        self.submit(MAIN, place, Vec::new(), Durability::Quorum, Box::new(placed));
    }

    /// Removes a topic of a group that this host follows.
    fn remove_from(self: &Arc<Self>, group: &Arc<Group>, topic: String, reply: Reply<()>) {
        let (shared, id, name) = (self.clone(), group.id, topic.clone());
        let known = move |found: Settings| match found {
            Ok((_, engine)) if !engine.is_builtin() => {
                let detail = format!("{} keeps the records of topic '{topic}', so it cannot be removed", engine.name());
                reply(Err(Code::NatsUnsupported.error(detail)));
            }
            Err(error) if id == MAIN || error.code() != Code::TopicNotFound => reply(Err(error)),
            _ if id == MAIN => {
                let remove = Action::Remove { topic, horizon: 0 };
                shared.submit(MAIN, remove, Vec::new(), Durability::Quorum, done(reply));
            }
            // If the group no longer has it, an earlier removal was interrupted.
            _ => shared.displace(id, topic, reply),
        };
        self.settings(group, &name, known);
    }

    /// Removes a topic of another group than the first.
    fn displace(self: &Arc<Self>, group: u32, topic: String, reply: Reply<()>) {
        let (shared, displace) = (self.clone(), Action::Displace { topic: topic.clone(), group });
        let begun = move |outcome: Result<u64>| {
            let since = match outcome {
                Ok(since) => since,
                Err(error) => return reply(Err(error)),
            };
            let (next, remove) = (shared.clone(), Action::Remove { topic: topic.clone(), horizon: since });
            let removed = move |outcome: Result<u64>| match outcome {
                Ok(_) => {
                    let displaced = Action::Displaced { topic, since };
                    next.submit(MAIN, displaced, Vec::new(), Durability::Quorum, done(reply));
                }
                Err(error) => reply(Err(error)),
            };
            shared.submit(group, remove, Vec::new(), Durability::Quorum, Box::new(removed));
        };
        self.submit(MAIN, displace, Vec::new(), Durability::Quorum, Box::new(begun));
    }
}

impl Cluster {
    /// Creates a topic.
    pub fn create(&self, topic: &str, options: &TopicOptions, reply: Reply<()>) {
        let TopicOptions { history, durability, engine, .. } = *options;
        let checked = check_topic(topic).and_then(|()| match (history, engine) {
            (0, _) => Err(Code::ValueInvalid.error("a topic keeps at least one record")),
            (_, Engine::Builtin) => Ok(None),
            (_, Engine::Nats) => {
                outside::check_durability(topic, Some(durability))?;
                self.shared.streams().map(Some)
            }
        });
        let (shared, group) = (self.shared.clone(), options.group.clone());
        let wanted = Wanted { topic: topic.to_owned(), history, durability, engine };
        match checked {
            Err(error) => reply(Err(error)),
            Ok(None) => shared.agree(wanted, group, reply),
            Ok(Some(streams)) => {
                // The group refuses a topic that it has itself.
                if shared.engine_of(topic) == Some(Engine::Builtin) {
                    return shared.agree(wanted, group, reply);
                }
                let created = move |created: Result<()>| match created {
                    Ok(()) => shared.agree(wanted, group, reply),
                    Err(error) => reply(Err(error)),
                };
                streams.create(topic, history, Box::new(created));
            }
        }
    }

    /// Removes a topic with its records, subscriptions and feeds. Its name can be used again.
    pub fn remove_topic(&self, topic: &str, reply: Reply<()>) {
        if let Err(error) = check_topic(topic) {
            return reply(Err(error));
        }
        let (shared, name) = (self.shared.clone(), topic.to_owned());
        let fresh = move |fresh: Result<()>| {
            if let Err(error) = fresh {
                return reply(Err(error));
            }
            let (finding, topic) = (shared.clone(), name.clone());
            let found = move |found: Result<Arc<Group>>| match found {
                Ok(group) => shared.remove_from(&group, name, reply),
                Err(error) => reply(Err(error)),
            };
            finding.find(&topic, Box::new(found));
        };
        // A topic of this name may have been in another group before.
        self.shared.ask(Input::Read { group: MAIN, reply: Box::new(fresh) });
    }
}
