//! Functions and their pending runs; devices, whose runs are imported.

use super::Page;
use millrace_documents::FunctionsDoc;
use millrace_node::{
    Namespace,
    devices::{self, Device, RefusedDevice},
    documents,
};
use millrace_wire::Result;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct DevicesDoc {
    devices: Vec<Device>,
    next: Option<String>,
    /// Those that are refused now, on each page.
    refused: Vec<RefusedDevice>,
}

pub(super) fn list(namespace: &Namespace, page: &Page) -> Result<FunctionsDoc> {
    let stats = namespace.functions()?;
    let (functions, next) = page.of_list(&stats, |stat| &stat.name, |stat| Ok(Some(documents::function(stat))))?;
    Ok(FunctionsDoc { functions, next })
}

/// The devices that have sent entries, each as `millrace device show` has it.
pub(super) fn devices(namespace: &Namespace, page: &Page) -> Result<DevicesDoc> {
    let all = devices::all(namespace)?;
    let (devices, next) = page.of_list(&all, |device| &device.name, |device| Ok(Some(Device::clone(device))))?;
    Ok(DevicesDoc { devices, next, refused: devices::refused(namespace)? })
}
