//! Compilation of kernel sources to machine code.

use std::ffi::{CStr, CString, c_char};
use std::ptr::null;

use cudarc::nvrtc::sys::{nvrtcProgram, nvrtcResult};

use super::api::{NvrtcApi, Status, nvrtc};
use super::vendor_library::Version;
use crate::{COMMON, DriverError, KernelSource};

/// Machine code of a source.
pub struct CompiledCode {
    /// Loadable machine code.
    pub cubin: Vec<u8>,
    /// The assembly language of a virtual machine from which the machine code was made.
    pub ptx: String,
    /// Compiler output.
    pub log: String,
}

/// Options of every compilation except the architecture.
pub const OPTIONS: [&str; 2] = ["--std=c++17", "-default-device"];

/// Compiles a source, after the common header, for an architecture such as `sm_90a`.
pub fn compile(
    source: &KernelSource,
    architecture: &str,
    extra: &[&str],
) -> Result<CompiledCode, DriverError> {
    let api: &NvrtcApi = nvrtc()?;
    let failed = |log: String| DriverError::Compile {
        source_name: source.name.to_string(),
        architecture: architecture.to_string(),
        log,
    };
    let string = |text: String| {
        CString::new(text).map_err(|_| failed("the text contains a zero byte".to_string()))
    };

    let text = string(compiled_text(source))?;
    let name = string(format!("{}.cu", source.name))?;
    let mut program = Program { api, raw: std::ptr::null_mut() };
    // SAFETY: the strings outlive the call, and there are no headers.
    let created = unsafe {
        let (text, name) = (text.as_ptr(), name.as_ptr());
        (api.nvrtcCreateProgram)(&mut program.raw, text, name, 0, null(), null())
    };
    api.check_status("nvrtcCreateProgram", created)?;

    let options = [format!("--gpu-architecture={architecture}")];
    let options = options.iter().map(String::as_str).chain(OPTIONS).chain(extra.iter().copied());
    let options: Vec<_> = options.map(|option| string(option.into())).collect::<Result<_, _>>()?;
    let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the strings outlive the call.
    let compiled =
        unsafe { (api.nvrtcCompileProgram)(program.raw, pointers.len() as i32, pointers.as_ptr()) };
    let log = program.log()?;
    if compiled == nvrtcResult::NVRTC_SUCCESS {
        return Ok(CompiledCode { cubin: program.cubin()?, ptx: program.ptx()?, log });
    }
    Err(failed(if compiled == nvrtcResult::NVRTC_ERROR_COMPILATION {
        log
    } else {
        format!("{}\n{log}", api.reason(compiled))
    }))
}

/// Returns the text to compile. Lines of the header and of the source are each counted from 1.
pub fn compiled_text(source: &KernelSource) -> String {
    format!("#line 1 \"device.cuh\"\n{COMMON}\n#line 1 \"{}.cu\"\n{}", source.name, source.text)
}

/// Returns the target architecture for a device of this compute capability.
///
/// Machine code also runs on later devices of the same major capability, so a device newer than the compiler uses the
/// latest supported architecture before it.
pub fn architecture(capability: (u32, u32)) -> Result<String, DriverError> {
    let api = nvrtc()?;
    best_architecture(capability, &api.architectures()?).ok_or_else(|| {
        let (major, minor) = capability;
        DriverError::Library(format!(
            "NVRTC {} in {} does not support compute capability {major}.{minor}: install a later version",
            api.version,
            api.path.display()
        ))
    })
}

/// Selects the architecture for [`architecture`]; `known` are numbers such as 90 for capability 9.0.
fn best_architecture((major, minor): (u32, u32), known: &[u32]) -> Option<String> {
    let fits = |number: &&u32| **number / 10 == major && **number % 10 <= minor;
    let number = known.iter().filter(fits).max()?;
    // Architecture-specific instructions require the suffix.
    Some(if *number == 90 { "sm_90a".to_string() } else { format!("sm_{number}") })
}

/// Returns the version of the compiler.
pub fn compiler_version() -> Result<Version, DriverError> {
    Ok(nvrtc()?.version)
}

impl NvrtcApi {
    fn check_status(
        &self,
        call: &'static str,
        result: Status<nvrtcResult>,
    ) -> Result<(), DriverError> {
        if result == nvrtcResult::NVRTC_SUCCESS {
            return Ok(());
        }
        Err(DriverError::Call { call, reason: self.reason(result) })
    }

    fn reason(&self, error: Status<nvrtcResult>) -> String {
        // SAFETY: returns a static string for any error.
        unsafe { CStr::from_ptr((self.nvrtcGetErrorString)(error)) }.to_string_lossy().into_owned()
    }

    /// Returns the numbers of the supported architectures.
    fn architectures(&self) -> Result<Vec<u32>, DriverError> {
        let mut count = 0;
        // SAFETY: writes an integer.
        let result = unsafe { (self.nvrtcGetNumSupportedArchs)(&mut count) };
        self.check_status("nvrtcGetNumSupportedArchs", result)?;
        let mut numbers = vec![0; count.max(0) as usize];
        // SAFETY: writes the number of integers announced above.
        let result = unsafe { (self.nvrtcGetSupportedArchs)(numbers.as_mut_ptr()) };
        self.check_status("nvrtcGetSupportedArchs", result)?;
        Ok(numbers.into_iter().map(|number| number as u32).collect())
    }
}

/// A function that writes the number of bytes of a result, and its name.
type SizeCall =
    (&'static str, unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Status<nvrtcResult>);
/// A function that writes the bytes of a result, and its name.
type BytesCall =
    (&'static str, unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Status<nvrtcResult>);

/// A program of the compiler.
struct Program<'a> {
    api: &'a NvrtcApi,
    raw: nvrtcProgram,
}

impl Program<'_> {
    fn log(&self) -> Result<String, DriverError> {
        self.text(
            ("nvrtcGetProgramLogSize", self.api.nvrtcGetProgramLogSize),
            ("nvrtcGetProgramLog", self.api.nvrtcGetProgramLog),
        )
    }

    fn ptx(&self) -> Result<String, DriverError> {
        self.text(
            ("nvrtcGetPTXSize", self.api.nvrtcGetPTXSize),
            ("nvrtcGetPTX", self.api.nvrtcGetPTX),
        )
    }

    fn cubin(&self) -> Result<Vec<u8>, DriverError> {
        self.bytes(
            ("nvrtcGetCUBINSize", self.api.nvrtcGetCUBINSize),
            ("nvrtcGetCUBIN", self.api.nvrtcGetCUBIN),
        )
    }

    fn text(&self, size: SizeCall, get: BytesCall) -> Result<String, DriverError> {
        let bytes = self.bytes(size, get)?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    fn bytes(
        &self,
        (size_call, size): SizeCall,
        (call, get): BytesCall,
    ) -> Result<Vec<u8>, DriverError> {
        let mut count = 0;
        // SAFETY: writes an integer.
        self.api.check_status(size_call, unsafe { size(self.raw, &mut count) })?;
        let mut bytes = vec![0; count];
        // SAFETY: writes the number of bytes announced above.
        self.api.check_status(call, unsafe { get(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: created, and not used any more. Errors cannot be handled here.
            unsafe { (self.api.nvrtcDestroyProgram)(&mut self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architecture_is_the_latest_supported() {
        let known = [75, 80, 86, 89, 90, 100, 103, 120];
        let best = |capability| best_architecture(capability, &known);
        assert_eq!(best((8, 0)).unwrap(), "sm_80");
        assert_eq!(best((8, 7)).unwrap(), "sm_86");
        assert_eq!(best((9, 0)).unwrap(), "sm_90a");
        assert_eq!(best((10, 0)).unwrap(), "sm_100");
        assert_eq!(best((10, 3)).unwrap(), "sm_103");
        assert_eq!(best((12, 1)).unwrap(), "sm_120");
        assert_eq!(best((13, 0)), None);
        assert_eq!(best_architecture((10, 0), &[103]), None);
    }
}
