//! Decodes paths and queries, and refuses unknown parameters.

use millrace_wire::{Code, Error, Result};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// Most parameters of one query.
const PARAMETERS_MAX: usize = 16;

/// The segments of a path, each decoded: `logs/raw%2Fkitchen` has two.
pub(super) fn segments(path: &str) -> Result<Vec<Cow<'_, str>>> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    path.split('/').map(segment).collect()
}

/// One segment, decoded.
pub(crate) fn segment(text: &str) -> Result<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().map_err(|_| invalid(format!("'{}' does not decode to UTF-8", shown(text))))
}

/// The parameters of a query that have not been used yet.
#[derive(Debug)]
pub(crate) struct Query {
    left: Vec<(String, String)>,
}

impl Query {
    pub fn parse(text: &str) -> Result<Query> {
        let mut left: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| segment(&text.replace('+', " ")).map(Cow::into_owned);
            let (name, value) = (decode(name)?, decode(value)?);
            if left.iter().any(|(other, _)| *other == name) {
                return Err(invalid(format!("parameter '{}' occurs twice", shown(&name))));
            }
            if left.len() == PARAMETERS_MAX {
                return Err(invalid(format!("more than {PARAMETERS_MAX} parameters")));
            }
            left.push((name, value));
        }
        Ok(Query { left })
    }

    /// The value of a parameter.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.left.iter().position(|(other, _)| other == name)?;
        Some(self.left.swap_remove(at).1)
    }

    /// The value of a parameter that is a whole number within these bounds.
    pub fn number(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match whole_number(&text).filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                Err(invalid(format!("parameter '{name}' is '{}', not a number from {least} to {most}", shown(&text))))
            }
        }
    }

    /// Whether a parameter is `true`; it is not if it is absent.
    pub fn flag(&mut self, name: &str) -> Result<bool> {
        match self.take(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(invalid(format!("parameter '{name}' is '{}', not true or false", shown(other)))),
        }
    }

    /// Refuses what was not taken.
    pub fn finish(self) -> Result<()> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(invalid(format!("this path has no parameter '{}'", shown(name)))),
        }
    }
}

/// A number as it is typed: digits only.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    // `parse` would admit a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

pub(crate) fn invalid(detail: impl Into<String>) -> Error {
    Code::HttpParameterInvalid.error(detail)
}

/// Text of a client in a form that an error may show.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_in_a_segment_is_no_separator() {
        assert_eq!(segments("logs/raw%2Fkitchen").unwrap(), ["logs", "raw/kitchen"]);
        assert_eq!(segments("").unwrap(), Vec::<String>::new());
        assert_eq!(segments("logs/").unwrap(), ["logs", ""]);
        assert_eq!(segments("%ff").unwrap_err().code(), Code::HttpParameterInvalid);
    }

    #[test]
    fn what_is_unknown_double_or_no_number_is_refused() {
        let mut query = Query::parse("limit=10&state=dead&log=raw%2Fa+b").unwrap();
        assert_eq!(query.number("limit", 1, 10).unwrap(), Some(10));
        assert_eq!((query.take("state").as_deref(), query.take("nothing")), (Some("dead"), None));
        assert_eq!(query.take("log").as_deref(), Some("raw/a b"));
        assert!(query.finish().is_ok());
        assert!(Query::parse("a=1").unwrap().finish().is_err());
        assert!(Query::parse("a=1&a=1").is_err());
        assert!(Query::parse(&(0..17).map(|n| format!("p{n}=&")).collect::<String>()).is_err());
        for text in ["-1", "+1", "1.0", "", "x", "18446744073709551616", "11", "0"] {
            let mut query = Query::parse(&format!("n={}", text.replace('+', "%2B"))).unwrap();
            assert_eq!(query.number("n", 1, 10).unwrap_err().code(), Code::HttpParameterInvalid, "{text}");
        }
    }
}
