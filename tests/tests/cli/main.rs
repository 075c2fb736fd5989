//! The command line beyond the first commands: files, contexts, shells, namespaces elsewhere, the page of commands.

mod cancel;
mod capabilities;
mod contexts;
mod history;
mod logging;
mod managed;
mod reference;
mod remote;
mod shells;
mod surface;
mod transfer;
