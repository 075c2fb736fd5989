//! Black-box tests: they drive the real binary.
