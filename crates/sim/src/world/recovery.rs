//! All hosts but one are lost with their disks, in the middle of everything: one goes on alone, and new ones join it.

use super::{
    Acknowledged, Agreement, Disk, Election, HEALED_MS, Matching, Network, Options, Reads, Replica, Report, Role,
    TOPIC, Without, World, Written,
};
use millrace_group::{Limits, Member};
use std::collections::BTreeMap;

/// How many hosts join.
const NEW: u64 = 2;

impl World {
    pub(super) fn recover(&mut self) -> Result<Report, String> {
        (0..self.hosts.len()).for_each(|at| self.crash(at));
        let (old, stays) = (self.setting.hosts, self.chance.below(self.setting.hosts) as usize);
        let had = self.rewrite(stays)?;
        for (at, host) in self.hosts.iter_mut().enumerate() {
            host.back_ms = self.now_ms;
            if at != stays {
                (host.disk, host.stopped) = (Disk::default(), Some("it is lost".into()));
            }
        }
        let joining: Vec<u64> = (old + 1..=old + NEW).collect();
        for id in &joining {
            let host = self.new_host(*id);
            self.hosts.push(host);
        }
        // What the lost hosts had acknowledged no longer counts, and they say nothing more.
        self.network = Network::new(0, 20);
        (self.election, self.matching) = (Election::default(), Matching::default());
        (self.agreement, self.acknowledged) = (Agreement::with_gaps(true), Acknowledged::default());
        (self.reads, self.born) = (Reads::default(), 0);
        let until_ms = self.now_ms + HEALED_MS;
        while self.now_ms < until_ms {
            if let Some(replica) = self.hosts[stays].replica.as_mut().filter(|replica| replica.role() == Role::Leader) {
                let (voters, learners) = replica.replicas();
                let absent = joining.iter().find(|id| !voters.contains(id) && !learners.contains(id));
                // Refused, it is tried again.
                let _ = absent.map(|id| replica.add(&Member { id: *id, ..Member::default() }));
            }
            self.publish();
            self.pass()?;
        }
        for _ in 0..2_000 {
            self.pass()?;
        }
        if self.acknowledged.count() < 10 {
            return Err(format!("after the recovery, {} records were acknowledged", self.acknowledged.count()));
        }
        for (record, index) in &had {
            if self.agreement.number(record) != Some(*index) {
                return Err(format!("record {index} of the host that was recovered is lost"));
            }
        }
        self.acknowledged.check(&self.agreement)?;
        for host in self.hosts.iter().filter(|host| host.stopped.is_none()) {
            let (voters, _) = host.replica.as_ref().map(Replica::replicas).unwrap_or_default();
            let (count, shown) = (self.agreement.count(self.born), host.shown.1);
            if voters.len() != 1 + joining.len() || voters.iter().any(|id| *id <= old && *id != stays as u64 + 1) {
                return Err(format!("host {} knows the voters {voters:?}", host.id));
            }
            if shown < count {
                return Err(format!("host {} has {shown} of {count} records", host.id));
            }
        }
        Ok(self.report())
    }

    /// Makes a host that is down the only one of its group; returns the records that it has, and their indexes.
    fn rewrite(&mut self, at: usize) -> Result<BTreeMap<Vec<u8>, u64>, String> {
        let founders: Vec<u64> = (1..=if self.setting.grows { 1 } else { self.setting.hosts }).collect();
        let host = &mut self.hosts[at];
        host.boot += 1;
        let recovered = host.disk.recover(founders.clone()).map_err(|error| error.to_string())?;
        let (id, boot, limits) = (host.id, host.boot, Limits::default());
        let options = Options { id, boot, founders, seed: 0, voters_max: 5, limits };
        let replica = Replica::to_the_end(options, recovered, Box::new(Without)).map_err(|error| error.to_string())?;
        let mut had = BTreeMap::new();
        if let Ok(topic) = replica.topics().topic(TOPIC) {
            for index in topic.earliest()..=topic.latest {
                let entry = topic.entry(TOPIC, index).map_err(|error| error.to_string())?;
                let place = replica.place(entry).ok_or_else(|| format!("entry {entry} is not there"))?;
                had.insert(host.disk.record(place).map_err(|error| error.to_string())?, index);
            }
        }
        let turn = replica.recover(id, None).map_err(|error| error.to_string())?;
        host.disk.write(&turn, None, &mut Written::default(), || false).map_err(|error| error.to_string())?;
        host.disk.flushed(host.disk.length());
        Ok(had)
    }
}
