//! A process that loses a thread ends, loudly; one whose threads end as they should does not.
//!
//! Each case is this test's own binary, started again with the case in a variable; `harness = false`, because one case is
//! about the first thread.

#![allow(unsafe_code)] // The system call that ends one thread.

use libtest_mimic::{Arguments, Trial};
use millrace_threads::{Fuse, guard, join, spawn, watch_me};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
    sync::{Arc, Mutex, mpsc},
    thread::{self, Builder},
    time::Duration,
};

const CASE: &str = "MILLRACE_THREADS_CASE";
/// The longest a case lasts that should have been ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// The calling thread is gone: nothing is unwound, nothing dropped.
fn vanish() -> ! {
    // SAFETY: it ends the calling thread and nothing else.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread has ended")
}

fn named(name: &str) -> Builder {
    Builder::new().name(name.into())
}

fn play(case: &str) {
    let _main = watch_me().unwrap();
    guard().unwrap();
    guard().unwrap();
    match case {
        "vanishes" => drop(spawn::<()>(named("miller"), || vanish()).unwrap()),
        "vanishes and is waited for" => join(spawn::<()>(named("miller"), || vanish()).unwrap()),
        "vanishes with the lock that all need" => {
            let lock = Arc::new(Mutex::new(()));
            let of_thread = lock.clone();
            let (sender, held) = mpsc::channel();
            let work = move || {
                let _held = of_thread.lock().unwrap();
                // As much as is printed goes through this lock.
                let _printing = std::io::stderr().lock();
                sender.send(()).unwrap();
                vanish()
            };
            spawn::<()>(named("miller"), work).unwrap();
            held.recv().unwrap();
            drop(lock.lock());
        }
        "the first thread vanishes" => vanish(),
        "a watcher vanishes" => {
            // The watchers are this process's threads of that name; a signal has one of them end itself.
            extern "C" fn handler(_: libc::c_int) {
                // SAFETY: as in `vanish`.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
            }
            // SAFETY: the handler only makes a system call.
            unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
            // It takes its name when it begins, and is counted as one before it first sleeps: "PID (NAME) S …".
            let is_watcher = |task: &Path| {
                let stat = fs::read_to_string(task.join("stat")).unwrap();
                stat.split_once('(').is_some_and(|(_, stat)| stat.starts_with("millrace-guard) S"))
            };
            let one = loop {
                let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
                if let Some(one) = tasks.filter(|task| is_watcher(task)).nth(1) {
                    break one.file_name().unwrap().to_str().unwrap().parse::<i32>().unwrap();
                }
            };
            // SAFETY: a signal to a thread of this process, which has a handler for it.
            unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), one, libc::SIGUSR1) };
        }
        "panics" => drop(spawn::<()>(named("miller"), || panic!("the wheel broke")).unwrap()),
        "a task panics whose runtime goes on" => {
            let task = || {
                let _fuse = Fuse("grind");
                panic!("the wheel broke")
            };
            drop(std::panic::catch_unwind(task));
        }
        "ends" => {
            // A panic elsewhere is none of a task that ends as it should.
            drop(std::panic::catch_unwind(|| panic!("no task's")));
            drop(Fuse("grind"));
            for _ in 0..100 {
                join(spawn(named("miller"), || thread::sleep(Duration::from_millis(20))).unwrap());
            }
            println!("all is well");
            std::process::exit(0);
        }
        case => panic!("no case '{case}'"),
    }
    thread::sleep(PATIENCE);
}

fn run(case: &str) -> Output {
    Command::new(std::env::current_exe().unwrap()).env(CASE, case).output().unwrap()
}

fn ends_loudly(case: &str, code: &str, who: &str) {
    let output = run(case);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{case}: {said}");
    assert!(said.contains(&format!("error[{code}]: {who} ")), "{case}: {said}");
    assert!(said.contains("\n  cause: ") && said.contains("\n  remedy: "), "{case}: {said}");
    println!("{case}: {}", said.lines().find(|line| line.contains(code)).unwrap_or_default());
}

fn main() {
    if let Ok(case) = std::env::var(CASE) {
        return play(&case);
    }
    let loud = |case: &'static str, code: &'static str, who: &'static str| {
        Trial::test(case.replace(' ', "_"), move || {
            ends_loudly(case, code, who);
            Ok(())
        })
    };
    let trials = vec![
        loud("vanishes", "MR5004", "thread 'miller'"),
        loud("vanishes and is waited for", "MR5004", "thread 'miller'"),
        loud("vanishes with the lock that all need", "MR5004", "thread 'miller'"),
        loud("a watcher vanishes", "MR5004", "thread 'millrace-guard'"),
        loud("the first thread vanishes", "MR5004", "thread 'main'"),
        loud("panics", "MR5005", "thread 'miller'"),
        loud("a task panics whose runtime goes on", "MR5005", "task 'grind'"),
        Trial::test("threads_that_end_as_they_should_end_nothing", || {
            let output = run("ends");
            assert!(output.status.success() && output.stdout.ends_with(b"all is well\n"), "{output:?}");
            Ok(())
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
