//! All engines against one suite of cases, over real servers that are killed; and streams under storms.

mod cases;
mod dynamodb;
mod etcd;
mod fakes;
mod postgres;
mod redis;
mod storm;
