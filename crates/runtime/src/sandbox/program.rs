//! A function's program, as it is called inside its sandbox, and the files that must be visible for it to run.
//!
//! A program outside the system's directories is shown with its libraries, and with nothing else of the directory that it is installed in:
//! that may be `~/.local`, which has other things in it. The host executes no such program. To find out where the library of a Python
//! interpreter is, the interpreter is asked in a sandbox of its own.

use super::files;
use crate::{Code, Error, Result, child};
use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs, io,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The files that a program needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The program's file, as the host calls it.
    pub(super) program: PathBuf,
    /// Files and directories that must be shown.
    pub(super) shown: Vec<PathBuf>,
    /// Symbolic links that must be there, and where they lead.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
}

/// Runs an interpreter with these arguments where it sees only these files, and returns what it prints.
pub(super) type Ask<'a> = &'a dyn Fn(&Found, &[&str]) -> Result<String>;

/// Says where an interpreter and its libraries are.
const ASK: [&str; 3] =
    ["-I", "-c", "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix, sep='\\n')"];
/// As many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Where programs have their libraries, beside the directory of programs.
const LIBRARIES: [&str; 3] = ["lib", "lib64", "libexec"];
/// The parts of a virtual environment of Python.
const ENVIRONMENT: [&str; 4] = [MARK, "bin", "lib", "lib64"];
/// The file by which Python recognises a virtual environment.
const MARK: &str = "pyvenv.cfg";
/// The parts of an environment of conda, which has the directory `conda-meta`.
const CONDA: [&str; 7] = ["bin", "etc", "lib", "lib64", "libexec", "share", "ssl"];
/// The parts of a JDK, which has the file `release`.
const JDK: [&str; 4] = ["conf", "jre", "lib", "release"];
/// Directories in the home directory with keys and capabilities, and with other data of programs.
const PRIVATE: [&str; 8] = [".aws", ".config", ".gnupg", ".kube", ".local/share", ".local/state", ".millrace", ".ssh"];
/// Variables with such directories.
const PRIVATE_VARIABLES: [&str; 6] =
    ["HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"];

/// Finds the program `name` of a function whose code is in `code`. `ask` is used for an interpreter outside the system's directories.
pub(super) fn find(name: &Path, code: &Path, is_python: bool, ask: Ask<'_>) -> Result<Found> {
    if let Some(program) = own(name, code)? {
        return Ok(Found { program, ..Found::default() });
    }
    let program = child::program(name, code)?;
    let mut found = installed(&program)?;
    if found.shown.is_empty() && found.links.is_empty() {
        return Ok(found);
    }
    if is_python {
        found = interpreter(found, ask)?;
    }
    let private = private(code);
    for shown in &found.shown {
        if let Some(held) = private.iter().find(|held| holds(shown, held)) {
            let why = format!("it needs all of '{}', which also contains '{}'", shown.display(), held.display());
            return Err(refused(&found.program, &why));
        }
    }
    Ok(found)
}

/// The program in the function's own code that `name` means, if it means one: a path that does not begin at the root directory, or that
/// leads into the code. Such a path does not lead out of the code.
fn own(name: &Path, code: &Path) -> Result<Option<PathBuf>> {
    if !name.as_os_str().as_encoded_bytes().contains(&b'/') {
        return Ok(None);
    }
    if name.is_absolute() && !name.starts_with(code) {
        return Ok(None);
    }
    if name.components().any(|part| part == Component::ParentDir) {
        return Err(refused(name, "the path leads out of the function's code, or back into it"));
    }
    let program = child::program(name, code)?;
    let real = |path: &Path| path.canonicalize().map_err(|error| refused(name, &error.to_string()));
    if !real(&program)?.starts_with(real(code)?) {
        return Err(refused(name, "it is a link that leads out of the function's code"));
    }
    Ok(Some(program))
}

/// Directories that no function sees, because others than its author have their data in them.
fn private(code: &Path) -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let named = PRIVATE_VARIABLES.iter().filter_map(|name| env::var_os(name).map(PathBuf::from));
    let below = PRIVATE.iter().filter_map(|below| home.as_ref().map(|home| home.join(below)));
    // The code stands in `functions/HASH` of a namespace.
    let namespace = code.parent().and_then(Path::parent);
    let all = named.chain(below).chain([code.to_owned()]).chain(namespace.map(Path::to_owned));
    all.filter(|path| path.is_absolute()).collect()
}

fn holds(shown: &Path, path: &Path) -> bool {
    let same = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    same(path).starts_with(same(shown))
}

fn refused(program: &Path, why: &str) -> Error {
    Code::CommandUnusable.error(format!("'{}' cannot be used in a sandbox: {why}", program.display()))
}

/// A path whose directory has no links in it.
fn straight(path: &Path) -> io::Result<PathBuf> {
    let dir = path.parent().unwrap_or(Path::new("/")).canonicalize()?;
    Ok(dir.join(path.file_name().ok_or(io::ErrorKind::InvalidInput)?))
}

/// The files of a program of the host, by where it is: what it is called by may be a link to it.
fn installed(program: &Path) -> Result<Found> {
    let unreadable = |error: io::Error| refused(program, &error.to_string());
    let mut at = if files::is_shown(program) && !has_parent(program) {
        program.to_owned()
    } else {
        straight(program).map_err(unreadable)?
    };
    let mut found = Found { program: at.clone(), ..Found::default() };
    for _ in 0..LINKS_MAX {
        let target = fs::read_link(&at).ok();
        let parts = parts_of(&at, target.is_none());
        found.show(&parts);
        let Some(target) = target else {
            if !found.sees(&at) {
                found.shown.push(at);
            }
            return Ok(found);
        };
        let to = straight(&at.parent().unwrap_or(Path::new("/")).join(target)).map_err(unreadable)?;
        // In a directory that is shown, links are shown as what they are.
        if !found.sees(&at) {
            found.links.push((at, to.clone()));
        }
        at = to;
    }
    Err(refused(program, "too many links lead to it"))
}

fn has_parent(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// The directory that a program is installed in, with its libraries.
fn prefix_of(program: &Path) -> Option<&Path> {
    let dir = program.parent()?;
    let is_of_programs = dir.file_name().is_some_and(|name| name == "bin" || name == "sbin" || name == "shims");
    dir.parent().filter(|prefix| is_of_programs && prefix.parent().is_some())
}

/// The parts that a program needs of the directory that it is installed in. A link does not need libraries, but may be what an interpreter
/// finds its environment by.
fn parts_of(program: &Path, is_real: bool) -> Vec<PathBuf> {
    prefix_of(program).map_or(Vec::new(), |prefix| parts(prefix, is_real))
}

fn parts(prefix: &Path, libraries: bool) -> Vec<PathBuf> {
    let has = |name: &str| prefix.join(name).exists();
    let names: &[&str] = if prefix.join(MARK).is_file() {
        &ENVIRONMENT
    } else if has("conda-meta") {
        &CONDA
    } else if !libraries {
        &[]
    } else if has("release") && (has("lib/modules") || has("jre") || has("lib/rt.jar")) {
        &JDK
    } else {
        &LIBRARIES
    };
    names.iter().map(|name| prefix.join(name)).filter(|part| part.exists()).collect()
}

impl Found {
    fn sees(&self, path: &Path) -> bool {
        files::is_shown(path) || self.shown.iter().any(|shown| path.starts_with(shown))
    }

    fn show(&mut self, parts: &[PathBuf]) {
        for part in parts {
            if !self.sees(part) {
                self.shown.push(part.clone());
            }
        }
    }
}

/// Asks an interpreter of the host's, which may be a script that finds another, once.
fn interpreter(found: Found, ask: Ask<'_>) -> Result<Found> {
    static ASKED: Mutex<BTreeMap<PathBuf, Found>> = Mutex::new(BTreeMap::new());
    let program = found.program.clone();
    let known = |asked: &BTreeMap<PathBuf, Found>| asked.get(&program).filter(|found| found.program.is_file()).cloned();
    if let Some(found) = known(&ASKED.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(found);
    }
    let answered = answer(found, ask)?;
    ASKED.lock().unwrap_or_else(PoisonError::into_inner).insert(program, answered.clone());
    Ok(answered)
}

fn answer(mut found: Found, ask: Ask<'_>) -> Result<Found> {
    let unusable = |program: &Path, why: &str| Code::PythonUnusable.error(format!("'{}' {why}", program.display()));
    let program = found.program.clone();
    // A script that finds the interpreter needs what it is installed with, of which the function sees nothing.
    let mut asked = found.clone();
    let around = prefix_of(&program).filter(|prefix| !private(Path::new("/")).iter().any(|held| holds(prefix, held)));
    around.into_iter().for_each(|prefix| asked.show(&[prefix.to_owned()]));
    let printed = ask(&asked, &ASK).map_err(|error| {
        unusable(&program, &format!("could not be asked for the place of its library: {}", error.detail()))
    })?;
    let mut lines = printed.lines().map(PathBuf::from).filter(|path| path.is_absolute() && !has_parent(path));
    let executable = lines.next().filter(|path| path.is_file());
    let executable = executable.ok_or_else(|| unusable(&program, "does not report its path"))?;
    let prefixes: Vec<PathBuf> = lines.collect();
    if !same_file(&executable, &program) {
        // Another one was found.
        found = installed(&executable)?;
    }
    for prefix in prefixes.iter().filter(|prefix| !files::is_shown(prefix)) {
        if !is_of_python(prefix) {
            let why = format!("reports that its library is in '{}', where there is none", prefix.display());
            return Err(unusable(&program, &why));
        }
        found.show(&parts(prefix, true));
    }
    Ok(found)
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| straight(path).ok();
    real(one).is_some() && real(one) == real(other)
}

/// Whether a directory has an interpreter's library, or is a virtual environment.
fn is_of_python(prefix: &Path) -> bool {
    let is_library = |name: &OsStr| name.as_encoded_bytes().starts_with(b"python3");
    let has_library = |lib: &str| {
        let names = fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten();
        names.into_iter().any(|entry| is_library(&entry.file_name()) && entry.path().join("os.py").is_file())
    };
    prefix.join(MARK).is_file() || has_library("lib") || has_library("lib64")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn program(path: &Path) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_owned()
    }

    fn never(_: &Found, _: &[&str]) -> Result<String> {
        panic!("nobody is to be asked")
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        (dir, place)
    }

    #[test]
    fn a_program_is_shown_with_its_libraries_and_with_nothing_else_of_its_prefix() {
        let (_dir, place) = place();
        let prefix = place.join("local");
        let tool = program(&prefix.join("bin/tool"));
        for name in ["lib", "share", "state", "etc"] {
            fs::create_dir(prefix.join(name)).unwrap();
        }
        fs::write(prefix.join("secret"), "").unwrap();
        let code = place.join("functions/x");
        let found = find(&tool, &code, false, &never).unwrap();
        assert_eq!(found, Found { shown: vec![prefix.join("lib"), tool.clone()], program: tool, links: Vec::new() });
        // A link shows what it leads to, and nothing of where it is.
        fs::create_dir_all(place.join("other/bin")).unwrap();
        fs::create_dir_all(place.join("other/lib")).unwrap();
        let link = place.join("other/bin/tool");
        symlink(&found.program, &link).unwrap();
        let linked = find(&link, &code, false, &never).unwrap();
        assert_eq!((linked.program.clone(), linked.shown), (link.clone(), found.shown));
        assert_eq!(linked.links, [(link, found.program)]);
    }

    #[test]
    fn a_program_whose_libraries_are_among_private_files_is_refused() {
        let (_dir, place) = place();
        let tool = program(&place.join("bin/tool"));
        let code = place.join("lib/functions/x");
        fs::create_dir_all(&code).unwrap();
        let error = find(&tool, &code, false, &never).unwrap_err();
        assert!(error.code() == Code::CommandUnusable && error.detail().contains("also contains"), "{error}");
    }

    #[test]
    fn a_path_that_leads_out_of_the_code_is_refused() {
        let (_dir, place) = place();
        let code = place.join("functions/x");
        program(&place.join("functions/y/f.sh"));
        let own = program(&code.join("f.sh"));
        symlink(place.join("functions/y/f.sh"), code.join("link.sh")).unwrap();
        assert_eq!(
            find(Path::new("./f.sh"), &code, false, &never).unwrap(),
            Found { program: code.join("f.sh"), ..Found::default() }
        );
        assert_eq!(find(&own, &code, true, &never).unwrap().shown, Vec::<PathBuf>::new());
        for name in ["../y/f.sh", "./link.sh", "x/../../y/f.sh"] {
            let error = find(Path::new(name), &code, false, &never).unwrap_err();
            assert_eq!(error.code(), Code::CommandUnusable, "{name}");
        }
    }

    #[test]
    fn an_interpreter_says_where_its_library_is_and_a_false_answer_shows_nothing() {
        let (_dir, place) = place();
        let shim = program(&place.join("shims/bin/python"));
        let real = program(&place.join("versions/bin/python"));
        fs::create_dir_all(place.join("versions/lib/python3.12")).unwrap();
        fs::write(place.join("versions/lib/python3.12/os.py"), "").unwrap();
        fs::create_dir_all(place.join("private/lib")).unwrap();
        fs::create_dir_all(place.join("versions/share")).unwrap();
        let code = place.join("functions/x");
        let says = |prefix: PathBuf| {
            let real = real.clone();
            move |_: &Found, _: &[&str]| {
                Ok(format!("{}\n{prefix}\n{prefix}\n", real.display(), prefix = prefix.display()))
            }
        };
        let false_one = says(place.join("private"));
        assert_eq!(find(&shim, &code, true, &false_one).unwrap_err().code(), Code::PythonUnusable);
        let found = find(&shim, &code, true, &says(place.join("versions"))).unwrap();
        assert_eq!(found.program, real);
        assert_eq!(found.shown, [place.join("versions/lib"), real]);
    }

    #[test]
    fn an_environment_is_found_by_its_link_to_the_interpreter() {
        let (_dir, place) = place();
        let venv = place.join("venv");
        fs::create_dir_all(venv.join("bin")).unwrap();
        fs::create_dir_all(venv.join("lib")).unwrap();
        fs::write(venv.join(MARK), "").unwrap();
        fs::write(venv.join("secret"), "").unwrap();
        symlink("/usr/bin/env", venv.join("bin/python")).unwrap();
        symlink(&venv, place.join("link")).unwrap();
        let found = installed(&place.join("link/bin/python")).unwrap();
        assert_eq!(found.program, venv.join("bin/python"));
        assert_eq!(found.shown, [venv.join(MARK), venv.join("bin"), venv.join("lib")]);
        assert_eq!(found.links, []);
    }
}
