//! The loaded library, its errors, and its handles.

use std::ffi::{CStr, c_char, c_void};
use std::{fmt, ptr};

use cudarc::cudnn::sys::{cudnnHandle_t, cudnnStatus_t};

use crate::DriverError;
use crate::native::{CudnnApi, Loaded, Status, cudnn, nvrtc};

/// The library's function table and version.
pub(super) type Library = &'static Loaded<CudnnApi>;

/// Returns an error with the reason if cuDNN cannot be used.
pub fn cudnn_present() -> Result<(), String> {
    library().map(drop).map_err(|error| error.to_string())
}

/// Returns the library, loaded on first use.
pub(super) fn library() -> Result<Library, DriverError> {
    let library = cudnn()?;
    // cuDNN opens NVRTC by its name when it builds a plan and finds it if it is already loaded. If NVRTC is missing,
    // the engines report it.
    let _ = nvrtc();
    Ok(library)
}

/// Returns an error unless `status` is success; `what` describes the operand of the call.
pub(super) fn check_status(
    library: Library,
    status: Status<cudnnStatus_t>,
    call: &'static str,
    what: impl FnOnce() -> String,
) -> Result<(), DriverError> {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text: [c_char; 1024] = [0; 1024];
    // SAFETY: it writes a terminated string within the given length, and names of statuses are static strings.
    let (name, message) = unsafe {
        (library.cudnnGetLastErrorString)(text.as_mut_ptr(), text.len());
        (CStr::from_ptr((library.cudnnGetErrorString)(status)), CStr::from_ptr(text.as_ptr()))
    };
    let mut reason = format!("{}: {}", what(), name.to_string_lossy());
    let message = message.to_string_lossy();
    if !message.trim().is_empty() {
        reason += &format!(" ({})", message.trim());
    }
    Err(DriverError::Call { call, reason })
}

/// A cuDNN handle for the device that was current when it was created. Calls with one handle must not overlap.
pub struct CudnnHandle {
    library: Library,
    raw: cudnnHandle_t,
}

// SAFETY: a handle is not bound to a thread; calls with it must not overlap, so executing takes it by `&mut`.
unsafe impl Send for CudnnHandle {}
// SAFETY: functions that take it by `&` only read it.
unsafe impl Sync for CudnnHandle {}

impl CudnnHandle {
    /// Creates a handle for the current device.
    pub fn new() -> Result<CudnnHandle, DriverError> {
        let (library, mut raw) = (library()?, ptr::null_mut());
        // SAFETY: writes the new handle to `raw`.
        let status = unsafe { (library.cudnnCreate)(&mut raw) };
        check_status(library, status, "cudnnCreate", || "handle".into())?;
        Ok(CudnnHandle { library, raw })
    }

    /// Sets the stream, a `CUstream`, of later work with this handle.
    ///
    /// # Safety
    /// The stream belongs to the same device and outlives its use.
    pub unsafe fn set_stream(&mut self, stream: *mut c_void) -> Result<(), DriverError> {
        // SAFETY: as the caller promises.
        let status = unsafe { (self.library.cudnnSetStream)(self.raw, stream.cast()) };
        check_status(self.library, status, "cudnnSetStream", || "stream".into())
    }

    pub(super) fn raw(&self) -> cudnnHandle_t {
        self.raw
    }

    pub(super) fn library(&self) -> Library {
        self.library
    }
}

impl fmt::Debug for CudnnHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudnnHandle({:p})", self.raw)
    }
}

impl Drop for CudnnHandle {
    fn drop(&mut self) {
        // SAFETY: created by the library and destroyed once. Errors cannot be handled here.
        let _ = unsafe { (self.library.cudnnDestroy)(self.raw) };
    }
}
