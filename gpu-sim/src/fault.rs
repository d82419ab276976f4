//! Converts memory faults of kernel threads to errors.

use std::cell::Cell;

/// The point at which this thread continues after a fault: the library's function and its stack.
#[derive(Clone, Copy)]
struct Landing {
    function: usize,
    stack: usize,
}

thread_local! {
    static LANDING: Cell<Option<Landing>> = const { Cell::new(None) };
}

/// Guard during which faults of this thread are attributed to a kernel.
pub(crate) struct Caught(());

/// Redirects faults of this thread to `function`, called with the address on the stack that ends at `stack`.
pub(crate) fn catch(function: usize, stack: usize) -> Caught {
    handler::install();
    LANDING.set(Some(Landing { function, stack }));
    Caught(())
}

impl Drop for Caught {
    fn drop(&mut self) {
        LANDING.set(None);
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod handler {
    use std::ffi::{c_int, c_void};
    use std::mem;
    use std::ptr;
    use std::sync::OnceLock;

    use super::LANDING;

    const SIGNALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE];

    /// The previous action of each signal.
    static BEFORE: OnceLock<[libc::sigaction; 3]> = OnceLock::new();

    pub(super) fn install() {
        BEFORE.get_or_init(|| {
            SIGNALS.map(|signal| {
                // SAFETY: all zeros are a valid value; handlers are installed as documented. The handler runs on the
                // signal stack that Rust gives every thread, since the fault may be a stack overflow.
                unsafe {
                    let mut action: libc::sigaction = mem::zeroed();
                    let mut before: libc::sigaction = mem::zeroed();
                    action.sa_sigaction = handle as *const () as usize;
                    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                    libc::sigaction(signal, &action, &mut before);
                    before
                }
            })
        });
    }

    /// Redirects the thread to its landing; without one, restores the previous handler.
    extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let Some(landing) = LANDING.get() else {
            let index = SIGNALS.iter().position(|&known| known == signal);
            if let (Some(before), Some(index)) = (BEFORE.get(), index) {
                // SAFETY: it was in force before. The faulting instruction is repeated and meets it.
                unsafe { libc::sigaction(signal, &before[index], ptr::null_mut()) };
            }
            return;
        };
        // SAFETY: the kernel passes both pointers, and only this thread's registers are changed.
        unsafe {
            let address = (*info).si_addr() as i64;
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            registers[libc::REG_RDI as usize] = address;
            registers[libc::REG_RIP as usize] = landing.function as i64;
            // The stack as after a call: 8 bytes below a multiple of 16.
            registers[libc::REG_RSP as usize] = (landing.stack as i64 & !15) - 8;
        }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod handler {
    /// Other faults end the process.
    pub(super) fn install() {}
}
