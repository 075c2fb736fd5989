//! Opens an address in the user's browser. The arguments of a command are visible to every user of the machine, and an address may carry a
//! code or a capability, so the browser is given a file that only this user can read, and that leads it there.

use millrace_node::{Code, Result};
use std::{
    io::{self, Write},
    path::PathBuf,
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};
use tempfile::{Builder, NamedTempFile};

/// How long the browser may take to read the file.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// An address that a browser was asked to open.
pub struct Opened {
    /// Removes the file, if there is one.
    ends: Option<JoinHandle<()>>,
}

impl Opened {
    /// Waits until the browser has had its time to read the file, and the file is removed.
    pub fn finish(self) {
        if let Some(ends) = self.ends {
            millrace_threads::join(ends);
        }
    }
}

/// Asks the desktop for a browser that opens this address.
pub fn open(url: &str) -> Result<Opened> {
    let failed = |why: String| Code::DashboardUnreachable.error(format!("xdg-open could not open a browser: {why}"));
    let is_secret = url.contains('#');
    let page = if is_secret { Some(redirect(url).map_err(|error| failed(error.to_string()))?) } else { None };
    let mut command = Command::new("xdg-open");
    match &page {
        Some(page) => command.arg(page.path()),
        None => command.arg(url),
    };
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let ended = ended.map_err(|error| failed(error.to_string()))?;
    if !ended.success() {
        return Err(failed(ended.to_string()));
    }
    let remove = |page: NamedTempFile| {
        millrace_threads::spawn(thread::Builder::new().name("browser".into()), move || {
            thread::sleep(READ_WITHIN);
            drop(page);
        })
    };
    let ends = page.map(remove).transpose().map_err(|error| failed(error.to_string()))?;
    Ok(Opened { ends })
}

/// A page that leads to this address, and that only this user can read.
fn redirect(url: &str) -> io::Result<NamedTempFile> {
    let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    let mut named = Builder::new();
    let named = named.prefix("millrace-dashboard-").suffix(".html");
    let mut page = dir.map_or_else(|| named.tempfile(), |dir| named.tempfile_in(dir))?;
    let url: String = url.chars().map(escaped).collect();
    let head = "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">";
    write!(page, "{head}<meta http-equiv=\"refresh\" content=\"0;url={url}\"><title>Millrace</title>")?;
    writeln!(page, "<a href=\"{url}\">Millrace's dashboard</a>")?;
    page.flush()?;
    Ok(page)
}

/// A character inside a quoted attribute.
fn escaped(character: char) -> String {
    match character {
        '&' => "&amp;".into(),
        '"' => "&quot;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '\'' => "&#39;".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_page_leads_to_the_address_and_only_its_user_can_read_it() {
        let page = redirect("http://127.0.0.1:7070/ui/farm#code=a&\"><script>").unwrap();
        let text = fs::read_to_string(page.path()).unwrap();
        assert!(text.contains("0;url=http://127.0.0.1:7070/ui/farm#code=a&amp;&quot;&gt;&lt;script&gt;\""), "{text}");
        assert!(!text.contains("<script"), "{text}");
        assert_eq!(fs::metadata(page.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
