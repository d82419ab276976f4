//! Progress threads, which carry out the asynchronous calls of a member in the order of issue.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use crate::sync::DeadlockDetector;

use super::member::LocalMember;

/// The work of an asynchronous call.
pub type Job = Box<dyn FnOnce(&LocalMember) + Send>;

/// A thread that starts with its first job.
pub struct ProgressThread {
    state: Mutex<ThreadState>,
    /// Jobs that are submitted and not done. The thread is one task while there are any.
    open: Arc<AtomicUsize>,
}

enum ThreadState {
    Idle,
    Running(mpsc::Sender<Job>, JoinHandle<()>),
    Closed,
}

impl ProgressThread {
    /// Creates a thread that has not started.
    pub fn new() -> ProgressThread {
        ProgressThread { state: Mutex::new(ThreadState::Idle), open: Arc::default() }
    }

    /// Submits a job. Returns it after `close`, and if the system refuses a thread.
    pub fn submit_job(&self, member: &Arc<LocalMember>, job: Job) -> Result<(), Job> {
        let mut state = self.lock_state();
        if matches!(*state, ThreadState::Idle) {
            *state = start_thread(Arc::clone(member), Arc::clone(&self.open));
        }
        let ThreadState::Running(jobs, _) = &*state else { return Err(job) };
        // Counted as running from now on, although the thread has to wake up.
        if self.open.fetch_add(1, Ordering::AcqRel) == 0 {
            member.group.ranks().deadlock.add_running(1);
        }
        // The thread ends only after `close`, which replaces the state.
        jobs.send(job).map_err(|unsent| unsent.0)
    }

    /// Waits until all submitted jobs are done, and ends the thread.
    pub fn close(&self) {
        let state = std::mem::replace(&mut *self.lock_state(), ThreadState::Closed);
        if let ThreadState::Running(jobs, thread) = state {
            drop(jobs);
            // A panic of the thread shows as a `PendingCall` whose promise was dropped.
            let _ = thread.join();
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start_thread(member: Arc<LocalMember>, open: Arc<AtomicUsize>) -> ThreadState {
    let (sender, jobs) = mpsc::channel::<Job>();
    let name = format!("rank {} progress", member.world_rank());
    let thread = std::thread::Builder::new().name(name).stack_size(256 << 10).spawn(move || {
        DeadlockDetector::register_thread();
        let deadlock = Arc::clone(&member.group.ranks().deadlock);
        for job in jobs {
            job(&member);
            if open.fetch_sub(1, Ordering::AcqRel) == 1 && deadlock.remove_running() {
                deadlock.report_deadlock();
            }
        }
    });
    match thread {
        Ok(thread) => ThreadState::Running(sender, thread),
        Err(_) => ThreadState::Closed,
    }
}
