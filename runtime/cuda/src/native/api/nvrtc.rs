//! Functions of the run-time compiler, `libnvrtc`.

use std::ffi::{c_char, c_int};
use std::sync::{Once, OnceLock};

use cudarc::nvrtc::sys;
use cudarc::nvrtc::sys::{nvrtcProgram, nvrtcResult};

use super::{Status, functions};
use crate::DriverError;
use crate::native::libraries::{Api, Loaded, load_once, preload_companion};
use crate::native::vendor_library::{VendorLibrary, Version};

/// Returns the run-time compiler, loaded once.
pub fn nvrtc() -> Result<&'static Loaded<NvrtcApi>, DriverError> {
    static NVRTC: OnceLock<Result<Loaded<NvrtcApi>, DriverError>> = OnceLock::new();
    let nvrtc = load_once(&NVRTC)?;
    // NVRTC opens this file by name when it compiles, without searching its own folder.
    static BUILTINS: Once = Once::new();
    BUILTINS.call_once(|| {
        let Version { major, minor, .. } = nvrtc.version;
        preload_companion(&nvrtc.path, &format!("libnvrtc-builtins.so.{major}.{minor}"));
    });
    Ok(nvrtc)
}

functions! {
    /// Functions of the run-time compiler.
    pub struct NvrtcApi in sys {
        fn nvrtcVersion(*mut c_int, *mut c_int) -> nvrtcResult;
        fn nvrtcGetErrorString(nvrtcResult as Status<nvrtcResult>) -> *const c_char;
        fn nvrtcGetNumSupportedArchs(*mut c_int) -> nvrtcResult;
        fn nvrtcGetSupportedArchs(*mut c_int) -> nvrtcResult;
        fn nvrtcCreateProgram(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char,
            *const *const c_char,
        ) -> nvrtcResult;
        fn nvrtcDestroyProgram(*mut nvrtcProgram) -> nvrtcResult;
        fn nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char) -> nvrtcResult;
        fn nvrtcGetProgramLogSize(nvrtcProgram, *mut usize) -> nvrtcResult;
        fn nvrtcGetProgramLog(nvrtcProgram, *mut c_char) -> nvrtcResult;
        fn nvrtcGetPTXSize(nvrtcProgram, *mut usize) -> nvrtcResult;
        fn nvrtcGetPTX(nvrtcProgram, *mut c_char) -> nvrtcResult;
        fn nvrtcGetCUBINSize(nvrtcProgram, *mut usize) -> nvrtcResult;
        fn nvrtcGetCUBIN(nvrtcProgram, *mut c_char) -> nvrtcResult;
    }
}

impl Api for NvrtcApi {
    const LIBRARY: VendorLibrary = VendorLibrary::Nvrtc;

    fn load(library: &libloading::Library) -> Result<Self, &'static str> {
        NvrtcApi::find(library)
    }

    fn version(&self) -> Result<Version, String> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two integers.
        let status = unsafe { (self.nvrtcVersion)(&mut major, &mut minor) };
        if status != nvrtcResult::NVRTC_SUCCESS {
            return Err(format!("nvrtcVersion gives {status}"));
        }
        Ok(Version::new(major, minor, 0))
    }
}
