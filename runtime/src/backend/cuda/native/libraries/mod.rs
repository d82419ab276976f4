//! The vendor's libraries: file names, minimum versions, and loading.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::api::Api;
use super::library_search::LibrarySearch;
use crate::backend::cuda::DriverError;

/// A library that is loaded at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VendorLibrary {
    /// The CUDA driver, which is part of the system.
    Driver,
    /// The run-time compiler of kernels.
    Nvrtc,
    /// Matmuls.
    CublasLt,
    /// Fused operations such as attention.
    Cudnn,
    /// Collectives.
    Nccl,
}

/// A version; parts that a library does not report are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Incompatible changes.
    pub major: u32,
    /// Additions.
    pub minor: u32,
    /// Corrections.
    pub patch: u32,
}

/// The function table of a loaded library. The library stays loaded until the process ends.
pub struct Loaded<A> {
    api: A,
    /// Path of the library.
    pub path: PathBuf,
    /// Version that the library reports.
    pub version: Version,
}

impl VendorLibrary {
    /// All libraries.
    pub const ALL: [VendorLibrary; 5] = [
        VendorLibrary::Driver,
        VendorLibrary::Nvrtc,
        VendorLibrary::CublasLt,
        VendorLibrary::Cudnn,
        VendorLibrary::Nccl,
    ];

    /// Returns the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            VendorLibrary::Driver => "the CUDA driver",
            VendorLibrary::Nvrtc => "NVRTC",
            VendorLibrary::CublasLt => "cuBLASLt",
            VendorLibrary::Cudnn => "cuDNN",
            VendorLibrary::Nccl => "NCCL",
        }
    }

    /// Returns the file names, best first.
    pub const fn files(self) -> &'static [&'static str] {
        match self {
            VendorLibrary::Driver => &["libcuda.so.1", "libcuda.so"],
            VendorLibrary::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            VendorLibrary::CublasLt => {
                &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]
            }
            VendorLibrary::Cudnn => &["libcudnn.so.9", "libcudnn.so"],
            VendorLibrary::Nccl => &["libnccl.so.2", "libnccl.so"],
        }
    }

    /// Returns the minimum version.
    ///
    /// CUDA 12.8 is the first with compute capability 10.0. cuDNN 9.15.1 is the first whose attention backward supports
    /// lengths that are not a multiple of 128, and does not have the forward defects of 9.10. NCCL 2.27 is the oldest
    /// that declares every function as used here.
    pub const fn minimum(self) -> Version {
        match self {
            VendorLibrary::Driver | VendorLibrary::Nvrtc | VendorLibrary::CublasLt => {
                Version::new(12, 8, 0)
            }
            VendorLibrary::Cudnn => Version::new(9, 15, 1),
            VendorLibrary::Nccl => Version::new(2, 27, 0),
        }
    }

    /// Returns the name of one exported function, used to find the library's file.
    const fn function(self) -> &'static str {
        match self {
            VendorLibrary::Driver => "cuDriverGetVersion",
            VendorLibrary::Nvrtc => "nvrtcVersion",
            VendorLibrary::CublasLt => "cublasLtGetVersion",
            VendorLibrary::Cudnn => "cudnnGetVersion",
            VendorLibrary::Nccl => "ncclGetVersion",
        }
    }

    /// Returns the remedy for a missing or outdated library.
    fn remedy(self) -> String {
        let package = match self {
            VendorLibrary::Driver => {
                return "install the driver of the GPU, version 570 or later; in a container, start it with access to \
                        the GPUs"
                    .to_string();
            }
            VendorLibrary::Nvrtc => "nvidia-cuda-nvrtc",
            VendorLibrary::CublasLt => "nvidia-cublas",
            VendorLibrary::Cudnn => "nvidia-cudnn-cu13",
            VendorLibrary::Nccl => "nvidia-nccl-cu13",
        };
        format!(
            "install it, for example by `pip install {package}`, and put its folder into {}",
            LibrarySearch::VARIABLE
        )
    }
}

impl Version {
    /// Creates a version from its parts.
    pub const fn new(major: i32, minor: i32, patch: i32) -> Version {
        Version { major: major as u32, minor: minor as u32, patch: patch as u32 }
    }

    /// Creates a version from one number with two decimal digits per part except the first.
    pub const fn of_decimals(number: u64) -> Version {
        Version::new((number / 10_000) as i32, (number / 100 % 100) as i32, (number % 100) as i32)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch > 0 { write!(f, ".{}", self.patch) } else { Ok(()) }
    }
}

impl<A> Deref for Loaded<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.api
    }
}

/// Returns the library in `cell`, loaded on first use from the search path of the environment.
pub(super) fn load_once<A: Api>(
    cell: &'static OnceLock<Result<Loaded<A>, DriverError>>,
) -> Result<&'static Loaded<A>, DriverError> {
    cell.get_or_init(|| open(&LibrarySearch::from_environment(A::LIBRARY)))
        .as_ref()
        .map_err(Clone::clone)
}

/// Loads a library, resolves its functions and checks its version.
pub(super) fn open<A: Api>(search: &LibrarySearch) -> Result<Loaded<A>, DriverError> {
    let which = A::LIBRARY;
    let (name, remedy) = (which.name(), which.remedy());
    let missing = |problem: String| DriverError::Library(format!("{problem}: {remedy}"));

    let library = search.open(which.files()).map_err(|refused| {
        let files = which.files().join(" or ");
        let mut problem = format!("{name} was not found, looked for {files} in {search}");
        for reason in refused {
            problem += &format!("; what is there cannot be opened ({reason})");
        }
        missing(problem)
    })?;
    let path = library_file(&library, which.function()).unwrap_or_else(|| which.files()[0].into());
    let api = A::load(&library).map_err(|function| {
        missing(format!("{name} in {} has no function {function}", path.display()))
    })?;
    let version = api
        .version()
        .map_err(|why| missing(format!("{name} in {} does not work, {why}", path.display())))?;
    if version < which.minimum() {
        let minimum = which.minimum();
        return Err(missing(format!(
            "{name} in {} is too old, {version} where at least {minimum} is needed",
            path.display()
        )));
    }
    // These libraries cannot be unloaded safely.
    std::mem::forget(library);
    Ok(Loaded { api, path, version })
}

/// Preloads a companion file next to a library, which then finds it by name. A missing file is ignored.
pub(super) fn preload_companion(library: &Path, file: &str) {
    // SAFETY: loading it runs the vendor's initialization code, as loading the library did.
    if let Ok(companion) = unsafe { libloading::Library::new(library.with_file_name(file)) } {
        std::mem::forget(companion);
    }
}

/// Returns the file that a function was loaded from.
fn library_file(library: &libloading::Library, function: &str) -> Option<PathBuf> {
    // SAFETY: only the address is used.
    let address = unsafe { library.get::<*const c_void>(function).ok()?.try_as_raw_ptr()? };
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is written if the address is known.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is a string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(name.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests;
