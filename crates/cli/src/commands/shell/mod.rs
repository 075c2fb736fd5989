//! `millrace completions` and `millrace man`: both are generated from the table of commands.

mod man;

use crate::{
    args::{Cli, CompletionsArgs, ManArgs, ShellArg},
    complete,
    out::Out,
    report::Outcome,
    show,
};
use clap::CommandFactory;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use millrace_node::Code;
use serde_json::json;
use std::{fs, path::Path};

const NAME: &str = "millrace";

/// Answers a shell that completes a command line, and ends; otherwise returns.
pub fn answer() {
    clap_complete::CompleteEnv::with_factory(Cli::command).var(complete::VARIABLE).complete();
}

pub fn completions(args: &CompletionsArgs, out: &mut Out) -> Outcome {
    let shell: &dyn EnvCompleter = match args.shell {
        ShellArg::Bash => &Bash,
        ShellArg::Zsh => &Zsh,
        ShellArg::Fish => &Fish,
    };
    // By its name, so that the script also works with another version that replaces it.
    let mut script = Vec::new();
    shell.write_registration(complete::VARIABLE, NAME, NAME, NAME, &mut script)?;
    if out.json() {
        let script = String::from_utf8_lossy(&script);
        return Ok(out.object(&json!({ "shell": shell.name(), "script": script }))?);
    }
    Ok(out.bytes(&script)?)
}

pub fn man(args: &ManArgs, out: &mut Out) -> Outcome {
    let pages = man::pages(Cli::command());
    let Some(dir) = &args.dir else {
        let (name, page) = &pages[0];
        if out.json() {
            return Ok(out.object(&json!({ "page": name, "roff": page }))?);
        }
        return Ok(out.bytes(page.as_bytes())?);
    };
    let not_written = |path: &Path, error: std::io::Error| {
        Code::FileNotWritten.error(format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(dir).map_err(|error| not_written(dir, error))?;
    for (name, page) in &pages {
        let path = dir.join(name);
        fs::write(&path, page).map_err(|error| not_written(&path, error))?;
    }
    if out.json() {
        let names: Vec<&String> = pages.iter().map(|(name, _)| name).collect();
        out.object(&json!({ "dir": dir, "pages": names }))?;
    } else {
        out.line(format!("wrote {} to {}", show::count(pages.len() as u64, "page"), dir.display()))?;
    }
    Ok(())
}
