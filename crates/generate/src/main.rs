//! Writes the generated files, and says which of them changed.

use std::{fs, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = match millrace_generate::files(&root) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (path, made) in files {
        if fs::read_to_string(root.join(&path)).is_ok_and(|there| there == made) {
            continue;
        }
        let folder = root.join(&path).parent().map(fs::create_dir_all);
        if let Err(error) = folder.unwrap_or(Ok(())).and_then(|()| fs::write(root.join(&path), made)) {
            eprintln!("error: {path}: {error}");
            return ExitCode::FAILURE;
        }
        println!("{path}");
    }
    ExitCode::SUCCESS
}
