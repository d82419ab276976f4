//! Loaded kernel libraries, and execution of kernels.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use meshwright_cuda::{DriverError, Grid, KernelSource};

use crate::compiler;
use crate::fault;
use crate::lock;
use crate::stacks::{MOST_THREADS, Stacks};

/// The kernels of one source, loaded once per process for all devices.
pub(crate) struct Library {
    handle: NonNull<c_void>,
    source: String,
    /// Lock held by a running launch: shared memory is emulated by static variables of the library, so launches run one
    /// at a time.
    running: Mutex<()>,
}

// SAFETY: the handle names a loaded library that is never unloaded; symbol lookup is thread-safe.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// A kernel.
#[derive(Clone)]
pub(crate) struct Kernel {
    library: Arc<Library>,
    pub(crate) name: String,
    run: Run,
    fault: usize,
    parameters: Vec<u32>,
}

type Run = unsafe extern "C" fn(*mut Launch, *const *const c_void) -> c_int;

/// Mirrors `Launch` in `host/block.hpp`.
#[repr(C)]
struct Launch {
    kernel: *const c_char,
    blocks: [u32; 3],
    threads: u32,
    seed: u64,
    stacks: *mut c_char,
    stack_stride: u64,
    stack_bytes: u64,
    dynamic_shared: *mut c_char,
    dynamic_shared_bytes: u64,
    dynamic_shared_asked: u64,
    message: *mut c_char,
    message_bytes: u64,
    fault_address: u64,
}

/// Reason of a failed launch.
pub(crate) struct Failure {
    pub(crate) message: String,
    /// The invalid address that a thread accessed, if any.
    pub(crate) address: Option<u64>,
}

/// Parameters of a launch, each aligned to 16 bytes because kernels take structures.
pub(crate) struct Arguments {
    words: Vec<u128>,
    /// Offset of each parameter, in words.
    places: Vec<usize>,
}

impl Arguments {
    pub(crate) fn new(args: &[&[u8]]) -> Arguments {
        let mut arguments = Arguments { words: Vec::new(), places: Vec::new() };
        for arg in args {
            let start = arguments.words.len();
            arguments.places.push(start);
            arguments.words.resize(start + arg.len().div_ceil(16), 0);
            bytemuck::cast_slice_mut(&mut arguments.words[start..])[..arg.len()]
                .copy_from_slice(arg);
        }
        arguments
    }
}

/// Returns the library of `source`, compiled and loaded on first use.
pub(crate) fn load(source: &KernelSource) -> Result<Arc<Library>, DriverError> {
    static LOADED: Mutex<Option<HashMap<PathBuf, Arc<Library>>>> = Mutex::new(None);
    let path = compiler::library(source)?;
    let mut loaded = lock(&LOADED);
    let loaded = loaded.get_or_insert_default();
    if let Some(library) = loaded.get(&path) {
        return Ok(Arc::clone(library));
    }
    let library = Arc::new(open(&path, source)?);
    loaded.insert(path, Arc::clone(&library));
    Ok(library)
}

fn open(path: &Path, source: &KernelSource) -> Result<Library, DriverError> {
    let name = c_string(path.as_os_str().as_bytes());
    // SAFETY: the library is our own and has no initializers.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let source = source.name.to_string();
    NonNull::new(handle)
        .map(|handle| Library { handle, source, running: Mutex::new(()) })
        .ok_or_else(|| {
            // SAFETY: `dlerror` returns a string after a failure.
            let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
            DriverError::Library(format!("{}: {}", path.display(), reason.to_string_lossy()))
        })
}

fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}

impl Library {
    fn symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        // SAFETY: the library is loaded.
        NonNull::new(unsafe {
            libc::dlsym(self.handle.as_ptr(), c_string(name.as_bytes()).as_ptr())
        })
    }

    /// Returns the names of all kernels, for messages.
    fn kernels(&self) -> String {
        self.symbol("meshwright_kernels").map_or_else(String::new, |list| {
            // SAFETY: the list is a string of the library.
            unsafe { CStr::from_ptr(list.as_ptr().cast()) }.to_string_lossy().into_owned()
        })
    }

    /// Returns the kernel of this name.
    pub(crate) fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel, DriverError> {
        let parameters = self.symbol(&format!("meshwright_parameters_{name}"));
        let run = self.symbol(&format!("meshwright_launch_{name}"));
        let fault = self.symbol("meshwright_fault");
        let (Some(parameters), Some(run), Some(fault)) = (parameters, run, fault) else {
            return Err(DriverError::Call {
                call: "function",
                reason: format!(
                    "`{}` has no kernel `{name}`; it has {}",
                    self.source,
                    self.kernels()
                ),
            });
        };
        // SAFETY: the library defines the function with this type for every kernel.
        let run = unsafe { std::mem::transmute::<*mut c_void, Run>(run.as_ptr()) };
        // SAFETY: as above; it returns the number of parameters, and as many sizes follow.
        let parameters = unsafe {
            let sizes = std::mem::transmute::<*mut c_void, extern "C" fn() -> *const u32>(
                parameters.as_ptr(),
            )();
            std::slice::from_raw_parts(sizes.add(1), *sizes as usize).to_vec()
        };
        let fault = fault.as_ptr() as usize;
        Ok(Kernel { library: Arc::clone(self), name: name.to_string(), run, fault, parameters })
    }
}

impl Kernel {
    /// Validates the parameters and dimensions of a launch.
    pub(crate) fn check(
        &self,
        grid: &Grid,
        args: &[&[u8]],
        most_shared: usize,
    ) -> Result<(), String> {
        let sizes: Vec<u32> = args.iter().map(|arg| arg.len() as u32).collect();
        let Kernel { name, parameters, .. } = self;
        if sizes != *parameters {
            return Err(format!(
                "kernel `{name}` takes parameters of {parameters:?} bytes, not of {sizes:?}"
            ));
        }
        let [x, y, z] = grid.blocks;
        if x == 0 || y == 0 || z == 0 || x > i32::MAX as u32 || y > 65535 || z > 65535 {
            return Err(format!("kernel `{name}` cannot have ({x}, {y}, {z}) blocks"));
        }
        if grid.threads == 0 || grid.threads > MOST_THREADS {
            return Err(format!("kernel `{name}` cannot have {} threads in a block", grid.threads));
        }
        if grid.shared as usize > most_shared {
            let shared = grid.shared;
            return Err(format!(
                "kernel `{name}` requests {shared} bytes of shared memory of {most_shared}"
            ));
        }
        Ok(())
    }

    /// Runs all blocks.
    ///
    /// # Safety
    /// The parameters have the kernel's types, and their addresses are of live, sufficiently large memory.
    pub(crate) unsafe fn run(
        &self,
        grid: &Grid,
        args: &Arguments,
        seed: u64,
    ) -> Result<(), Failure> {
        // Kept for later launches of any thread: a system limits the number of mappings of a process.
        static STACKS: Mutex<Vec<Stacks>> = Mutex::new(Vec::new());
        let _one = lock(&self.library.running);
        let kept = lock(&STACKS).pop();
        let stacks = match kept {
            Some(stacks) => stacks,
            None => Stacks::new().map_err(|message| Failure { message, address: None })?,
        };
        // SAFETY: as the caller promises.
        let result = unsafe { self.run_on(&stacks, grid, args, seed) };
        lock(&STACKS).push(stacks);
        result
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn run_on(
        &self,
        stacks: &Stacks,
        grid: &Grid,
        args: &Arguments,
        seed: u64,
    ) -> Result<(), Failure> {
        let name = c_string(self.name.as_bytes());
        let mut message = vec![0u8; 1024];
        let asked = grid.shared as usize;
        // A red zone follows the requested size; everything is aligned to 128 bytes.
        let mut shared = vec![Aligned([0; 128]); asked.div_ceil(128) + 1];
        let mut launch = Launch {
            kernel: name.as_ptr(),
            blocks: grid.blocks,
            threads: grid.threads,
            seed,
            stacks: stacks.start(),
            stack_stride: Stacks::STRIDE as u64,
            stack_bytes: Stacks::BYTES as u64,
            dynamic_shared: shared.as_mut_ptr().cast(),
            dynamic_shared_bytes: (shared.len() * 128) as u64,
            dynamic_shared_asked: asked as u64,
            message: message.as_mut_ptr().cast(),
            message_bytes: message.len() as u64,
            fault_address: u64::MAX,
        };
        let words = args.words.as_ptr();
        let pointers: Vec<*const c_void> =
            args.places.iter().map(|&start| words.wrapping_add(start).cast()).collect();
        let caught = fault::catch(self.fault, stacks.spare());
        // SAFETY: the launch and everything it points to outlive the call, and there is a stack for every thread; the
        // rest is as the caller promises.
        let status = unsafe { (self.run)(&mut launch, pointers.as_ptr()) };
        drop(caught);
        if status == 0 {
            return Ok(());
        }
        let text = CStr::from_bytes_until_nul(&message).unwrap_or_default();
        let address = Some(launch.fault_address).filter(|&address| address != u64::MAX);
        Err(Failure { message: text.to_string_lossy().into_owned(), address })
    }
}

/// A unit of shared memory.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Aligned([u8; 128]);
