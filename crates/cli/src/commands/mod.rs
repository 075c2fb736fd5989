//! The commands: each reads its arguments, asks the node, prints the answer.

mod bench;
mod cap;
mod cluster;
mod context;
mod dashboard;
mod demo;
mod dev;
mod entity;
mod function;
mod history;
mod host_problem;
mod init;
mod journal;
mod link;
mod live;
pub mod log;
mod misc;
mod namespace;
mod run;
mod sandbox;
mod secret;
mod serve;
mod serving;
mod shell;
mod sql;
mod table;
mod top;
mod up;

pub use shell::answer as answer_shell;

use crate::{
    args::{Cli, Command},
    out::Out,
    place::{self, Target},
    report::{Failure, Outcome},
};
use millrace_node::Code;

/// Runs the command that was asked for. If it finds no log or function of a name, the error has the name that was probably meant.
pub fn run(cli: &Cli, out: &mut Out) -> Outcome {
    dispatch(cli, out).map_err(|failure| match failure {
        Failure::Coded(error) if matches!(error.code(), Code::LogNotFound | Code::FunctionNotFound) => {
            // Of another target, the host knows what this caller may know.
            let Ok((Target::Directory(dir), _)) = Target::find(&cli.global) else { return error.into() };
            match place::open_to_look(&place::tidy(dir)) {
                Ok(namespace) => millrace_node::hinted(error, &namespace, |_, _| true).into(),
                Err(_) => error.into(),
            }
        }
        failure => failure,
    })
}

fn dispatch(cli: &Cli, out: &mut Out) -> Outcome {
    let global = &cli.global;
    if let Command::Init(_) | Command::Dev(_) | Command::Serve(_) = &cli.command {
        place::require_directory(global)?;
    }
    match &cli.command {
        Command::Init(args) => init::run(args, global, out),
        Command::Demo(args) => demo::run(args, global, out),
        Command::Dev(args) => dev::run(args, global, out),
        Command::Up(args) => up::up(args, global, out),
        Command::Down(args) => up::down(args, global, out),
        Command::Serve(args) => serve::run(args, global, out),
        Command::Log(command) => log::run(command, global, out),
        Command::Table(command) => table::run(command, global, out),
        Command::Function(command) => function::run(command, global, out),
        Command::Run(command) => run::run(command, global, out),
        Command::Entity(command) => entity::run(command, global, out),
        Command::Journal(command) => journal::run(command, global, out),
        Command::Namespace(command) => namespace::run(command, global, out),
        Command::Context(command) => context::run(command, global, out),
        Command::Relay(command) => link::relay(command, global, out),
        Command::Device(command) => link::device(command, global, out),
        Command::Cluster(command) => cluster::run(command, global, out),
        Command::Topic(command) => cluster::topic::run(command, global, out),
        Command::Outbox(command) => link::outbox(command, global, out),
        Command::Secret(command) => secret::run(command, global, out),
        Command::Cap(command) => cap::run(command, global, out),
        Command::Mqtt(command) => cap::mqtt::run(command, global, out),
        Command::Trace(args) => history::trace(args, global, out),
        Command::Graph(args) => history::graph(args, global, out),
        Command::Repair(command) => history::repair(command, global, out),
        Command::Invite(args) => cap::invite(args, global, out),
        Command::Join(args) => cap::join(args, out),
        Command::Sql(args) => sql::run(args, global),
        Command::Top(args) => top::run(args, global, out),
        Command::Dashboard(args) => dashboard::run(args, global, out),
        Command::Bench(args) => bench::run(args, global, out),
        Command::Completions(args) => shell::completions(args, out),
        Command::Man(args) => shell::man(args, out),
        Command::Why(args) => misc::why(args, global, out),
        Command::Error(args) => misc::error(args, out),
        Command::Version => misc::version(out),
    }
}
