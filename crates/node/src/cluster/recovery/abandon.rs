//! Gives up groups whose voters are lost for good.

use crate::cluster::{MAIN, MAIN_NAME, Reply, Shared, calls::done, driver::Input, groups::Group, locked, shown};
use millrace_group::{Action, Durability};
use millrace_wire::{Code, Result};
use std::sync::{Arc, Mutex};

/// The groups that are asked whether they answer.
struct Asking {
    left: usize,
    outcome: Result<()>,
    then: Option<Box<dyn FnOnce(Result<()>) + Send>>,
}

impl Shared {
    /// Gives up groups, with their topics, in which a host votes; refused if one of them answers.
    pub(in crate::cluster) fn give_up(self: &Arc<Self>, host: u64, names: Vec<String>, reply: Reply<()>) {
        let groups = match names.iter().map(|name| self.voted(host, name)).collect::<Result<Vec<u32>>>() {
            Ok(groups) if groups.is_empty() => return reply(Ok(())),
            Ok(groups) => groups,
            Err(error) => return reply(Err(error)),
        };
        let (shared, all) = (self.clone(), names.clone());
        let then = move |silent: Result<()>| match silent {
            Ok(()) => shared.abandon(all, reply),
            Err(error) => reply(Err(error)),
        };
        let asking = Arc::new(Mutex::new(Asking { left: groups.len(), outcome: Ok(()), then: Some(Box::new(then)) }));
        for (id, name) in groups.into_iter().zip(names) {
            let (shared, asking) = (self.clone(), asking.clone());
            // A replica here hears of a leader, if there is one.
            let attended = move |group: Result<Arc<Group>>| match group {
                Ok(group) => {
                    let read = move |read: Result<()>| {
                        let answers =
                            || Code::GroupAnswers.error(format!("group '{name}' has a leader and a majority"));
                        answered(&asking, if read.is_ok() { Err(answers()) } else { Ok(()) });
                    };
                    shared.ask(Input::Read { group: group.id, reply: Box::new(read) });
                }
                Err(error) => answered(&asking, Err(error)),
            };
            self.attend(id, Box::new(attended));
        }
    }

    /// The number of a group in which a host votes.
    fn voted(&self, host: u64, name: &str) -> Result<u32> {
        if name == MAIN_NAME {
            let detail = "the group main has the directory of all topics, so it cannot be given up; if it is lost, `millrace cluster recover` \
                          makes one host the first of a new cluster";
            return Err(Code::GroupHasTopics.error(detail));
        }
        let replica = locked(&self.main.replica);
        let shown_name = || name.chars().take(80).flat_map(char::escape_debug).collect::<String>();
        let spec = replica.topics().directory().group(name);
        let spec = spec.ok_or_else(|| Code::GroupNotFound.error(format!("no group '{}'", shown_name())))?;
        if spec.hosts.contains(&host) {
            return Ok(spec.id);
        }
        Err(Code::HostNotInCluster.error(format!("host {} is not a voter of group '{}'", shown(host), shown_name())))
    }

    fn abandon(self: &Arc<Self>, mut names: Vec<String>, reply: Reply<()>) {
        let Some(group) = names.pop() else { return reply(Ok(())) };
        let next = self.clone();
        let abandoned = move |outcome: Result<()>| match outcome {
            Ok(()) => next.abandon(names, reply),
            Err(error) => reply(Err(error)),
        };
        let action = Action::Abandon { group };
        self.submit(MAIN, action, Vec::new(), Durability::Quorum, done(Box::new(abandoned)));
    }
}

fn answered(asking: &Mutex<Asking>, outcome: Result<()>) {
    let mut asking = locked(asking);
    asking.left -= 1;
    if asking.outcome.is_ok() {
        asking.outcome = outcome;
    }
    if asking.left > 0 {
        return;
    }
    let (then, outcome) = (asking.then.take(), asking.outcome.clone());
    drop(asking);
    then.into_iter().for_each(|then| then(outcome.clone()));
}
