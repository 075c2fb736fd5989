//! The Helm chart: what Helm makes of it is kept in `golden/helm.yaml`, and what its pods do is done here with three hosts.
//!
//! Helm is not part of the tests' installation. With MILLRACE_HELM=1 (or the path of a program) it lints the chart, and what it makes of it is
//! compared with the file; MILLRACE_BLESS=1 writes the file.

use millrace_tests::{Ended, Host, Place, Port, binary, end, eventually};
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_owned()
}

fn golden() -> PathBuf {
    root().join("tests/golden/helm.yaml")
}

/// What Helm makes of the chart for the release `mill` in the namespace `farm`, as the file has it.
fn documents() -> Vec<Value> {
    let mut command = Command::new(root().join(".venv/bin/python"));
    let program = "import json, sys, yaml; print(json.dumps([d for d in yaml.safe_load_all(open(sys.argv[1])) if d]))";
    command.args(["-c", program]).arg(golden());
    let Ended { code, stdout, stderr } = end(command, b"");
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_slice(&stdout).expect("it is JSON")
}

#[test]
fn helm_accepts_the_chart_and_makes_of_it_what_is_kept() {
    let helm = match env::var("MILLRACE_HELM") {
        Ok(helm) if helm == "1" => "helm".to_owned(),
        Ok(helm) => helm,
        Err(_) => {
            eprintln!("NOT TESTED: Helm itself. MILLRACE_HELM=1 has it lint the chart.");
            return;
        }
    };
    let run = |words: &[&str]| {
        let mut command = Command::new(&helm);
        command.args(words).arg(root().join("deploy/helm/millrace"));
        end(command, b"").ok()
    };
    run(&["lint", "--strict"]);
    run(&["template", "mill", "--namespace", "farm", "--set", "cluster.secret=mrc1_00,storage.className=fast"]);
    run(&["template", "mill", "--namespace", "farm", "--is-upgrade"]);
    let made = run(&["template", "mill", "--namespace", "farm"]);
    if env::var_os("MILLRACE_BLESS").is_some() {
        fs::write(golden(), &made.stdout).expect("the tree is writable");
    }
    assert!(made.stdout == fs::read(golden()).expect("it is kept"), "run the test with MILLRACE_BLESS=1");
}

/// The one document of a kind, and its name.
fn one<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |document: &&Value| document["kind"] == kind && document["metadata"]["name"] == name;
    let found: Vec<&Value> = documents.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{kind} {name}");
    found[0]
}

#[test]
fn the_parts_of_the_chart_fit_together() {
    let all = documents();
    let set = one(&all, "StatefulSet", "mill");
    let hosts = one(&all, "Service", "mill-hosts");
    let (spec, pod) = (&set["spec"], &set["spec"]["template"]["spec"]);
    assert_eq!(spec["replicas"], 3);
    assert_eq!(spec["serviceName"], hosts["metadata"]["name"]);
    assert_eq!(
        (&hosts["spec"]["clusterIP"], &hosts["spec"]["publishNotReadyAddresses"]),
        (&"None".into(), &true.into())
    );
    let labels = &spec["template"]["metadata"]["labels"];
    for selector in [
        &spec["selector"]["matchLabels"],
        &hosts["spec"]["selector"],
        &one(&all, "Service", "mill")["spec"]["selector"],
        &one(&all, "PodDisruptionBudget", "mill")["spec"]["selector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    let container = &pod["containers"][0];
    for (probe, path) in [("startupProbe", "/healthz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        let get = &container[probe]["httpGet"];
        assert_eq!((&get["path"], &get["port"], &get["scheme"]), (&path.into(), &"millrace".into(), &"HTTPS".into()));
    }
    let mounted = |name: &str| {
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        mounts.iter().any(|mount| mount["name"] == name)
    };
    assert_eq!(spec["volumeClaimTemplates"][0]["metadata"]["name"], "data");
    assert!(["data", "secret", "tmp"].into_iter().all(mounted));
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "millrace-cluster");
}

/// A pod of the chart on this machine: its script with directories and addresses of this machine.
struct Pod {
    place: Place,
    port: Port,
}

impl Pod {
    fn start(&self, name: &str, peer: &Port, secret: &Path) -> Host {
        let all = documents();
        let command = &one(&all, "StatefulSet", "mill")["spec"]["template"]["spec"]["containers"][0]["command"];
        let words: Vec<&str> = command.as_array().expect("words").iter().filter_map(Value::as_str).collect();
        let [shell, options, script] = words[..] else { panic!("{words:?}") };
        let mut typed = script.to_owned();
        for (there, here) in [
            ("$POD_NAME.mill-hosts.farm.svc:7070", format!("127.0.0.1:{}", self.port)),
            ("$peer.mill-hosts.farm.svc:7070", format!("127.0.0.1:{peer}")),
            ("0.0.0.0:7070", format!("127.0.0.1:{}", self.port)),
            ("/data/", format!("{}/", self.place.path().display())),
            ("/secret/cluster.secret", secret.display().to_string()),
        ] {
            assert!(typed.contains(there), "{there} in {script}");
            typed = typed.replace(there, &here);
        }
        let settings = self.place.command([""; 0]);
        let mut pod = Command::new(shell);
        pod.args([options, &typed]).current_dir(self.place.path());
        for (key, value) in settings.get_envs() {
            match value {
                Some(value) => pod.env(key, value),
                None => pod.env_remove(key),
            };
        }
        let bin = binary().parent().expect("the binary is in a directory").display().to_string();
        let path = env::var("PATH").expect("there is a PATH");
        pod.env("PATH", format!("{bin}:{path}")).env("POD_NAME", name);
        Host::start(pod)
    }

    fn cluster(&self) -> Value {
        let ended = self.place.run(["--json", "-n", "millrace", "cluster", "ls"]);
        if ended.code == 0 { ended.object() } else { Value::Null }
    }
}

#[test]
fn the_pods_of_the_chart_form_a_cluster_and_join_it_once() {
    assert_eq!(
        binary().file_name().and_then(|name| name.to_str()),
        Some("millrace"),
        "the script calls it by its name"
    );
    // As the notes of the chart say.
    let first = Place::empty();
    first.run(["init", "--bare"]).ok();
    first.run(["cluster", "init"]).ok();
    first.run(["cluster", "secret", "--out", "cluster.secret"]).ok();
    let secret = first.path().join("cluster.secret");
    let pods: Vec<Pod> = (0..3).map(|_| Pod { place: Place::empty(), port: Port::reserve() }).collect();
    let start = |at: usize| pods[at].start(&format!("mill-{at}"), &pods[usize::from(at == 0)].port, &secret);
    let mut hosts: Vec<Host> = (0..3).map(start).collect();
    let votes = |pod: &Pod| {
        let cluster = pod.cluster();
        let hosts = cluster["hosts"].as_array().cloned().unwrap_or_default();
        hosts.iter().filter(|host| host["role"] != "learner").count()
    };
    eventually("three vote", || votes(&pods[0]) == 3);
    pods[2].place.run(["-n", "millrace", "topic", "create", "t"]).ok();
    pods[1].place.run(["-n", "millrace", "topic", "publish", "t", "x"]).ok();
    // A pod that is replaced keeps its volume, and its place in the cluster.
    for at in [0, 1] {
        drop(hosts.remove(at));
        hosts.insert(at, start(at));
        eventually("it is back", || votes(&pods[at]) == 3);
    }
    eventually("the record is there", || pods[0].place.run(["-n", "millrace", "topic", "get", "t"]).code == 0);
}
