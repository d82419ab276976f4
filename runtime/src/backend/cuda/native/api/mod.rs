//! Function tables of the vendor's libraries, one table per library.
//!
//! A table is filled when its library is loaded, so that a missing function is reported then, by name, and no later
//! call fails for it. Types and signatures are those of the bindings of `cudarc`, checked at compile time. `cudarc`'s
//! own loader is not used: it panics on missing functions and does not know NCCL's file name.

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

/// Declares a function table with the signatures of `cudarc`'s module `sys`, and its loader. Enums that a library
/// returns are received as [`Status`]; `a as b` declares a parameter that is `a` in the bindings and `b`, of the same
/// size, here.
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

        // The signatures equal those of the bindings, except for types that stand for an enum or point to one.
        $($(const _: () = assert!(size_of::<$arg>() == size_of::<functions!(@own $arg $(, $own)?)>());)*)*
        $(const _: unsafe fn($($arg),*) $(-> $ret)? = $sys::$function;)*

        impl $name {
            fn find(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok($name {
                    $($function: {
                        // SAFETY: the function of this name has this type, see the checks above: a status is the number
                        // of its enum.
                        let found = unsafe { library.get(stringify!($function)) };
                        *found.map_err(|_| stringify!($function))?
                    },)*
                })
            }
        }
    };
}
use functions;
