//! Signals of the process: stops that lose nothing, and the file size limit.
//!
//! SIGTERM, SIGINT, SIGUSR1 and SIGHUP, which comes from a closed terminal, ask for a stop. What the first of them does
//! depends on the [phase](StopPhase) of the run; a second one always ends the process immediately. SIGHUP stays ignored
//! in a program that `nohup` starts.
//!
//! SIGUSR2 asks for a report about the state of the run, which goes on. A run without reports says so.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use libc::c_int;

use super::exit_code::STOPPED;

/// The signals that ask for a stop.
pub(super) const STOP_SIGNALS: [(c_int, &str); 4] = [
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGHUP, "SIGHUP"),
];

/// Milliseconds in which a repeated signal counts as the first one: `timeout` and other launchers send it to the
/// process and to its group.
const REPEATED_MS: u64 = 50;

/// The phase of a run, which determines what the first signal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StopPhase {
    /// Before the first step: the process exits, and nothing is lost.
    Starting,
    /// In the steps of a run that saves nothing: the signal ends the process, after a line that says what is lost.
    Unsaved,
    /// In the steps of a run that saves: a stop is [requested](requested_stop).
    Saved,
    /// In the steps of a run that saves at the end of a round of several steps: as [`Saved`](Self::Saved), after the
    /// round.
    SavedByRound,
    /// The last step and after it: the run completes it, saves, exports and ends.
    Ending,
}

static PHASE: AtomicU8 = AtomicU8::new(StopPhase::Starting as u8);
/// The first signal, and the time of its arrival in milliseconds times 256; 0 before.
static FIRST: AtomicU64 = AtomicU64::new(0);
/// Completed steps of this run.
static STEPS: AtomicU64 = AtomicU64::new(0);
/// Running calls of [`hold_stops`].
static HELD: AtomicU64 = AtomicU64::new(0);
/// Set when a report is asked for.
static REPORT: AtomicBool = AtomicBool::new(false);
/// True if another process of the run prints the lines.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Makes a write beyond the file size limit of the process (`ulimit -f`) fail with an error that names the file,
/// instead of ending the process without a message. Programs call it when they start.
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed. The call fails for signals that do not exist or cannot be ignored only.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Installs the handler of the signals that ask for a stop. A training program calls it when it starts.
pub fn watch_stop_signals() {
    for (signal, _) in STOP_SIGNALS {
        if signal == libc::SIGHUP && is_ignored(signal) {
            continue;
        }
        set_handler(signal, on_stop_signal as *const () as libc::sighandler_t);
    }
}

/// Installs the handler of SIGUSR2, which asks for a report. A program that writes reports calls it.
pub fn watch_report_signal() {
    set_handler(libc::SIGUSR2, on_report_signal as *const () as libc::sighandler_t);
}

/// Installs a handler of SIGUSR2 that says why there is no report, for a program that writes none.
pub fn explain_report_signal() {
    set_handler(libc::SIGUSR2, on_useless_report_signal as *const () as libc::sighandler_t);
}

/// Returns true if a report was asked for since the last call.
pub fn take_report_request() -> bool {
    REPORT.swap(false, Ordering::SeqCst)
}

extern "C" fn on_report_signal(_: c_int) {
    REPORT.store(true, Ordering::SeqCst);
}

extern "C" fn on_useless_report_signal(_: c_int) {
    if !QUIET.load(Ordering::SeqCst) {
        let text = "SIGUSR2: the last calls of the ranks are not written, as the run has no folder for them; start it \
                    with --flight DIR\n";
        keep_errno(|| Line::default().text(text).print());
    }
}

/// Begins the phase from the last step on. A signal that came after the check of the step before it was announced as a
/// stop after its step, which is corrected.
pub fn begin_last_step(is_quiet: bool) {
    begin_stop_phase(StopPhase::Ending, is_quiet);
    if let Some(name) = requested_stop() {
        Line::default().text(name).text(LAST_STEP).text(AGAIN).print();
    }
}

/// Begins a phase of the run. `is_quiet` leaves the lines about signals to another process.
pub fn begin_stop_phase(phase: StopPhase, is_quiet: bool) {
    QUIET.store(is_quiet, Ordering::SeqCst);
    PHASE.store(phase as u8, Ordering::SeqCst);
}

/// Calls `body`, during which the process does not exit by a first signal: what `body` creates for a moment is removed.
/// The process exits after it.
pub fn hold_stops<T>(body: impl FnOnce() -> T) -> T {
    HELD.fetch_add(1, Ordering::SeqCst);
    let result = body();
    let is_held = HELD.fetch_sub(1, Ordering::SeqCst) > 1;
    let is_starting = PHASE.load(Ordering::SeqCst) == StopPhase::Starting as u8;
    if let Some(name) = requested_stop().filter(|_| is_starting && !is_held) {
        exit_before_steps(name);
    }
    result
}

/// Counts a completed step of the run, for the line that says what is lost.
pub fn count_stoppable_step() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the name of the signal that has asked for a stop.
pub fn requested_stop() -> Option<&'static str> {
    match FIRST.load(Ordering::SeqCst) {
        0 => None,
        first => Some(name_of((first & 0xff) as c_int)),
    }
}

fn name_of(signal: c_int) -> &'static str {
    STOP_SIGNALS.iter().find(|(known, _)| *known == signal).map_or("a signal", |(_, name)| name)
}

/// Returns true if a signal has no effect on this process.
pub(super) fn is_ignored(signal: c_int) -> bool {
    // SAFETY: `action` is writable, and the call only reads how the signal is handled.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action.sa_sigaction == libc::SIG_IGN
    }
}

/// Handles a signal by a function, or as `SIG_DFL` or `SIG_IGN` say.
pub(super) fn set_handler(signal: c_int, handler: libc::sighandler_t) {
    // SAFETY: `action` is a valid value of zeros, and `handler` is `SIG_DFL` or a function of the expected type that
    // calls only functions which are allowed in handlers.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// Handles a signal. Calls only functions that are allowed in handlers, and allocates nothing.
extern "C" fn on_stop_signal(signal: c_int) {
    keep_errno(|| take_stop_signal(signal));
}

/// Runs the body of a handler. The interrupted code may be about to read the error of its last call.
fn keep_errno(body: impl FnOnce()) {
    // SAFETY: the location is that of this thread.
    let errno = unsafe { *libc::__errno_location() };
    body();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn take_stop_signal(signal: c_int) {
    let now = monotonic_ms();
    let name = name_of(signal);
    match FIRST.compare_exchange(0, now << 8 | signal as u64, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => begin_stop(signal, name),
        Err(first) if now.saturating_sub(first >> 8) < REPEATED_MS => {}
        Err(_) => {
            let line = Line::default().text("stopped immediately by a second signal, ").text(name);
            line.text("; what was not saved before is lost\n").print();
            end_by(signal);
        }
    }
}

fn begin_stop(signal: c_int, name: &str) {
    let line = Line::default();
    let phase = PHASE.load(Ordering::SeqCst);
    if phase == StopPhase::Starting as u8 {
        if HELD.load(Ordering::SeqCst) == 0 {
            exit_before_steps(name);
        }
    } else if phase == StopPhase::Unsaved as u8 {
        let line = line.text("stopped by ").text(name).text("; the steps of this run are lost (");
        line.number(STEPS.load(Ordering::Relaxed)).text("), as it has no --save DIR\n").print();
        end_by(signal);
    } else if phase == StopPhase::Saved as u8 {
        line.text(name)
            .text(": the run stops after this step, and saves its state")
            .text(AGAIN)
            .print();
    } else if phase == StopPhase::SavedByRound as u8 {
        line.text(name)
            .text(": the run stops after the next synchronization, and saves its state")
            .text(AGAIN)
            .print();
    } else {
        line.text(name).text(LAST_STEP).text(AGAIN).print();
    }
}

/// Exits before the first step.
fn exit_before_steps(name: &str) -> ! {
    let line = Line::default().text("stopped by ").text(name);
    line.text(" before the first step; nothing is lost\n").print();
    // SAFETY: the call is allowed in handlers, and does not return.
    unsafe { libc::_exit(c_int::from(STOPPED)) }
}

/// The line about a signal from the last step on.
const LAST_STEP: &str = ": the run completes its last step, and writes its results";

/// The end of a line about a signal that the run obeys later.
const AGAIN: &str = "; a second signal ends it immediately\n";

/// Ends the process by a signal, as if it were not handled. The first process of a container, which the system does
/// not end by signals, exits with the code that shells give to it.
fn end_by(signal: c_int) {
    // SAFETY: both calls are allowed in handlers.
    unsafe {
        if libc::getpid() == 1 {
            libc::_exit(128 + signal);
        }
    }
    set_handler(signal, libc::SIG_DFL);
    // SAFETY: the call has no preconditions. The signal takes effect when the handler returns.
    unsafe { libc::raise(signal) };
}

fn monotonic_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is writable, and the clock exists on every system.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// A line for stderr, made without allocation.
#[derive(Clone, Copy)]
struct Line {
    bytes: [u8; 200],
    len: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line { bytes: [0; 200], len: 0 }
    }
}

impl Line {
    /// Adds as much of a text as there is space for.
    fn text(mut self, text: &str) -> Line {
        for (to, from) in self.bytes[self.len..].iter_mut().zip(text.as_bytes()) {
            *to = *from;
            self.len += 1;
        }
        self
    }

    fn number(self, number: u64) -> Line {
        let line = if number >= 10 { self.number(number / 10) } else { self };
        let digit = [b'0' + (number % 10) as u8];
        line.text(std::str::from_utf8(&digit).unwrap_or_default())
    }

    fn print(self) {
        if !QUIET.load(Ordering::SeqCst) {
            // SAFETY: the bytes are initialized. A line that cannot be written is left out.
            unsafe { libc::write(libc::STDERR_FILENO, self.bytes.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_made_of_texts_and_numbers() {
        let text = |line: Line| String::from_utf8(line.bytes[..line.len].to_vec()).unwrap();
        let line = Line::default().text("steps ").number(0).text(", ").number(1_234_567_890);
        assert_eq!(text(line), "steps 0, 1234567890");
        assert_eq!(text(Line::default().text(&"x".repeat(300))).len(), 200);
    }

    #[test]
    fn a_program_that_nohup_starts_ignores_sighup() {
        const PROGRAM: &str = "signals::tests::ignored_sighup";
        let program = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new("nohup");
        let output = command.arg(program).args([PROGRAM, "--exact", "--ignored"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "the test above runs it in a process of its own"]
    fn ignored_sighup() {
        watch_stop_signals();
        assert!(is_ignored(libc::SIGHUP) && !is_ignored(libc::SIGTERM));
    }
}
