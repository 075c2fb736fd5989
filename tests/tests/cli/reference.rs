//! The pages of commands: what `--help` prints, so that it can be read without the binary.

use millrace_tests::{Place, end};
use std::{collections::BTreeMap, fs, path::Path};

/// What `--help` prints of a command.
fn help(place: &Place, command: &[String]) -> String {
    let mut command = place.command(command.iter().map(String::as_str).chain(["--help"]));
    // Help shows what variables are set to.
    command.env_remove("MILLRACE_LISTEN").env_remove("MILLRACE_NAME");
    end(command, b"").ok().text().to_string()
}

/// The commands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    // Further lines of a long description are indented more.
    let listed =
        lines.take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    listed.filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
}

fn section(place: &Place, command: &[String], page: &mut String) {
    let text = help(place, command);
    let title = [&["millrace".to_string()], command].concat().join(" ");
    *page += &format!("\n## {title}\n\n```text\n{}\n```\n", text.trim_end());
    for sub in subcommands(&text) {
        section(place, &[command, &[sub]].concat(), page);
    }
}

/// The pages by their names: one for each first word, and one that lists them.
fn pages() -> BTreeMap<String, String> {
    let place = Place::empty();
    let top = help(&place, &[]);
    let commands = subcommands(&top);
    assert!(commands.len() > 10, "{commands:?}");
    let made = "Generated from `--help`. `millrace man DIR` writes the same texts as manual pages.";
    let mut list = format!("# The command line\n\n{made}\n\n");
    let mut pages = BTreeMap::new();
    for command in commands {
        list += &format!("* [millrace {command}]({command}.md)\n");
        let mut page = format!("# millrace {command}\n\n{made}\n");
        section(&place, std::slice::from_ref(&command), &mut page);
        pages.insert(format!("{command}.md"), page);
    }
    list += &format!("\n```text\n{}\n```\n", top.trim_end());
    pages.insert("README.md".into(), list);
    pages
}

#[test]
fn the_pages_of_commands_are_what_help_prints() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli");
    let pages = pages();
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        // Pages of commands that are gone go, too.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("docs/reference is writable");
        for (name, page) in &pages {
            fs::write(dir.join(name), page).expect("docs/reference/cli is writable");
        }
        return;
    }
    let there = fs::read_dir(&dir).map_or(0, |entries| entries.count());
    assert_eq!(there, pages.len(), "docs/reference/cli has other pages: run the test with MILLRACE_BLESS=1");
    for (name, page) in &pages {
        let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
        assert!(text == *page, "docs/reference/cli/{name} is not up to date: run the test with MILLRACE_BLESS=1");
    }
}
