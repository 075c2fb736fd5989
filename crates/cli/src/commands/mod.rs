//! The commands: each reads its arguments, asks the node, prints the answer.

mod dev;
mod function;
mod init;
mod journal;
mod live;
mod log;
mod misc;
mod run;
mod serve;
mod trouble;
mod up;

use crate::{
    args::{Cli, Command},
    out::Out,
    report::Outcome,
};

/// Runs the command that was asked for.
pub fn run(cli: &Cli, out: &mut Out) -> Outcome {
    let global = &cli.global;
    match &cli.command {
        Command::Init(args) => init::run(args, global, out),
        Command::Dev(args) => dev::run(args, global, out),
        Command::Up(args) => up::up(args, global, out),
        Command::Down(args) => up::down(args, global, out),
        Command::Serve(args) => serve::run(args, global, out),
        Command::Log(command) => log::run(command, global, out),
        Command::Function(command) => function::run(command, global, out),
        Command::Run(command) => run::run(command, global, out),
        Command::Journal(command) => journal::run(command, global, out),
        Command::Why(args) => misc::why(args, global, out),
        Command::Error(args) => misc::error(args, out),
        Command::Version => misc::version(out),
    }
}
