//! The library itself: whether it is there, what version it has, and the words of its errors.

use std::ffi::{CStr, c_char};

use cudarc::cudnn::sys::{self, cudnnStatus_t};

use crate::backend::cuda::DriverError;

/// The oldest version that is used, 9.15.1.
///
/// Attention of whole tensors needs 9.6 (scratch that nobody has to clear), plans without a device 9.8; 9.10.0 and 9.10.1
/// have known faults in the forward pass, and the backward pass takes lengths that are no multiple of 128 from 9.15.1 on.
pub const OLDEST: Version = Version(91501);

/// A version as the library gives it: `10000 * major + 100 * minor + patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub usize);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Major versions before 9 counted in thousands.
        let Version(v) = *self;
        let major = if v < 90000 { 1000 } else { 10000 };
        write!(f, "{}.{}.{}", v / major, v % major / 100, v % 100)
    }
}

/// Whether cuDNN can be used, or why not. Nothing else of this module may be called before this has succeeded.
pub fn cudnn_present() -> Result<(), String> {
    // SAFETY: looks for a library by its names; loading it has no effects that others could observe.
    if !unsafe { sys::is_culib_present() } {
        return Err("cuDNN was not found: the loader knows no libcudnn.so.9. Install it, for \
                    instance by `pip install nvidia-cudnn-cu13`, and put its folder on \
                    LD_LIBRARY_PATH"
            .into());
    }
    let version = version();
    if version < OLDEST {
        return Err(format!("cuDNN {version} is too old: attention needs {OLDEST} or newer"));
    }
    Ok(())
}

/// The version of the library, which must be present.
pub fn version() -> Version {
    // SAFETY: the library is present, and every version of it has this function.
    Version(unsafe { sys::cudnnGetVersion() })
}

/// An error unless `status` is success; `what` is what the call was about.
pub(super) fn check(
    status: cudnnStatus_t,
    call: &'static str,
    what: impl FnOnce() -> String,
) -> Result<(), DriverError> {
    if status == cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut text: [c_char; 1024] = [0; 1024];
    // SAFETY: the library is present; it writes a string that ends within the given length, and names of statuses are
    // strings of its own.
    let (name, message) = unsafe {
        sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len());
        (CStr::from_ptr(sys::cudnnGetErrorString(status)), CStr::from_ptr(text.as_ptr()))
    };
    let mut reason = format!("{}: {}", what(), name.to_string_lossy());
    let message = message.to_string_lossy();
    if !message.trim().is_empty() {
        reason += &format!(" ({})", message.trim());
    }
    Err(DriverError::Call { call, reason })
}
