//! Tables that another namespace owns: replicas on hosts of their own, and those who read them.

mod basics;
mod storm;
mod trouble;
mod world;
