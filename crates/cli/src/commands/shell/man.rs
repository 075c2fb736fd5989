//! Manual pages: one for each command, from the table that `--help` is printed from.

use clap::Command;
use clap_mangen::Man;
use std::io;

/// The name and the text of each page, the first for `millrace` itself.
pub fn pages(command: Command) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut command = command;
    // Global options are handed down only when the table is built.
    command.build();
    collect(&command, command.get_name().to_string(), &mut pages);
    pages
}

fn collect(command: &Command, name: String, pages: &mut Vec<(String, String)>) {
    // A page is called as `man millrace-log-get` finds it, and shows the command as it is typed.
    let mut shown =
        command.clone().display_name(name.clone()).bin_name(name.replace('-', " ")).disable_help_subcommand(true);
    shown = shown.version(env!("CARGO_PKG_VERSION"));
    let page = render(shown).unwrap_or_else(|error| format!(".\\\" this page cannot be rendered: {error}\n"));
    pages.push((format!("{name}.1"), page));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        collect(sub, format!("{name}-{}", sub.get_name()), pages);
    }
}

fn render(command: Command) -> io::Result<String> {
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let subcommands = command.has_subcommands();
    let man = Man::new(command).manual("Millrace").source(concat!("millrace ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    page.extend_from_slice(notes_section(&notes).as_bytes());
    man.render_version_section(&mut page)?;
    String::from_utf8(page).map_err(io::Error::other)
}

/// The text behind a command's help: paragraphs, and indented examples that keep their lines.
fn notes_section(text: &str) -> String {
    let mut section = String::new();
    let mut title = Some("NOTES");
    let mut verbatim = false;
    for line in text.lines() {
        if line == "Examples:" {
            title = Some("EXAMPLES");
            continue;
        }
        let indented = line.starts_with("  ");
        if verbatim && !indented {
            section.push_str(".fi\n.RE\n");
            verbatim = false;
        }
        if line.is_empty() {
            if title.is_none() {
                section.push_str(".PP\n");
            }
            continue;
        }
        if let Some(title) = title.take() {
            section.push_str(&format!(".SH {title}\n"));
        }
        if indented && !verbatim {
            section.push_str(".RS 2\n.nf\n");
            verbatim = true;
        }
        section.push_str(&escaped(line.trim_start()));
        section.push('\n');
    }
    if verbatim {
        section.push_str(".fi\n.RE\n");
    }
    section
}

/// Text that roff prints as it is.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('`', "\\(ga").replace('\'', "\\(aq");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_a_page_with_its_options_and_examples() {
        let pages = pages(Cli::command());
        let page = |name: &str| &pages.iter().find(|(page, _)| page == name).unwrap_or_else(|| panic!("{name}")).1;
        assert_eq!(pages[0].0, "millrace.1");
        for (name, text) in &pages {
            assert!(text.contains(".SH EXAMPLES\n"), "{name} has no examples");
            assert!(text.contains("\\-\\-json"), "{name} does not tell of --json");
        }
        let get = page("millrace-log-get.1");
        assert!(get.contains("millrace log get") && get.contains("\\-\\-from"), "{get}");
        assert!(get.contains("millrace log get raw/kitchen \\-\\-all \\-\\-json\n"), "{get}");
    }

    #[test]
    fn roff_prints_notes_as_they_are() {
        let section = notes_section("A\\B `c`.\n\n.d\n\nExamples:\n  x --y   z\n  'w'\n");
        let notes = ".SH NOTES\nA\\eB \\(gac\\(ga.\n.PP\n\\&.d\n.PP\n";
        let examples = ".SH EXAMPLES\n.RS 2\n.nf\nx \\-\\-y   z\n\\(aqw\\(aq\n.fi\n.RE\n";
        assert_eq!(section, format!("{notes}{examples}"));
    }
}
