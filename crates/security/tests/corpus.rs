//! The fuzzers' corpus of capabilities, run as a test, with some thousand random changes of it.

#[path = "../../../fuzz/mutations.rs"]
mod mutations;

#[path = "../../../fuzz/rules_target.rs"]
mod rules_target;

#[path = "../../../fuzz/token_target.rs"]
mod token_target;

use mutations::{CHANGES, each, each_with};

#[test]
fn tokens() {
    each("tokens", token_target::tokens);
}

#[test]
fn chains_permit_what_all_of_their_blocks_do() {
    // Each input is some thousand actions.
    each_with(CHANGES / 10, "rules", rules_target::rules);
}
