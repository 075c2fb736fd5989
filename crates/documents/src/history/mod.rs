//! What caused what, and what a correction of the past would change.

mod plans;
mod trace;

pub use plans::{
    CopyDoc, CorrectsDoc, EstimateDoc, OnDeviceDoc, OverwritesDoc, PlanDoc, PlanFoundDoc, PlanState, ReplayDoc,
    RewritesDoc,
};
pub use trace::{TraceBranchDoc, TraceDoc, TracedRecordDoc, TracedRunDoc, ValueDoc};
