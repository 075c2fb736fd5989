//! Properties of merged journals, found in random worlds and tampered with by hand.

mod discovery;
mod graphs;
mod order;
mod trees;
mod world;
