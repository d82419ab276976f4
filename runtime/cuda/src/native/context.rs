//! The CUDA context of a device.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute, CUresult};

use super::api::{DriverApi, Status, driver};
use super::libraries::Loaded;
use super::workspace_accounting::WorkspaceAccounting;
use crate::{DeviceProperties, DriverError};

/// The primary context of a device, which other libraries use too.
///
/// It is retained until the process ends: other libraries may use it, and threads remember that it is current.
pub struct DeviceContext {
    /// The CUDA driver.
    pub api: &'static Loaded<DriverApi>,
    /// Name and limits of the device.
    pub properties: DeviceProperties,
    /// Accounting of library workspaces.
    pub workspaces: WorkspaceAccounting,
    raw: CUcontext,
}

// SAFETY: a context may be used from any thread, also concurrently.
unsafe impl Send for DeviceContext {}
// SAFETY: as above.
unsafe impl Sync for DeviceContext {}

/// Calls a driver function and adds its name to an error.
macro_rules! call {
    ($api:expr, $function:ident($($arg:expr),* $(,)?)) => {
        $api.check_status(stringify!($function), ($api.$function)($($arg),*))
    };
}
pub(super) use call;

impl DriverApi {
    /// Converts the result of a call.
    pub fn check_status(
        &self,
        call: &'static str,
        result: Status<CUresult>,
    ) -> Result<(), DriverError> {
        if result == CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        Err(DriverError::Call { call, reason: self.reason(result) })
    }

    /// Returns name and description of an error.
    fn reason(&self, error: Status<CUresult>) -> String {
        type Words = unsafe extern "C" fn(Status<CUresult>, *mut *const c_char) -> Status<CUresult>;
        let text = |function: Words| {
            let mut text = std::ptr::null();
            // SAFETY: sets the pointer to a static string of the library or leaves it unchanged.
            let result = unsafe { function(error, &mut text) };
            if result != CUresult::CUDA_SUCCESS || text.is_null() {
                return None;
            }
            // SAFETY: a static string, see above.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.cuGetErrorName).unwrap_or_else(|| error.to_string());
        match text(self.cuGetErrorString) {
            Some(description) => format!("{name}, {description}"),
            None => name,
        }
    }
}

/// Initializes the driver and returns it with the number of visible devices.
fn initialize_driver() -> Result<(&'static Loaded<DriverApi>, usize), DriverError> {
    let api = driver()?;
    let none = |reason: String| {
        DriverError::NoDevice(format!(
            "{} (CUDA {}) reports no GPU ({reason}): check what `nvidia-smi` prints, and CUDA_VISIBLE_DEVICES; in a \
             container, start it with access to the GPUs",
            api.path.display(),
            api.version,
        ))
    };
    // SAFETY: may be called any number of times.
    let result = unsafe { (api.cuInit)(0) };
    if result == CUresult::CUDA_ERROR_NO_DEVICE {
        return Err(none(api.reason(result)));
    }
    api.check_status("cuInit", result)?;
    let mut count = 0;
    // SAFETY: writes an integer.
    unsafe { call!(api, cuDeviceGetCount(&mut count)) }?;
    if count < 1 { Err(none("none is visible".to_string())) } else { Ok((api, count as usize)) }
}

/// Returns the properties of all visible devices, in the order of their ordinals.
pub fn devices() -> Result<Vec<DeviceProperties>, DriverError> {
    let (api, count) = initialize_driver()?;
    (0..count).map(|ordinal| properties(api, device_handle(api, ordinal)?)).collect()
}

impl DeviceContext {
    /// Creates the context of device `ordinal` among the visible devices.
    pub fn new(ordinal: usize) -> Result<DeviceContext, DriverError> {
        let (api, count) = initialize_driver()?;
        if ordinal >= count {
            return Err(DriverError::NoDevice(format!(
                "there is no GPU {ordinal}: the driver reports {count}, numbered from 0; start at most that many ranks \
                 on this host, or check CUDA_VISIBLE_DEVICES"
            )));
        }
        let device = device_handle(api, ordinal)?;
        let properties = properties(api, device)?;
        if properties.capability < (8, 0) {
            let (name, (major, minor)) = (&properties.name, properties.capability);
            return Err(DriverError::NoDevice(format!(
                "GPU {ordinal} ({name}) has compute capability {major}.{minor}, and at least 8.0 is needed: use a GPU \
                 of the Ampere generation or later"
            )));
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: the device exists.
        unsafe { call!(api, cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        let context =
            DeviceContext { api, properties, workspaces: WorkspaceAccounting::default(), raw };
        context.make_current()?;
        Ok(context)
    }

    /// Waits until all work submitted to the device is done.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.make_current()?;
        // SAFETY: no arguments.
        unsafe { call!(self.api, cuCtxSynchronize()) }
    }

    /// Makes the context current on the calling thread; nearly free if it already is.
    pub fn make_current(&self) -> Result<(), DriverError> {
        thread_local! {
            static CURRENT: Cell<CUcontext> = const { Cell::new(std::ptr::null_mut()) };
        }
        if CURRENT.get() != self.raw {
            // SAFETY: the context is never released.
            unsafe { call!(self.api, cuCtxSetCurrent(self.raw)) }?;
            CURRENT.set(self.raw);
        }
        Ok(())
    }
}

fn device_handle(api: &DriverApi, ordinal: usize) -> Result<CUdevice, DriverError> {
    let mut device = 0;
    // SAFETY: writes an integer.
    unsafe { call!(api, cuDeviceGet(&mut device, ordinal as c_int)) }?;
    Ok(device)
}

fn properties(api: &DriverApi, device: CUdevice) -> Result<DeviceProperties, DriverError> {
    use CUdevice_attribute::*;
    let attribute = |attribute| -> Result<u32, DriverError> {
        let mut value = 0;
        // SAFETY: writes an integer.
        unsafe { call!(api, cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(value as u32)
    };
    let mut name = [0 as c_char; 256];
    // SAFETY: writes a terminated string of at most the given length.
    unsafe { call!(api, cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device)) }?;
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut memory = 0;
    // SAFETY: writes an integer.
    unsafe { call!(api, cuDeviceTotalMem_v2(&mut memory, device)) }?;
    Ok(DeviceProperties {
        name,
        capability: (
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory,
        shared_memory: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
    })
}
