//! The command line of `millrace`: a thin layer over `millrace-node`.
//!
//! It is a library, so that it is compiled while the crates below it are still being optimised; the binary only links.
//!
//! ```text
//! args  -->  commands::*  -->  millrace_node          what to do
//!                 |
//!                 +-------->  out, show, report       what to print: tables for people, NDJSON for programs
//! ```
//!
//! Only this crate reads standard input, writes standard output, decides on exit codes and catches signals.

mod args;
mod commands;
mod complete;
mod feed;
mod logging;
mod out;
mod place;
mod progress;
mod report;
mod show;
mod tips;

use args::Cli;
use clap::Parser;
use std::process::ExitCode;

/// Tests of attacks name defences to be taken out. Other builds than those of tests have no such thing.
fn take_out_defences() {
    #[cfg(debug_assertions)]
    if let Ok(names) = std::env::var("MILLRACE_WITHOUT") {
        let defence =
            |name: &str| name.parse::<millrace_wire::Defence>().expect("a test names defences that there are");
        names.split(',').map(defence).for_each(millrace_wire::Defence::take_out);
    }
}

/// Does what the arguments of this process ask for; its exit code.
pub fn main() -> ExitCode {
    // Before anything else is read or started, because the process of a sandbox must contain nothing else.
    if std::env::args_os().nth(1).is_some_and(|word| word == millrace_node::SUPERVISOR) {
        return millrace_node::supervise();
    }
    take_out_defences();
    commands::answer_shell();
    // Before clap has understood the line, only its bare presence says in which form errors are wanted.
    let json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    let cli = match Cli::try_parse_from(args::spelled_out(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return report::usage(&error, json),
    };
    let mut out = out::Out::new(cli.global.json);
    let result = commands::run(&cli, &mut out).and_then(|()| out.flush().map_err(report::Failure::from));
    let code = match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The output before the failure belongs before its message; if writing it fails too, nothing can be reported.
            let _ = out.flush();
            report::failure(&failure, json)
        }
    };
    feed::finish();
    code
}
