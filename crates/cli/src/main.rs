//! The single binary `millrace`.

fn main() -> std::process::ExitCode {
    millrace_cli::main()
}
