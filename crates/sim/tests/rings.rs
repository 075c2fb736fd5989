//! Rings of groups. `MILLRACE_SIM_SEEDS` says how many churn, `MILLRACE_SIM_SEED` plays one again.

use millrace_sim::ring::{RingSetting, run};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn seeds() -> std::ops::Range<u64> {
    match number("MILLRACE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MILLRACE_SIM_SEEDS").unwrap_or(20),
    }
}

#[test]
fn a_lookup_takes_half_the_logarithm_of_the_number_of_groups() {
    for groups in [1, 2, 4, 16, 64, 256, 1024, 4096, 10_000] {
        let report = run(1, RingSetting { groups, churns: false, lookups: 2000 })
            .unwrap_or_else(|what| panic!("{groups}: {what}"));
        let half = (groups as f64).log2() / 2.0;
        println!(
            "{groups} groups: {:.2} steps on average, {} at most; half the logarithm is {half:.2}",
            report.hops_mean, report.hops_max
        );
        assert!(report.hops_mean <= half + 1.0, "{groups} groups: {report:?}");
    }
}

#[test]
fn a_ring_is_whole_again_after_hosts_died_and_groups_came_and_went() {
    let (mut answered, mut unanswered, mut outages, mut leaders) = (0, 0, 0, 0);
    for groups in [3, 20, 100] {
        for seed in seeds() {
            let setting = RingSetting { groups, churns: true, lookups: 500 };
            let report = run(seed, setting).unwrap_or_else(|what| panic!("{setting:?}, {what}"));
            answered += report.answered;
            unanswered += report.unanswered;
            outages += report.outages;
            leaders += report.leaders;
        }
    }
    println!("{answered} lookups answered, {unanswered} not, {outages} outages, {leaders} changes of leader");
    assert!(answered > 10 * unanswered && outages > 0 && leaders > 0);
}

#[test]
fn a_seed_plays_the_same_again() {
    let play = || run(7, RingSetting { groups: 30, churns: true, lookups: 100 }).unwrap();
    assert_eq!(play(), play());
}
