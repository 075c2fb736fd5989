//! The fuzzer's corpus, run as a test, with some thousand random changes of it.

#[path = "../../../fuzz/mutations.rs"]
#[allow(dead_code, reason = "the tests of another crate use the rest")]
mod mutations;

#[path = "../../../fuzz/mqtt_target.rs"]
mod target;

#[test]
fn packets() {
    mutations::each("mqtt", target::mqtt);
}
