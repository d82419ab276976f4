//! Makes an error of it when a thread of a kernel uses memory that is not there.

use std::cell::Cell;

/// Where a fault of this thread goes on: the library's function for it, and the stack for that.
#[derive(Clone, Copy)]
struct Landing {
    function: usize,
    stack: usize,
}

thread_local! {
    static LANDING: Cell<Option<Landing>> = const { Cell::new(None) };
}

/// While it lives, faults of this thread are a kernel's.
pub(crate) struct Caught(());

/// From now on, a fault of this thread calls `function` with the address, on the stack that ends at `stack`.
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

    /// What was done about each signal before.
    static BEFORE: OnceLock<[libc::sigaction; 3]> = OnceLock::new();

    pub(super) fn install() {
        BEFORE.get_or_init(|| {
            SIGNALS.map(|signal| {
                // SAFETY: all zeros are a value of the type; handlers are installed as the manual says. The handler runs on
                // the stack for signals that Rust gives every thread, since a fault may be that of a full stack.
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

    /// Lets the thread go on at its landing; without one, as if there were no handler.
    extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let Some(landing) = LANDING.get() else {
            let index = SIGNALS.iter().position(|&known| known == signal);
            if let (Some(before), Some(index)) = (BEFORE.get(), index) {
                // SAFETY: it was in force before. What caused the signal happens again, and meets it.
                unsafe { libc::sigaction(signal, &before[index], ptr::null_mut()) };
            }
            return;
        };
        // SAFETY: the kernel passes both, and what is changed is where this thread goes on.
        unsafe {
            let address = (*info).si_addr() as i64;
            let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
            registers[libc::REG_RDI as usize] = address;
            registers[libc::REG_RIP as usize] = landing.function as i64;
            // As after a call: 8 bytes below a multiple of 16.
            registers[libc::REG_RSP as usize] = (landing.stack as i64 & !15) - 8;
        }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod handler {
    /// Faults end the process.
    pub(super) fn install() {}
}
