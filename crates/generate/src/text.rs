//! Names and lines.

/// `append_many` as `AppendMany`.
pub fn camel(name: &str) -> String {
    let part = |part: &str| part[..1].to_uppercase() + &part[1..];
    name.split('_').map(part).collect()
}

/// `LogNotFound` as `LOG_NOT_FOUND`.
pub fn constant(name: &str) -> String {
    let mut constant = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !constant.is_empty() {
            constant.push('_');
        }
        constant.push(c.to_ascii_uppercase());
    }
    constant
}

/// A description as a sentence.
pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

/// Lines of at most `width` characters.
pub fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.into());
        }
    }
    lines
}

/// The text with what is between the lines that end in `begin` and `end` replaced.
///
/// # Errors
///
/// If one of them is missing.
pub fn between(text: &str, begin: &str, end: &str, made: &str) -> Result<String, String> {
    let (before, rest) = text.split_once(&format!("{begin}\n")).ok_or_else(|| format!("it has no line '{begin}'"))?;
    let at = rest.find(end).ok_or_else(|| format!("it has no line '{end}' behind '{begin}'"))?;
    let start = rest[..at].rfind('\n').map_or(0, |at| at + 1);
    Ok(format!("{before}{begin}\n{made}{}", &rest[start..]))
}
