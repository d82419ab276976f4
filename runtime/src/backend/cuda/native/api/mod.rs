//! The functions of the vendor's libraries, in one table per library.
//!
//! A table is filled when its library is opened, so that a library that lacks a function is reported then, by name, and
//! no call can fail for it later. Types are those of `cudarc`'s bindings, and so are signatures: that ours equal theirs
//! is checked when this is compiled. `cudarc`'s own loading is not used, because it panics on what is missing, and does
//! not know NCCL's file name.

mod cublaslt;
mod cudnn;
mod driver;
mod nccl;
mod nvrtc;
mod status;

pub use cublaslt::{CublasLtApi, Heuristic, cublaslt};
pub use cudnn::{CudnnApi, cudnn};
pub use driver::{DriverApi, driver};
pub use nccl::{NcclApi, nccl};
pub use nvrtc::{NvrtcApi, nvrtc};
use status::Returned;
pub use status::Status;

use super::libraries::{Library, Version};

/// The functions of a library.
pub trait Api: Sized {
    /// Which library.
    const LIBRARY: Library;

    /// Finds every function; the error is the name of one that is missing.
    fn load(library: &libloading::Library) -> Result<Self, &'static str>;

    /// The version that the library says it is of.
    fn version(&self) -> Result<Version, String>;
}

/// Declares a table of functions, with the signatures of `cudarc`'s module `sys`, and how it is loaded. Enums that a library
/// returns are received as [`Status`]; `a as b` is a parameter that is `a` in the bindings, and `b`, of the same size, here.
macro_rules! functions {
    (@own $arg:ty) => { $arg };
    (@own $arg:ty, $own:ty) => { $own };
    (
        $(#[$meta:meta])*
        pub struct $name:ident in $sys:ident {
            $(fn $function:ident($($arg:ty $(as $own:ty)?),* $(,)?) $(-> $ret:ty)?;)*
        }
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case, missing_docs)]
        pub struct $name {
            $(pub $function: unsafe extern "C" fn(
                $(functions!(@own $arg $(, $own)?)),*
            ) $(-> <$ret as $crate::backend::cuda::native::api::Returned>::Raw)?,)*
        }

        // The signatures are those of the bindings, but for what stands for an enum or points to one.
        $($(const _: () = assert!(size_of::<$arg>() == size_of::<functions!(@own $arg $(, $own)?)>());)*)*
        $(const _: unsafe fn($($arg),*) $(-> $ret)? = $sys::$function;)*

        impl $name {
            fn find(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok($name {
                    $($function: {
                        // SAFETY: the function of this name has this type, see the checks above: a status is the number of
                        // its enum.
                        let found = unsafe { library.get(stringify!($function)) };
                        *found.map_err(|_| stringify!($function))?
                    },)*
                })
            }
        }
    };
}
use functions;
