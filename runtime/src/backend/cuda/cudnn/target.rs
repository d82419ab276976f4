//! What a plan is made for: the current device, or a device that is described but not there.

use std::ffi::c_void;
use std::{fmt, ptr};

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t::*, cudnnBackendDescriptorType_t::*, cudnnHandle_t,
};

use crate::backend::cuda::DriverError;

use super::descriptor::{Descriptor, Setter};
use super::library::{Library, check, library};

/// The library's hold on the device that was current when it was made. Calls with one handle have to follow one another.
pub struct Handle {
    library: Library,
    raw: cudnnHandle_t,
}

// SAFETY: a handle belongs to no thread; the library only asks that calls with it do not overlap, which is why those that
// execute take it by `&mut`.
unsafe impl Send for Handle {}
// SAFETY: what takes it by `&` reads it only.
unsafe impl Sync for Handle {}

impl Handle {
    /// A handle for the current device.
    pub fn new() -> Result<Handle, DriverError> {
        let (library, mut raw) = (library()?, ptr::null_mut());
        // SAFETY: writes the new handle to `raw`.
        let status = unsafe { (library.cudnnCreate)(&mut raw) };
        check(library, status, "cudnnCreate", || "handle".into())?;
        Ok(Handle { library, raw })
    }

    /// Work submitted with this handle goes to a stream, a `CUstream`, from now on.
    ///
    /// # Safety
    /// It is a stream of the same device, and lives as long as it is used.
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
        // SAFETY: created by the library and destroyed once. Nobody could act on an error here.
        let _ = unsafe { (self.library.cudnnDestroy)(self.raw) };
    }
}

/// What a plan is made for.
#[derive(Debug)]
pub struct Target {
    /// The device.
    pub place: Place,
    /// Its compute capability, such as `(9, 0)`.
    pub capability: (u32, u32),
}

/// Where the device of a [`Target`] is.
#[derive(Debug)]
pub enum Place {
    /// Here.
    Here(Handle),
    /// Somewhere else: plans can be built, but not executed.
    Elsewhere(Properties),
}

/// Properties of a device, as the library writes them.
#[derive(Debug)]
pub struct Properties(pub(super) Descriptor);

impl Properties {
    /// From the JSON that [`to_json`](Self::to_json) gives.
    pub fn from_json(json: &str) -> Result<Properties, DriverError> {
        let setter = Setter::new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        setter.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, json.trim().as_bytes())?;
        Ok(Properties(setter.finalize()?))
    }

    /// Those of the device of a handle.
    pub fn of(handle: &Handle) -> Result<Properties, DriverError> {
        let setter = Setter::new(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)?;
        setter.set(CUDNN_ATTR_DEVICEPROP_HANDLE, &[handle.raw()])?;
        Ok(Properties(setter.finalize()?))
    }

    /// As text, with which plans for the device can be built where it is not.
    pub fn to_json(&self) -> Result<String, DriverError> {
        self.0.text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
    }
}
