//! Loading of the vendor's libraries.

use std::ffi::{CStr, c_void};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::library_search::LibrarySearch;
use super::vendor_library::{VendorLibrary, Version};
use crate::DriverError;

/// The function table of a library.
pub trait Api: Sized {
    /// The library.
    const LIBRARY: VendorLibrary;

    /// Resolves every function; the error is the name of a missing one.
    fn load(library: &libloading::Library) -> Result<Self, &'static str>;

    /// Returns the version that the library reports.
    fn version(&self) -> Result<Version, String>;
}

/// The function table of a loaded library. The library stays loaded until the process ends.
pub struct Loaded<A> {
    api: A,
    /// Path of the library.
    pub path: PathBuf,
    /// Version that the library reports.
    pub version: Version,
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
    cell.get_or_init(|| open_library(&LibrarySearch::from_environment(A::LIBRARY)))
        .as_ref()
        .map_err(Clone::clone)
}

/// Loads a library, resolves its functions and checks its version.
pub(super) fn open_library<A: Api>(search: &LibrarySearch) -> Result<Loaded<A>, DriverError> {
    let which = A::LIBRARY;
    let (name, remedy) = (which.name(), install_hint(which));
    let missing = |problem: String| DriverError::Library(format!("{problem}: {remedy}"));

    let library = search.open_first(which.files()).map_err(|refused| {
        let files = which.files().join(" or ");
        let mut problem = format!("{name} was not found (searched {files} in {search})");
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
            "{name} in {} is too old: version {version}, but at least {minimum} is required",
            path.display()
        )));
    }
    // These libraries cannot be unloaded safely.
    std::mem::forget(library);
    Ok(Loaded { api, path, version })
}

/// Returns the remedy for a missing or outdated library.
fn install_hint(library: VendorLibrary) -> String {
    let package = match library {
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
