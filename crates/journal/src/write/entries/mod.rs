//! What a batch is made of, besides plain records: the definitions of logs, the records of tables, the entries of runs.

mod logs;
mod rows;
mod runs;
