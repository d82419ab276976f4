//! The target of an execution plan: the current device, or the description of a device that is not present.

use cudarc::cudnn::sys::{cudnnBackendAttributeName_t::*, cudnnBackendDescriptorType_t::*};

use crate::DriverError;

use super::descriptor::{Descriptor, Setter};
use super::library::CudnnHandle;

/// The target of an execution plan.
#[derive(Debug)]
pub struct PlanTarget {
    /// The device.
    pub device: TargetDevice,
    /// Compute capability, such as `(9, 0)`.
    pub capability: (u32, u32),
}

/// The device of a [`PlanTarget`].
#[derive(Debug)]
pub enum TargetDevice {
    /// A present device, by its handle.
    Present(CudnnHandle),
    /// A described device: plans can be built but not executed.
    Described(DeviceDescription),
}

/// Device properties in the library's representation.
#[derive(Debug)]
pub struct DeviceDescription(pub(super) Descriptor);

impl DeviceDescription {
    /// Parses the JSON that [`to_json`](Self::to_json) returns.
    pub fn from_json(json: &str) -> Result<DeviceDescription, DriverError> {
        let setter = Setter::new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        setter.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json.trim().as_bytes())?;
        Ok(DeviceDescription(setter.finalize()?))
    }

    /// Returns the properties of the device of a handle.
    pub fn of_handle(handle: &CudnnHandle) -> Result<DeviceDescription, DriverError> {
        let setter = Setter::new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        setter.set(CUDNN_ATTR_DEVICEPROP_HANDLE, &[handle.raw()])?;
        Ok(DeviceDescription(setter.finalize()?))
    }

    /// Returns the properties as JSON, from which plans can be built without the device.
    pub fn to_json(&self) -> Result<String, DriverError> {
        self.0.text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
    }
}
