//! `make bench`: measures every number that Millrace reports, together with a comparable system or a physical limit, in the same run.
//!
//! ```text
//!  main --> rows (one per id) --> measure, peers, children --> report --> docs/benchmarks.{json,md}
//! ```
//!
//! For figures that involve several processes, the bench starts itself again with a hidden argument: see [`children`].

mod children;
mod functions;
mod machine;
mod measure;
mod peers;
mod picture;
mod report;
mod rows;

use clap::Parser;
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// The result of a row: a benchmark stops at the first error and reports it.
pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Measures Millrace and writes docs/benchmarks.json and docs/benchmarks.md.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Measure only these rows; the others keep the figures they had.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// List the rows.
    #[arg(long)]
    list: bool,
    /// Fewer repetitions, for a quick check; writes to target/bench instead of docs.
    #[arg(long)]
    quick: bool,
    /// The role and arguments of a child process of the bench.
    #[arg(long, hide = true, num_args = 1.., value_name = "ROLE", allow_hyphen_values = true)]
    child: Vec<String>,
}

/// The context of a row.
pub struct Context {
    /// The directory for data: on the disk of the sources, never on a file system in memory.
    pub dir: PathBuf,
    /// The repository.
    pub root: PathBuf,
    /// Fewer repetitions.
    pub quick: bool,
}

impl Context {
    fn new(quick: bool) -> Outcome<Self> {
        let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?;
        let dir = root.join("target/bench");
        fs::create_dir_all(&dir)?;
        Ok(Self { dir, root, quick })
    }

    /// An empty directory, which is removed when its handle is dropped.
    pub fn fresh(&self) -> Outcome<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix("run-").tempdir_in(&self.dir)?)
    }

    /// The number of repetitions: `many`, or a few with `--quick`.
    pub fn repetitions(&self, many: usize) -> usize {
        if self.quick { many.div_ceil(4).max(2) } else { many }
    }
}

fn main() -> ExitCode {
    // The supervisor of the sandboxes of a host that is measured.
    if std::env::args().nth(1).as_deref() == Some(millrace_node::SUPERVISOR) {
        return millrace_node::supervise();
    }
    let args = Args::parse();
    let result = match args.child.split_first() {
        Some((role, rest)) => children::act(role, rest),
        None => bench(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Outcome<()> {
    if args.list {
        rows::ALL.iter().for_each(|row| println!("{:18} {}", row.id, row.what));
        return Ok(());
    }
    if let Some(unknown) = args.only.iter().find(|id| rows::ALL.iter().all(|row| row.id != **id)) {
        return Err(format!("no row '{unknown}'; `--list` shows them all").into());
    }
    let context = Context::new(args.quick)?;
    let docs = if args.quick { context.dir.clone() } else { context.root.join("docs") };
    let mut report = report::Report::load(&docs)?;
    report.machine = machine::describe(&context)?;
    report.load = machine::load()?;
    report.date = machine::now();
    let wanted: Vec<_> =
        rows::ALL.iter().filter(|row| args.only.is_empty() || args.only.contains(&row.id.into())).collect();
    let mut failed = Vec::new();
    for (number, spec) in wanted.iter().enumerate() {
        eprintln!("[{}/{}] {}: {}", number + 1, wanted.len(), spec.id, spec.what);
        match rows::measure(spec, &context) {
            Ok(row) => {
                eprintln!("        {}", report::line(&row));
                report.put(row);
                // After each row, so that results are kept even if a later row fails.
                report.save(&docs)?;
            }
            Err(error) => {
                eprintln!("        not measured: {error}");
                failed.push(spec.id);
            }
        }
    }
    eprintln!("wrote {} and {}", docs.join("benchmarks.json").display(), docs.join("benchmarks.md").display());
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", ")).into()) }
}
