//! Which namespace a command is about.

use crate::args::Global;
use millrace_node::{
    Namespace, Result,
    application::{Application, FILE_NAME, NAMESPACE_DIR},
};
use std::path::{Path, PathBuf};

/// What the user chose by option or environment; an empty variable is no choice.
pub fn chosen(global: &Global) -> Option<PathBuf> {
    let variable = || std::env::var_os("MILLRACE_NAMESPACE").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    global.namespace.clone().or_else(variable)
}

/// The namespace's directory: as the option or environment says, else as `./millrace.toml` does, else `./.millrace`.
pub fn namespace_dir(global: &Global) -> PathBuf {
    chosen(global)
        .or_else(|| Application::namespace_of(Path::new(FILE_NAME)))
        .map_or_else(|| NAMESPACE_DIR.into(), tidy)
}

/// A path without a needless `./` in front.
pub fn tidy(path: PathBuf) -> PathBuf {
    match path.strip_prefix(".") {
        Ok(rest) if !rest.as_os_str().is_empty() => rest.to_path_buf(),
        _ => path,
    }
}

/// Opens the namespace a command is about.
pub fn open(global: &Global) -> Result<Namespace> {
    Namespace::open(&namespace_dir(global))
}

/// The namespace of an application: as the option or environment says, else as its file does.
pub fn application_dir(global: &Global, application: &Application) -> PathBuf {
    tidy(chosen(global).unwrap_or_else(|| application.namespace.clone()))
}
