//! The target of an execution plan: the current device, or the description of a device that is not present.

use std::ffi::c_void;
use std::{fmt, ptr};

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t::*, cudnnBackendDescriptorType_t::*, cudnnHandle_t,
};

use crate::backend::cuda::DriverError;

use super::descriptor::{Descriptor, Setter};
use super::library::{Library, check, library};

/// A cuDNN handle for the device that was current when it was created. Calls with one handle must not overlap.
pub struct Handle {
    library: Library,
    raw: cudnnHandle_t,
}

// SAFETY: a handle is not bound to a thread; calls with it must not overlap, so executing takes it by `&mut`.
unsafe impl Send for Handle {}
// SAFETY: functions that take it by `&` only read it.
unsafe impl Sync for Handle {}

impl Handle {
    /// Creates a handle for the current device.
    pub fn new() -> Result<Handle, DriverError> {
        let (library, mut raw) = (library()?, ptr::null_mut());
        // SAFETY: writes the new handle to `raw`.
        let status = unsafe { (library.cudnnCreate)(&mut raw) };
        check(library, status, "cudnnCreate", || "handle".into())?;
        Ok(Handle { library, raw })
    }

    /// Sets the stream, a `CUstream`, of later work with this handle.
    ///
    /// # Safety
    /// The stream belongs to the same device and outlives its use.
    pub unsafe fn set_stream(&mut self, stream: *mut c_void) -> Result<(), DriverError> {
        // SAFETY: as the caller promises.
        let status = unsafe { (self.library.cudnnSetStream)(self.raw, stream.cast()) };
        check(self.library, status, "cudnnSetStream", || "stream".into())
    }

    pub(super) fn raw(&self) -> cudnnHandle_t {
        self.raw
    }

    pub(super) fn library(&self) -> Library {
        self.library
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:p})", self.raw)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by the library and destroyed once. Errors cannot be handled here.
        let _ = unsafe { (self.library.cudnnDestroy)(self.raw) };
    }
}

/// The target of an execution plan.
#[derive(Debug)]
pub struct Target {
    /// The device.
    pub place: Place,
    /// Compute capability, such as `(9, 0)`.
    pub capability: (u32, u32),
}

/// The device of a [`Target`].
#[derive(Debug)]
pub enum Place {
    /// A present device, by its handle.
    Here(Handle),
    /// A described device: plans can be built but not executed.
    Elsewhere(Properties),
}

/// Device properties in the library's representation.
#[derive(Debug)]
pub struct Properties(pub(super) Descriptor);

impl Properties {
    /// Parses the JSON that [`to_json`](Self::to_json) returns.
    pub fn from_json(json: &str) -> Result<Properties, DriverError> {
        let setter = Setter::new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        setter.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json.trim().as_bytes())?;
        Ok(Properties(setter.finalize()?))
    }

    /// Returns the properties of the device of a handle.
    pub fn of(handle: &Handle) -> Result<Properties, DriverError> {
        let setter = Setter::new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        setter.set(CUDNN_ATTR_DEVICEPROP_HANDLE, &[handle.raw()])?;
        Ok(Properties(setter.finalize()?))
    }

    /// Returns the properties as JSON, from which plans can be built without the device.
    pub fn to_json(&self) -> Result<String, DriverError> {
        self.0.text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
    }
}
