//! Status codes as the libraries return them.

use std::ffi::c_char;
use std::fmt;
use std::marker::PhantomData;

use cudarc::cublaslt::sys::cublasStatus_t;
use cudarc::cudnn::sys::cudnnStatus_t;
use cudarc::driver::sys::CUresult;
use cudarc::nccl::sys::ncclResult_t;
use cudarc::nvrtc::sys::nvrtcResult;

/// A status of the enum `T`, as a number: later versions of a library may return numbers that `T` does not name, and a
/// value of `T` itself with such a number would be undefined behavior.
#[repr(transparent)]
pub struct Status<T> {
    /// The number.
    pub code: u32,
    of: PhantomData<T>,
}

/// An enum of statuses.
pub trait StatusEnum: Copy {
    /// Returns the number of the status.
    fn code(self) -> u32;
}

/// A return type in the signatures of the bindings.
pub trait Returned {
    /// The type as it is received.
    type Raw;
}

macro_rules! statuses {
    ($($name:ident)*) => {$(
        impl StatusEnum for $name {
            fn code(self) -> u32 {
                self as u32
            }
        }
        impl Returned for $name {
            type Raw = Status<$name>;
        }
        // The received type has the size of the type in the bindings.
        const _: () = assert!(size_of::<$name>() == size_of::<Status<$name>>());
    )*};
}

statuses! { CUresult cublasStatus_t cudnnStatus_t ncclResult_t nvrtcResult }

impl Returned for usize {
    type Raw = usize;
}

impl Returned for *const c_char {
    type Raw = *const c_char;
}

impl<T: StatusEnum> From<T> for Status<T> {
    fn from(status: T) -> Status<T> {
        Status { code: status.code(), of: PhantomData }
    }
}

impl<T> Clone for Status<T> {
    fn clone(&self) -> Status<T> {
        *self
    }
}

impl<T> Copy for Status<T> {}

impl<T: StatusEnum> PartialEq<T> for Status<T> {
    fn eq(&self, other: &T) -> bool {
        self.code == other.code()
    }
}

impl<T> fmt::Display for Status<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.code)
    }
}
