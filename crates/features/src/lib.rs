//! Nothing but dependencies: this crate asks for the union of the features that any member of the workspace asks of a shared
//! library, so that every selection of packages (`-p millrace-wire`, `--workspace`, the Python wheel) compiles each library
//! once and the same way. See docs/adr/0011-build.md.
