//! Child processes that a program supervises, with all their descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::ptr::null_mut;
use std::time::Duration;

use libc::{c_int, c_ulong, pid_t, sigset_t};

use super::exit_code::LOST;
use super::signals::{STOP_SIGNALS, is_ignored, set_handler};

/// Signals of this process that wait until they are asked for: those that ask for a stop, SIGUSR2, and SIGCHLD.
///
/// Created before the process starts a thread, which would otherwise handle them.
pub struct SignalQueue {
    waiting: sigset_t,
    /// The blocked signals of before, which a child gets.
    before: sigset_t,
}

impl SignalQueue {
    /// Holds the signals back. SIGHUP stays ignored in a program that `nohup` starts.
    pub fn hold_signals() -> SignalQueue {
        // A program that ignores it leaves that to its children, whose statuses would be lost.
        set_handler(libc::SIGCHLD, libc::SIG_DFL);
        let stops = STOP_SIGNALS.iter().map(|(signal, _)| *signal);
        let stops = stops.filter(|signal| *signal != libc::SIGHUP || !is_ignored(*signal));
        // SAFETY: both sets are writable, and zeros are valid values of them.
        unsafe {
            let (mut waiting, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut waiting);
            stops.chain([libc::SIGUSR2, libc::SIGCHLD]).for_each(|signal| {
                libc::sigaddset(&mut waiting, signal);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, &waiting, &mut before);
            SignalQueue { waiting, before }
        }
    }

    /// Waits for the next signal. Returns `None` after `limit`, or earlier.
    pub fn wait(&self, limit: Duration) -> Option<c_int> {
        let limit = libc::timespec {
            tv_sec: limit.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: the set and the limit are initialized, and no information about the signal is asked for.
        let signal = unsafe { libc::sigtimedwait(&self.waiting, null_mut(), &limit) };
        (signal > 0).then_some(signal)
    }

    /// Makes the child of `command` the first process of a process group, which gets the signal `at_death` when this
    /// process ends. The thread that starts it has to live as long as this process.
    pub fn supervise(&self, command: &mut Command, at_death: c_int) {
        let (before, parent) = (self.before, std::process::id() as pid_t);
        let prepare = move || {
            // SAFETY: the set is initialized. All calls are allowed between fork and exec, and none allocates.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &before, null_mut());
                if libc::prctl(libc::PR_SET_PDEATHSIG, at_death as c_ulong) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent has ended before that call.
                if libc::getppid() != parent {
                    libc::_exit(LOST.into());
                }
            }
            Ok(())
        };
        // SAFETY: `prepare` calls only functions that are allowed between fork and exec.
        unsafe { command.process_group(0).pre_exec(prepare) };
    }
}

/// Makes orphaned descendants children of this process, so that [`descendants`] finds them.
pub fn adopt_orphans() {
    // SAFETY: the call takes numbers only. A system without it leaves orphans to its first process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as c_ulong) };
}

/// Returns a child that has ended, and its status; `None` if there is none at present.
pub fn reap_child() -> Option<(u32, ExitStatus)> {
    let mut status = 0;
    // SAFETY: `status` is writable.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then(|| (pid as u32, ExitStatus::from_raw(status)))
}

/// Sends a signal to a process, or to its process group. One that has ended gets none.
pub fn send_signal(pid: u32, is_for_group: bool, signal: c_int) {
    let pid = pid as pid_t;
    // SAFETY: the call takes numbers only.
    unsafe { libc::kill(if is_for_group { -pid } else { pid }, signal) };
}

/// Returns the running processes that this one has started, directly or not.
pub fn descendants() -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent_of_running(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![std::process::id()];
    let mut seen: BTreeSet<u32> = BTreeSet::new();
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            if seen.insert(child) {
                found.push(child);
                parents.push(child);
            }
        }
    }
    found
}

/// Returns the parent in the text of `/proc/PID/stat`; `None` for a process that has ended.
fn parent_of_running(stat: &str) -> Option<u32> {
    // The name of the program, in parentheses, may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let state = words.next()?;
    words.next()?.parse().ok().filter(|_| !matches!(state, "Z" | "X"))
}

/// Returns the name of a signal.
pub fn signal_name(signal: c_int) -> String {
    const OTHERS: [(c_int, &str); 8] = [
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGPIPE, "SIGPIPE"),
    ];
    let found = STOP_SIGNALS.iter().chain(&OTHERS).find(|(number, _)| *number == signal);
    found.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// Returns true for the signals that ask a process for a stop.
pub fn is_stop_signal(signal: c_int) -> bool {
    STOP_SIGNALS.iter().any(|(stop, _)| *stop == signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_from_any_name() {
        assert_eq!(parent_of_running("12 (a) R (b)) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of_running("12 (a b) Z 7 12 12 0"), None);
        assert_eq!(parent_of_running(""), None);
    }

    #[test]
    fn a_child_is_a_descendant() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        assert!(descendants().contains(&child.id()));
        send_signal(child.id(), false, libc::SIGKILL);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(!descendants().contains(&child.id()));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!(signal_name(libc::SIGUSR1), "SIGUSR1");
        assert_eq!(signal_name(libc::SIGKILL), "SIGKILL");
        assert_eq!(signal_name(40), "signal 40");
        assert!(is_stop_signal(libc::SIGHUP) && !is_stop_signal(libc::SIGKILL));
    }
}
