//! Hosts that start: at another address, or before the cluster that they join.

use super::{Site, founder, leader, three};
use millrace_tests::{Host, Port, end, eventually};
use std::{collections::BTreeMap, net::TcpStream, thread, time::Duration};

/// Starts a host again, which had ended, at another address.
fn move_to_another_port(site: &mut Site) {
    site.port = Port::reserve();
    site.live(None);
}

/// Waits until this host says that these are at the addresses that they have now, and that it reaches all of them.
fn are_known(at: &Site, sites: &[Site]) {
    eventually("the addresses are known", || {
        let hosts = at.cluster()["hosts"].clone();
        let known = |site: &Site| {
            let address = format!("127.0.0.1:{}", site.port);
            hosts.as_array().is_some_and(|hosts| hosts.iter().any(|host| host["address"] == address.as_str()))
        };
        sites.iter().all(known) && at.place.run(["cluster", "why"]).ok().text().contains("no problems found")
    });
}

#[test]
fn a_host_that_moved_is_found_by_the_others() {
    let mut sites = three();
    let mut reported = BTreeMap::new();
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    sites[0].publish("before", &mut reported);
    let leads = leader(&sites);
    let [second, third] = [1, 2].map(|next| (leads + next) % 3);
    // A follower, while the others decide without it.
    sites[second].die();
    sites[leads].publish("without a follower", &mut reported);
    move_to_another_port(&mut sites[second]);
    sites[second].publish("by the follower that moved", &mut reported);
    are_known(&sites[leads], &sites);
    // A follower without which nothing can be decided.
    sites[second].die();
    sites[third].die();
    move_to_another_port(&mut sites[third]);
    sites[third].publish("by the follower that was needed", &mut reported);
    // A host that was down meanwhile answers the leader at its old address, until the leader says where it is.
    let id = sites[third].id();
    sites[leads].place.run(["cluster", "lead", &id]).ok();
    sites[second].live(None);
    let expected: Vec<(u64, String)> = reported.into_iter().collect();
    eventually("the host that was down finds the leader", || sites[second].topic(&["range", "env/raw"]).code == 0);
    assert!(sites.iter().all(|site| site.records() == expected));
    sites.iter().for_each(|site| are_known(site, &sites));
}

#[test]
fn hosts_that_all_moved_find_each_other_through_one_of_them() {
    let mut sites = three();
    let mut reported = BTreeMap::new();
    sites[0].topic(&["create", "env/raw", "--history", "1000"]).ok();
    sites[0].publish("before", &mut reported);
    // As after a power cut, with addresses that are given anew.
    sites.iter_mut().for_each(Site::die);
    sites.iter_mut().for_each(|site| site.port = Port::reserve());
    let at = format!("mr://127.0.0.1:{}/site", sites[0].port);
    for (number, site) in sites.iter_mut().enumerate() {
        let mut serve = site.serve(None);
        if number > 0 {
            serve.args(["--join", &at]);
        }
        site.host = Some(Host::start(serve));
    }
    sites[2].publish("after", &mut reported);
    let expected: Vec<(u64, String)> = reported.into_iter().collect();
    assert!(sites.iter().all(|site| site.records() == expected));
    sites.iter().for_each(|site| are_known(site, &sites));
    // One that is not a host of the cluster needs the secret.
    let stranger = Site::new(None);
    stranger.place.run(["serve", "--listen", "127.0.0.1:0", "--join", &at]).fails("MR7214", 2);
}

#[test]
fn requests_wait_until_a_host_that_joins_is_in_the_cluster() {
    let (mut first, secret) = founder();
    let second = Site::new(Some(&secret));
    let (serve, asked) = (second.serve(Some(&first)), second.place.command(["--json", "topic", "ls"]));
    thread::scope(|scope| {
        let joins = scope.spawn(|| Host::start(serve));
        eventually("it listens", || TcpStream::connect(("127.0.0.1", second.port.number)).is_ok());
        let answer = scope.spawn(|| end(asked, b""));
        // As long as it has not joined, it would have to say that it is in no cluster.
        thread::sleep(Duration::from_millis(500));
        first.live(None);
        answer.join().expect("no panics").ok();
        joins.join().expect("no panics");
    });
}
