//! Three days of a thousand devices against one host (`device/examples/fleet.c`): lines are cut, devices have no network, and power is lost in any
//! operation of a flash. At the end, the host has what each device has had, or says how much of it is lost.

use super::{Bench, device_program};
use millrace_tests::end;
use std::{collections::HashMap, env, process::Command};

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn a_thousand_devices_lose_nothing_in_three_days_that_the_host_does_not_know_of() {
    let bench = Bench::new();
    let place = &bench.place;
    let (devices, every) = (number("MILLRACE_FLEET_DEVICES", 1000), number("MILLRACE_FLEET_EVERY", 180));
    let seed = number("MILLRACE_FLEET_SEED", 1);
    let mut fleet = Command::new(device_program("fleet"));
    fleet.args(["--host", &format!("127.0.0.1:{}", bench.port), "--hours", "72"]);
    fleet.args(["--devices", &devices.to_string(), "--every", &every.to_string(), "--seed", &seed.to_string()]);
    let ended = end(fleet, b"").ok();
    let text = ended.text();
    let own: HashMap<&str, (u64, u64, bool)> = text
        .lines()
        .filter(|line| !line.starts_with("fleet:"))
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0], (words[1].parse().unwrap(), words[2].parse().unwrap(), words.len() > 3))
        })
        .collect();
    assert_eq!(own.len() as u64, devices, "seed {seed}");
    let shown = place.run(["--json", "device", "ls"]).ok().objects();
    assert_eq!(shown.len() as u64, devices, "seed {seed}");
    let (mut lost, mut records) = (0, 0);
    for device in &shown {
        let name = device["name"].as_str().unwrap();
        let (raw, echo, is_small) = own[name];
        assert_eq!(raw, echo, "seed {seed}, {name}: each record was handled once");
        let here: HashMap<&str, u64> = device["logs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|log| (log[0].as_str().unwrap(), log[1].as_u64().unwrap()))
            .collect();
        for log in ["raw", "echo"] {
            assert_eq!(here.get(&*format!("{name}/{log}")), Some(&raw), "seed {seed}, {name}/{log}");
        }
        assert_eq!(
            device["records"].as_u64().unwrap() + device["lost_records"].as_u64().unwrap(),
            raw + echo,
            "seed {seed}: {device}"
        );
        let of_device = device["lost_records"].as_u64().unwrap();
        // In three days, nothing has to be dropped from 32 KiB.
        assert!(of_device == 0 || is_small, "seed {seed}: {device}");
        lost += of_device;
        records += raw + echo;
    }
    assert!(lost > 0 && lost < records / 4, "seed {seed}: {lost} of {records} records were dropped");
    for device in shown.iter().filter(|device| device["lost_records"] == 0).step_by(97) {
        let name = device["name"].as_str().unwrap();
        for log in ["raw", "echo"] {
            let found = place.records(&format!("{name}/{log}"));
            let expected: Vec<String> = (1..=own[name].0).map(|seqno| format!("{name} {seqno}")).collect();
            assert_eq!(found, expected, "seed {seed}, {name}/{log}");
        }
    }
    assert!(text.contains("losses of power"), "{text}");
}
