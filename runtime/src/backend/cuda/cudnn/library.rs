//! The library itself: whether it is there, and the words of its errors.

use std::ffi::{CStr, c_char};

use cudarc::cudnn::sys::cudnnStatus_t;

use crate::backend::cuda::DriverError;
use crate::backend::cuda::native::{CudnnApi, Loaded, Status, cudnn, nvrtc};

/// The functions of the library, and its version.
pub(super) type Library = &'static Loaded<CudnnApi>;

/// Whether cuDNN can be used, or why not.
pub fn cudnn_present() -> Result<(), String> {
    library().map(drop).map_err(|error| error.to_string())
}

/// The library, opened when it is first asked for.
pub(super) fn library() -> Result<Library, DriverError> {
    let library = cudnn()?;
    // It opens the compiler by its name when it builds a plan, which finds what is open. Where there is none, its engines
    // say so.
    let _ = nvrtc();
    Ok(library)
}

/// An error unless `status` is success; `what` is what the call was about.
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
    // SAFETY: it writes a string that ends within the given length, and names of statuses are strings of its own.
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
