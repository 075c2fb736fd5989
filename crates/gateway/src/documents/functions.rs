//! Functions and their pending runs; devices, whose runs are imported.

use super::Page;
use crate::Hosted;
use millrace_documents::FunctionsDoc;
use millrace_node::{
    Namespace,
    devices::{self, Device, DevicesDoc},
    documents,
};
use millrace_wire::{Name, Result};

pub(super) fn list(namespace: &Namespace, page: &Page) -> Result<FunctionsDoc> {
    let stats = namespace.functions()?;
    let (functions, next) = page.of_list(&stats, |stat| &stat.name, |stat| Ok(Some(documents::function(stat))))?;
    Ok(FunctionsDoc { functions, next })
}

/// The devices that have sent entries, each as `millrace device show` has it.
pub(super) fn devices(hosted: &Hosted, namespace: &Namespace, name: &Name, page: &Page) -> Result<DevicesDoc> {
    let all = devices::all(namespace)?;
    let shown = |device: &&Device| Ok(Some(with_presence(hosted, name, Device::clone(device))));
    let (devices, next) = page.of_list(&all, |device| &device.name, shown)?;
    Ok(DevicesDoc { devices, next, refused: devices::refused(namespace)? })
}

pub(super) fn device(hosted: &Hosted, namespace: &Namespace, name: &Name, device: &str) -> Result<Device> {
    Ok(with_presence(hosted, name, devices::one(namespace, device)?))
}

fn with_presence(hosted: &Hosted, namespace: &Name, device: Device) -> Device {
    Device { presence: Some(hosted.devices.presence(namespace, &device)), ..device }
}
