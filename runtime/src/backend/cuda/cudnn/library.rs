//! The loaded library and its error messages.

use std::ffi::{CStr, c_char};

use cudarc::cudnn::sys::cudnnStatus_t;

use crate::backend::cuda::DriverError;
use crate::backend::cuda::native::{CudnnApi, Loaded, Status, cudnn, nvrtc};

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
pub(super) fn check(
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
