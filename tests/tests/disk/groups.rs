//! Hosts of clusters on disks that refuse for a while.

use super::support::{Injected, Watched};
use millrace_tests::{Place, eventually};

fn serving(place: &Place) -> Watched {
    Watched::start(place, &place.path().join("stderr"))
}

#[test]
fn a_refusal_of_the_disk_that_passes_ends_no_part_in_a_group() {
    for errno in ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO"] {
        let place = Place::empty();
        place.run(["init", "--bare"]).ok();
        place.run(["cluster", "init"]).ok();
        let farm = serving(&place);
        let publish = |record: &str| place.run(["topic", "publish", "t", record, "--key", record]);
        eventually("it leads", || place.run(["topic", "create", "t"]).code == 0);
        publish("one").ok();
        let injected = Injected::into(farm.host.pid(), &format!("pwrite64:error={errno}"));
        eventually("the disk refuses", || {
            // The first one waits until it is given up; then the host knows, and refuses at once.
            publish("refused").code != 0
                && place.run(["cluster", "why"]).text().contains("cannot write the log of group 'main'")
        });
        let refused = publish("refused");
        assert_ne!(refused.code, 0, "{errno}");
        assert!(refused.stderr.contains("cannot write the log of group 'main'"), "{errno}: {}", refused.stderr);
        assert_ne!(place.run(["topic", "latest", "t"]).code, 0, "{errno}: a read that could be stale");
        drop(injected);
        eventually("publishing goes on", || publish("two").code == 0);
        eventually("it says no more", || !place.run(["cluster", "why"]).text().contains("cannot write"));
        drop(farm);
        let _farm = serving(&place);
        eventually("everything is there", || {
            let records = place.run(["topic", "range", "t"]);
            records.code == 0 && records.text().contains("one") && records.text().contains("two")
        });
    }
}
