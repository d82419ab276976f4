//! A thread that carries out a seat's asynchronous calls, in the order in which they were issued.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use super::activity::Activity;
use super::seat::Seat;

/// What is to be done for an asynchronous call.
pub type Job = Box<dyn FnOnce(&Seat) + Send>;

/// Starts its thread with the first call.
pub struct Progress {
    state: Mutex<State>,
}

enum State {
    Idle,
    Running(mpsc::Sender<Job>, JoinHandle<()>),
    Closed,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { state: Mutex::new(State::Idle) }
    }

    /// Queues a job. Gives it back after `close`, and when the system refuses a thread.
    pub fn submit(&self, seat: &Arc<Seat>, job: Job) -> Result<(), Job> {
        let mut state = self.lock();
        if matches!(*state, State::Idle) {
            *state = start(Arc::clone(seat));
        }
        let State::Running(jobs, _) = &*state else { return Err(job) };
        // Runs from now on, although the thread has to notice.
        seat.group.roster.activity.more(1);
        // The thread ends only after `close`, which replaces the state.
        jobs.send(job).map_err(|unsent| unsent.0)
    }

    /// Waits until all queued jobs are done, and ends the thread.
    pub fn close(&self) {
        let state = std::mem::replace(&mut *self.lock(), State::Closed);
        if let State::Running(jobs, thread) = state {
            drop(jobs);
            // A panic of the thread shows as a `Pending` whose result never comes.
            let _ = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(seat: Arc<Seat>) -> State {
    let (sender, jobs) = mpsc::channel::<Job>();
    let name = format!("rank {} progress", seat.world_rank());
    let thread = std::thread::Builder::new().name(name).stack_size(256 << 10).spawn(move || {
        Activity::join();
        let activity = Arc::clone(&seat.group.roster.activity);
        for job in jobs {
            job(&seat);
            if activity.less() {
                activity.deadlock();
            }
        }
    });
    match thread {
        Ok(thread) => State::Running(sender, thread),
        Err(_) => State::Closed,
    }
}
