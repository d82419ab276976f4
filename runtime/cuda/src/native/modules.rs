//! Modules of machine code, and launches of their kernels. The device's context is current on the calling thread.

use std::ffi::{CString, c_void};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule, CUresult};

use super::context::{DeviceContext, call};
use super::streams::cu_stream;
use crate::{DriverError, Grid, KernelFunction, KernelModule, Stream};

/// Loads a complete file of machine code.
pub fn load_module(context: &DeviceContext, code: &[u8]) -> Result<KernelModule, DriverError> {
    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: the code is a complete file of machine code, which contains its length.
    unsafe { call!(context.api, cuModuleLoadData(&mut module, code.as_ptr().cast())) }?;
    Ok(KernelModule(module as u64))
}

/// Returns the kernel `name` of a module, which may use all shared memory of a block.
pub fn kernel_function(
    context: &DeviceContext,
    module: KernelModule,
    name: &str,
) -> Result<KernelFunction, DriverError> {
    use CUfunction_attribute::*;
    let api = context.api;
    let c_name = CString::new(name).map_err(|_| DriverError::Call {
        call: "cuModuleGetFunction",
        reason: format!("{name:?} is not a valid function name"),
    })?;
    let mut function: CUfunction = std::ptr::null_mut();
    // SAFETY: the module is live, and the string outlives the call.
    let result =
        unsafe { (api.cuModuleGetFunction)(&mut function, module.0 as CUmodule, c_name.as_ptr()) };
    if result == CUresult::CUDA_ERROR_NOT_FOUND {
        return Err(DriverError::Call {
            call: "cuModuleGetFunction",
            reason: format!("the source has no kernel `{name}`"),
        });
    }
    api.check_status("cuModuleGetFunction", result)?;
    // More than 48 KiB of dynamic shared memory must be requested explicitly; unused shared memory costs nothing.
    let mut fixed = 0;
    // SAFETY: the function is live.
    unsafe {
        call!(api, cuFuncGetAttribute(&mut fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))?;
        let most = context.properties.shared_memory as i32 - fixed;
        let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        call!(api, cuFuncSetAttribute(function, attribute, most))?;
    }
    Ok(KernelFunction(function as u64))
}

/// Launches a kernel.
///
/// # Safety
/// As [`Launch`](crate::GpuCall::Launch).
pub unsafe fn launch(
    context: &DeviceContext,
    stream: Stream,
    function: KernelFunction,
    grid: Grid,
    args: &[&[u8]],
) -> Result<(), DriverError> {
    let [x, y, z] = grid.blocks;
    let mut args: Vec<*mut c_void> = args.iter().map(|arg| arg.as_ptr() as *mut _).collect();
    // SAFETY: as the caller promises; parameters are read during the call.
    unsafe {
        call!(
            context.api,
            cuLaunchKernel(
                function.0 as CUfunction,
                x,
                y,
                z,
                grid.threads,
                1,
                1,
                grid.shared,
                cu_stream(stream),
                args.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        )
    }
}
