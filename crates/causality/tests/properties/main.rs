//! Properties of merged journals, found in random worlds and tampered with by hand.

mod discovery;
mod graphs;
mod keys;
mod order;
mod repaired;
mod trees;
mod world;
