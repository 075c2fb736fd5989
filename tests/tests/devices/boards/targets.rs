//! One function, five targets: mean.c and deviation.c (doubles, divisions, square roots) give the same results, bit for bit, as a program
//! for this computer without and with optimization and with fused multiply-adds, as WebAssembly in a host, and on a Cortex-M3 of two boards.

use super::{Machine, made};
use millrace_tests::{Place, end};
use std::process::Command;

/// results.c prints a hash after each so many records.
const BATCH: usize = 1024;
const BATCHES: usize = 20;

fn hashes(target: &str, said: &str) -> Vec<String> {
    let is_hash = |line: &&str| line.len() == 16 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hashes: Vec<String> = said.lines().filter(is_hash).map(str::to_owned).collect();
    assert_eq!(hashes.len(), BATCHES, "{target}: {said}");
    hashes
}

/// As a program for this computer.
fn on_this_computer(target: &str) -> Vec<String> {
    let program = made(&format!("build/results-{target}"), &[]);
    hashes(target, end(Command::new(program), b"").ok().text())
}

/// As a function of a host. It has the whole device in it: 20 480 runs of a host would take too long.
fn in_a_host() -> Vec<String> {
    let place = Place::empty();
    std::fs::copy(made("build/results.wasm", &[]), place.path().join("results.wasm")).unwrap();
    let function = "runtime = \"wasm\"\ncode = \"results.wasm\"\ntimeout = \"100s\"\nretries = 0\n";
    place.write("millrace.toml", &format!("[logs.hashes]\n[functions.results]\n{function}"));
    place.run(["up"]).ok();
    let _host = place.serve();
    place.run(["function", "invoke", "results", "x"]).ok();
    hashes("WebAssembly", &place.records("hashes").join("\n"))
}

fn on_a_board(machine: Machine, name: &str) -> Vec<String> {
    let firmware = made(&format!("build/arm/results-{name}.elf"), &[]);
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", machine.name(), "-display", "none", "-monitor", "none", "-serial", "none", "-kernel"])
        .arg(firmware);
    qemu.args(["-chardev", "stdio,id=said", "-semihosting-config", "enable=on,chardev=said"]);
    let ended = end(qemu, b"");
    assert_eq!(ended.code, 0, "{name}: {ended:#?}");
    hashes(name, ended.text())
}

#[test]
fn a_function_gives_the_same_results_on_five_targets() {
    let expected = on_this_computer("plain");
    let mut targets = vec![
        ("x86-64 with optimization", on_this_computer("optimized")),
        ("WebAssembly in a host", in_a_host()),
        ("Cortex-M3, mps2-an385", on_a_board(Machine::Mps2, "mps2")),
        ("Cortex-M3, lm3s6965evb", on_a_board(Machine::Lm3s, "lm3s")),
    ];
    if std::arch::is_x86_feature_detected!("fma") {
        targets.push(("x86-64 with FMA", on_this_computer("fma")));
        // The results do depend on how they are rounded: a compiler that may fuse a multiplication and an addition changes them.
        assert_ne!(on_this_computer("fused")[0], expected[0], "results.c does not notice a fused multiply-add");
    } else {
        println!("this processor has no FMA, so that target did not run");
    }
    let differing: Vec<String> = targets
        .iter()
        .filter_map(|(target, found)| {
            let batch = (0..BATCHES).find(|batch| found[*batch] != expected[*batch])?;
            Some(format!("{target}, first in records {} to {}", batch * BATCH + 1, (batch + 1) * BATCH))
        })
        .collect();
    assert!(differing.is_empty(), "other results than x86-64 without optimization: {}", differing.join("; "));
}
