//! The files of the dashboard. They are the same for everyone and contain nothing of a namespace: the pages read everything from the
//! public HTTP interface.
//!
//! `make web` builds the files in `web/dist`. Without that, there is one page that says so.

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its bytes.
    pub bytes: &'static [u8],
    /// Its media type.
    pub kind: &'static str,
    /// Whether the file of this name never changes, because its name has a hash of its bytes.
    pub is_fixed: bool,
}

/// The folder of the files whose names have hashes.
const FIXED: &str = "@/";

/// The file of this name, such as `index.html`.
pub fn file(name: &str) -> Option<File> {
    let at = FILES.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    let (name, bytes) = FILES[at];
    let kind = match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    Some(File { bytes, kind, is_fixed: name.starts_with(FIXED) })
}

/// The page. It shows the screen that its own address names, so it answers every address below `/ui` that is no other file.
pub fn page() -> File {
    file("index.html").expect("the build writes this page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_whatever_was_built() {
        assert_eq!((page().kind, page().is_fixed), ("text/html; charset=utf-8", false));
        assert!(page().bytes.starts_with(b"<!doctype html>"));
        assert_eq!(file("../index.html"), None);
        for (name, _) in FILES {
            assert!(file(name).is_some(), "{name}");
        }
    }
}
