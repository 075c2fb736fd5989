//! Capabilities come from files or standard input, never from the command line, which every user of the machine can read.

use super::{blocks, first_id, shown};
use crate::{out::Out, report::Outcome};
use millrace_node::{
    Code, Result,
    token::{self, TEXT_PREFIX, Token},
};
use serde_json::json;
use std::{
    fs::OpenOptions,
    io::{ErrorKind, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// A token has at most 1370 characters; more is something else.
const TEXT_MAX_BYTES: u64 = 4096;

/// The capability in a file, `-` for standard input.
pub fn read(path: &Path) -> Result<Token> {
    if path.to_string_lossy().starts_with(TEXT_PREFIX) {
        return Err(Code::CapabilityExposed.error("the argument is a capability, not the name of a file"));
    }
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().take(TEXT_MAX_BYTES).read_to_string(&mut text),
        false => std::fs::File::open(path).and_then(|file| file.take(TEXT_MAX_BYTES).read_to_string(&mut text)),
    };
    read.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => Code::CapabilityMalformed.error(format!("{} is not text", path.display())),
        _ => Code::FileUnreadable.error(format!("cannot read {}: {error}", path.display())),
    })?;
    text.trim().parse::<Token>().map_err(|error| error.within(path.display()))
}

/// Prints a capability, or writes it into a file that only its owner can read.
pub fn write(token: &Token, to: Option<&Path>, out: &mut Out) -> Outcome {
    let chain = token::inspect(token.body())?;
    if let Some(path) = to {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| {
            file.write_all(token.to_text().as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()
        });
        written.map_err(|error| Code::FileNotWritten.error(format!("cannot write {}: {error}", path.display())))?;
    }
    let last = chain.blocks().last().map(|link| first_id(&link.rules)).unwrap_or_default();
    if out.json() {
        let text = to.is_none().then(|| token.to_text().to_string());
        let expires = shown::expires(&chain).map(shown::moment);
        let object =
            json!({ "capability": text, "file": to, "id": last, "expires": expires, "bytes": token.to_bytes().len() });
        return Ok(out.object(&object)?);
    }
    match to {
        None => Ok(out.line(&*token.to_text())?),
        Some(path) => {
            let bytes = token.to_bytes().len();
            Ok(out.line(format!("wrote {}: {}, {bytes} bytes, id {last}", path.display(), blocks(&chain)))?)
        }
    }
}
