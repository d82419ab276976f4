//! Function tables of the vendor's libraries, one table per library.
//!
//! A table is filled when its library is loaded, so that a missing function is reported then, by name, and no later
//! call fails for it. Types and signatures are from the bindings of `cudarc`, checked at compile time: only its
//! modules `sys` are used, so any release with the same versions of the libraries will do. `cudarc`'s own loader is not
//! used: it panics on missing functions and does not know NCCL's file name.

use std::ffi::c_void;
use std::ptr::NonNull;

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
            ) $(-> <$ret as $crate::native::api::Returned>::Raw)?,)*
        }

        // The signatures equal the bindings, except for types that stand for an enum or point to one.
        $($(const _: () = assert!(size_of::<$arg>() == size_of::<functions!(@own $arg $(, $own)?)>());)*)*
        $(const _: unsafe fn($($arg),*) $(-> $ret)? = $sys::$function;)*

        impl $name {
            fn find(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok($name {
                    $($function: {
                        let name = stringify!($function);
                        let address = $crate::native::api::address_of(library, name)?;
                        // SAFETY: the function of this name has this type, see the checks above: a status is the number
                        // of its enum.
                        unsafe { std::mem::transmute_copy(&address) }
                    },)*
                })
            }
        }
    };
}
use functions;

/// Returns the address of the function `name`, or the name if the library lacks it.
///
/// Independent of the function's type, so that it is compiled once and not for each function.
fn address_of(
    library: &libloading::Library,
    name: &'static str,
) -> Result<NonNull<c_void>, &'static str> {
    // SAFETY: only the address is used, by a table of functions of this library, which is never unloaded.
    let address = unsafe { library.get::<*const c_void>(name).map_err(|_| name)?.try_as_raw_ptr() };
    address.and_then(NonNull::new).ok_or(name)
}
