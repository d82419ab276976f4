//! Functions of the CUDA driver, `libcuda`.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUmodule, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};

use super::{Status, functions};
use crate::DriverError;
use crate::native::libraries::{Api, Loaded, load_once};
use crate::native::vendor_library::{VendorLibrary, Version};

/// Returns the CUDA driver, loaded once.
pub fn driver() -> Result<&'static Loaded<DriverApi>, DriverError> {
    static DRIVER: OnceLock<Result<Loaded<DriverApi>, DriverError>> = OnceLock::new();
    load_once(&DRIVER)
}

functions! {
    /// Functions of the CUDA driver.
    pub struct DriverApi in sys {
        fn cuInit(c_uint) -> CUresult;
        fn cuDriverGetVersion(*mut c_int) -> CUresult;
        fn cuGetErrorName(CUresult as Status<CUresult>, *mut *const c_char) -> CUresult;
        fn cuGetErrorString(CUresult as Status<CUresult>, *mut *const c_char) -> CUresult;

        fn cuDeviceGetCount(*mut c_int) -> CUresult;
        fn cuDeviceGet(*mut CUdevice, c_int) -> CUresult;
        fn cuDeviceGetName(*mut c_char, c_int, CUdevice) -> CUresult;
        fn cuDeviceTotalMem_v2(*mut usize, CUdevice) -> CUresult;
        fn cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice) -> CUresult;
        fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice) -> CUresult;
        fn cuCtxSetCurrent(CUcontext) -> CUresult;
        fn cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int) -> CUresult;

        fn cuMemGetInfo_v2(*mut usize, *mut usize) -> CUresult;
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize) -> CUresult;
        fn cuMemFree_v2(CUdeviceptr) -> CUresult;
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint) -> CUresult;
        fn cuMemFreeHost(*mut c_void) -> CUresult;
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream) -> CUresult;
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream) -> CUresult;
        fn cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream) -> CUresult;
        fn cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream) -> CUresult;

        fn cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int) -> CUresult;
        fn cuStreamDestroy_v2(CUstream) -> CUresult;
        fn cuCtxSynchronize() -> CUresult;
        fn cuStreamSynchronize(CUstream) -> CUresult;
        fn cuStreamWaitEvent(CUstream, CUevent, c_uint) -> CUresult;
        fn cuStreamIsCapturing(CUstream, *mut CUstreamCaptureStatus as *mut u32) -> CUresult;
        fn cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) -> CUresult;
        fn cuStreamEndCapture(CUstream, *mut CUgraph) -> CUresult;

        fn cuEventCreate(*mut CUevent, c_uint) -> CUresult;
        fn cuEventDestroy_v2(CUevent) -> CUresult;
        fn cuEventRecord(CUevent, CUstream) -> CUresult;
        fn cuEventRecordWithFlags(CUevent, CUstream, c_uint) -> CUresult;
        fn cuEventQuery(CUevent) -> CUresult;
        fn cuEventElapsedTime_v2(*mut f32, CUevent, CUevent) -> CUresult;

        fn cuModuleLoadData(*mut CUmodule, *const c_void) -> CUresult;
        fn cuModuleUnload(CUmodule) -> CUresult;
        fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char) -> CUresult;
        fn cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction) -> CUresult;
        fn cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int) -> CUresult;
        fn cuLaunchKernel(
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
            *mut *mut c_void, *mut *mut c_void,
        ) -> CUresult;

        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong) -> CUresult;
        fn cuGraphLaunch(CUgraphExec, CUstream) -> CUresult;
        fn cuGraphDestroy(CUgraph) -> CUresult;
        fn cuGraphExecDestroy(CUgraphExec) -> CUresult;
    }
}

impl Api for DriverApi {
    const LIBRARY: VendorLibrary = VendorLibrary::Driver;

    fn load(library: &libloading::Library) -> Result<Self, &'static str> {
        DriverApi::find(library)
    }

    fn version(&self) -> Result<Version, String> {
        let mut version = 0;
        // SAFETY: writes an integer, and needs no initialization.
        let status = unsafe { (self.cuDriverGetVersion)(&mut version) };
        if status != CUresult::CUDA_SUCCESS {
            return Err(format!("cuDriverGetVersion gives {status}"));
        }
        Ok(Version::new(version / 1000, version % 1000 / 10, 0))
    }
}
