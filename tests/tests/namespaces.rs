//! Directories that are a namespace, were one, or never will be; and where a command looks for one.

use millrace_tests::{Ended, Place, end};
use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn a_directory_that_is_no_namespace_says_how_to_make_one() {
    let place = Place::empty();
    let said = place.run(["log", "ls"]).fails("MR2001", 1);
    assert!(said.stderr.contains("millrace init"), "{}", said.stderr);
    place.write("file", "not a directory");
    assert_ne!(place.run(["-n", "file", "log", "ls"]).code, 0);
    place.write("full/of/things", "x");
    place.run(["-n", "full", "log", "ls"]).fails("MR2001", 1);
    place.run(["-n", "full", "init", "--bare"]).fails("MR2006", 1);
    assert_eq!(fs::read_to_string(place.path().join("full/of/things")).unwrap(), "x");
}

#[test]
fn the_namespace_is_the_options_then_the_environments_then_the_files_then_the_usual() {
    let place = Place::empty();
    for dir in ["by-option", "by-environment", "by-file"] {
        place.run(["-n", dir, "init", "--bare"]).ok();
        place.run(["-n", dir, "log", "create", dir]).ok();
    }
    place.run(["init", "--bare"]).ok();
    place.run(["log", "create", "usual"]).ok();
    let only_log = |ended: Ended| ended.ok().object()["name"].as_str().unwrap().to_string();
    assert_eq!(only_log(place.run(["--json", "log", "ls"])), "usual");
    // Whatever else is wrong in the file, it says where the namespace is.
    place.write("millrace.toml", "[namespace]\npath = \"by-file\"\nwrong = 1\n");
    assert_eq!(only_log(place.run(["--json", "log", "ls"])), "by-file");
    let mut command = place.command(["--json", "log", "ls"]);
    command.env("MILLRACE_NAMESPACE", "by-environment");
    assert_eq!(only_log(end(command, b"")), "by-environment");
    let mut command = place.command(["--json", "log", "ls"]);
    command.env("MILLRACE_NAMESPACE", "");
    assert_eq!(only_log(end(command, b"")), "by-file");
    let mut command = place.command(["--json", "log", "ls", "-n", "by-option"]);
    command.env("MILLRACE_NAMESPACE", "by-environment");
    assert_eq!(only_log(end(command, b"")), "by-option");
}

#[test]
fn making_a_namespace_again_changes_nothing() {
    let place = Place::new();
    place.run(["log", "create", "a"]).ok();
    place.run(["log", "append", "a", "kept"]).ok();
    let again = place.run(["init", "--bare", "--json"]).ok().object();
    assert_eq!(again["created"], false);
    assert_eq!(place.records("a"), ["kept"]);
}

#[test]
fn segment_sizes_that_cannot_be_are_refused() {
    let place = Place::empty();
    for size in ["3MiB", "512KiB", "2GiB", "0"] {
        place.run(["init", "--bare", "--segment-size", size]).fails("MR1006", 2);
    }
    let said = place.run(["init", "--bare", "--segment-size", "big"]);
    assert!(said.code == 2 && said.stderr.contains("'big' is not a size"), "{said:#?}");
    assert!(!place.namespace().exists());
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_namespace_with_a_part_missing_says_so_and_a_whole_copy_works() {
    let place = Place::new();
    place.run(["log", "create", "a"]).ok();
    place.run(["log", "append", "a", "kept"]).ok();
    copy(&place.namespace(), &place.path().join("copy"));
    assert_eq!(place.run(["-n", "copy", "log", "get", "a"]).ok().text(), "kept\n");
    let segments = place.namespace().join("segments");
    for (n, entry) in fs::read_dir(&segments).unwrap().enumerate() {
        let half = place.path().join(format!("half-{n}"));
        copy(&place.namespace(), &half);
        fs::remove_file(half.join("segments").join(entry.unwrap().file_name())).unwrap();
        let said = place.run(["-n", half.to_str().unwrap(), "log", "get", "a"]);
        // A segment without any record may be missing; no record may.
        let refused = said.code == 1 && said.stderr.starts_with("error[MR2004]");
        assert!(refused || said.stdout == b"kept\n", "{said:#?}");
    }
    let half = place.path().join("no-segments");
    copy(&place.namespace(), &half);
    fs::remove_dir_all(half.join("segments")).unwrap();
    let said = place.run(["-n", "no-segments", "log", "get", "a"]);
    assert!(said.code == 1 && said.stderr.starts_with("error[MR20") && said.stderr.contains("segments"), "{said:#?}");
}

#[test]
fn a_manifest_that_was_changed_or_cut_is_refused() {
    let place = Place::new();
    let manifest = place.namespace().join("manifest");
    let good = fs::read(&manifest).unwrap();
    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        fs::write(&manifest, &bad).unwrap();
        let said = place.run(["log", "ls"]);
        assert_eq!(said.code, 1, "{said:#?}");
        assert!(said.stderr.starts_with("error[MR200"), "a flipped bit at {at}: {said:#?}");
    }
    for length in [0, 1, good.len() / 2, good.len() - 1] {
        fs::write(&manifest, &good[..length]).unwrap();
        let said = place.run(["log", "ls"]);
        assert!(said.code == 1 && said.stderr.starts_with("error[MR200"), "cut to {length}: {said:#?}");
    }
    fs::write(&manifest, &good).unwrap();
    place.run(["log", "ls"]).ok();
}

#[test]
fn a_flipped_bit_is_reported_with_its_position_and_affects_no_other_entry() {
    let place = Place::new();
    place.run(["log", "create", "a"]).ok();
    let lines: String = (1..=100).map(|n| format!("record-{n:03}\n")).collect();
    place.feed(["log", "append", "a", "--lines", "--quiet"], lines.as_bytes()).ok();
    let segment = place.namespace().join("segments/0000000000");
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(10).position(|window| window == b"record-050").unwrap();
    bytes[at + 9] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let said = place.run(["log", "get", "a", "50"]).fails("MR2010", 1);
    assert!(said.stderr.contains("at position 0x"), "{}", said.stderr);
    assert_eq!(place.run(["log", "get", "a", "51"]).ok().text(), "record-051\n");
    let rest = place.run(["log", "get", "a", "--all", "--raw"]).fails("MR2010", 1);
    assert_eq!(rest.text(), lines.replace("record-050\n", ""));
    let verdict = place.run(["--json", "namespace", "check"]);
    assert_eq!(verdict.code, 1);
    let verdict = verdict.object();
    assert_eq!((verdict["sound"].as_bool(), verdict["fault_count"].as_u64()), (Some(false), Some(1)), "{verdict}");
    assert_eq!(place.run(["log", "append", "a", "after"]).ok().text(), "101\n");
}

#[test]
fn a_segment_cut_while_in_use_stops_the_process_and_loses_nothing_before_the_cut() {
    let place = Place::new();
    place.run(["log", "create", "a"]).ok();
    let lines: String = (1..=1000).map(|n| format!("record-{n:04}\n")).collect();
    place.feed(["log", "append", "a", "--lines", "--quiet"], lines.as_bytes()).ok();
    let mut producer = place.command(["log", "append", "a", "--lines"]);
    producer.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut producer = producer.spawn().unwrap();
    let mut stdin = producer.stdin.take().unwrap();
    stdin.write_all(b"one more\n").unwrap();
    millrace_tests::eventually("it has the namespace open", || place.records("a").len() == 1001);
    let segment = fs::OpenOptions::new().write(true).open(place.namespace().join("segments/0000000000")).unwrap();
    segment.set_len(20 << 10).unwrap();
    // It may be gone already when it is asked for more.
    let _ = stdin.write_all(b"and another\n");
    drop(stdin);
    let mut said = String::new();
    producer.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let code = millrace_tests::wait(&mut producer, "the producer");
    assert!(code != 0 && said.starts_with("error[MR2011]"), "exit code {code}: {said}");
    // The records were safe before they were cut off: what is left is no torn tail.
    place.run(["log", "get", "a"]).fails("MR2030", 1);
    let saved = place.run(["--json", "namespace", "check", "--salvage", "saved"]).ok().object();
    let left = place.run(["-n", "saved", "log", "get", "a", "--all", "--raw"]).ok();
    let kept = left.text().lines().count();
    assert!(kept > 500 && lines.starts_with(left.text()), "{kept} records are left");
    assert_eq!(saved["records"], kept, "{saved}");
    assert_eq!(place.run(["-n", "saved", "log", "append", "a", "goes on"]).ok().text(), format!("{}\n", kept + 1));
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let place = Place::new();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(millrace_tests::binary());
    command.arg("-n").arg(place.namespace()).args(["log", "ls"]);
    let said = end(command, b"");
    if !said.stderr.starts_with("error[") {
        eprintln!("not tested: only root can become somebody else who can run the binary");
        return;
    }
    said.fails("MR2005", 1);
}

/// Runs a shell script that may mount things, out of sight of everybody else; `None` if this machine does not allow it.
fn in_a_private_mount_namespace(place: &Place, script: &str) -> Option<Ended> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-ec"]).current_dir(place.path());
        command.env("MILLRACE", millrace_tests::binary());
        command
    };
    let mut probe = unshare();
    probe.arg("mkdir -p probe && mount -t tmpfs -o size=1M none probe");
    if end(probe, b"").code != 0 {
        eprintln!("not tested: this machine does not let users mount in a namespace of their own");
        return None;
    }
    let mut command = unshare();
    command.arg(script);
    Some(end(command, b""))
}

#[test]
fn a_read_only_namespace_is_refused_and_untouched() {
    let place = Place::new();
    place.run(["log", "create", "a"]).ok();
    place.run(["log", "append", "a", "kept"]).ok();
    let script =
        "mount --bind .millrace .millrace; mount -o remount,ro,bind .millrace; \"$MILLRACE\" log append a lost";
    if let Some(said) = in_a_private_mount_namespace(&place, script) {
        said.fails("MR2005", 1);
    }
    assert_eq!(place.records("a"), ["kept"]);
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let place = Place::empty();
    let script = r#"
        mkdir tiny disk; mount -t tmpfs -o size=64k none tiny; mount -t tmpfs -o size=5M none disk
        if "$MILLRACE" -n tiny/ns init --bare 2>creation; then echo "made what cannot fit"; fi
        "$MILLRACE" -n disk/ns init --bare --segment-size 1MiB --durability memory >/dev/null
        "$MILLRACE" -n disk/ns log create a --history 100000 >/dev/null
        head -c 3000000 /dev/zero | tr '\0' x | fold -w 1000 >lines
        i=0
        while "$MILLRACE" -n disk/ns log append a --lines --quiet <lines 2>running; do
            i=$((i+1)); [ $i -lt 10 ] || { echo "never full"; break; }
        done
        cat creation >&2; cat running >&2
        "$MILLRACE" -n disk/ns log get a --all --raw | grep -cv '^x*$' || true
        "$MILLRACE" -n disk/ns namespace check >/dev/null && echo sound
    "#;
    let Some(said) = in_a_private_mount_namespace(&place, script) else { return };
    assert_eq!(said.text(), "0\nsound\n", "{said:#?}");
    let full = said.stderr.matches("error[MR2008]").count() + said.stderr.matches("error[MR2013]").count();
    assert_eq!(full, 2, "once at creation and once while running: {}", said.stderr);
}

#[test]
fn every_error_code_is_explained() {
    let place = Place::empty();
    let all = place.run(["error", "--json"]).ok().objects();
    assert!(all.len() > 40, "{}", all.len());
    for code in all {
        let id = code["code"].as_str().unwrap();
        let text = place.run(["error", id]).ok();
        assert!(text.text().contains(id) && text.text().contains("remedy: "), "{}", text.text());
    }
    place.run(["error", "MR9999"]).fails("MR4008", 2);
    assert!(place.run(["error", "mr2101"]).ok().text().starts_with("MR2101 log not found"));
}

#[test]
fn the_version_is_told_in_both_ways() {
    let place = Place::empty();
    let version = place.run(["--json", "version"]).ok().object()["version"].as_str().unwrap().to_string();
    assert_eq!(place.run(["version"]).ok().text(), format!("millrace {version}\n"));
    assert_eq!(place.run(["--version"]).ok().text(), format!("millrace {version}\n"));
    let help = place.run(["--help"]).ok();
    assert!(help.text().contains("Examples:") && !help.text().contains('\x1b'));
    assert_eq!(place.run(["frobnicate"]).code, 2);
}
