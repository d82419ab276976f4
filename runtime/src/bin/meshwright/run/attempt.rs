//! One attempt of a run: its processes, from their start to the end of the last one.

use std::collections::BTreeMap;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use meshwright::checkpoint::{RunEvent, RunEventKind};
use meshwright::exit_code::{LOST, REFUSED, STOPPED, code_of_io};
use meshwright_os::{
    SignalQueue, descendants, is_stop_signal, reap_child, send_signal, signal_name,
};

use super::Failure;
use super::journal::Journal;
use super::output::{LastError, Outputs};
use super::reports::{ReportedFailure, Reports};
use super::start::Starter;

/// Time in which the other ranks end by themselves after one has failed.
const REST: Duration = Duration::from_secs(8);

/// Shortest time between two looks at the reports of the processes.
const POLL: Duration = Duration::from_secs(1);

/// Time in which killed processes end.
const KILL: Duration = Duration::from_secs(5);

/// Time in which a repeated signal counts as the first one, as in training programs.
const REPEATED: Duration = Duration::from_millis(50);

/// The end of an attempt.
pub struct AttemptEnd {
    /// The exit code of the run.
    pub code: u8,
    /// The rank that failed first, if it is known.
    pub rank: Option<usize>,
    /// The cause of a failure.
    pub reason: String,
    /// True if the cause is a message of the program, which is among its output.
    pub is_printed: bool,
    /// True if this program got a signal, after which nothing is started again.
    pub is_stopped: bool,
    /// False if no process was a program of Meshwright.
    pub has_trained: bool,
}

/// The settings of an attempt.
pub struct AttemptRules<'a> {
    pub queue: &'a SignalQueue,
    /// Time from a signal to the end of the processes.
    pub grace: Duration,
    /// True if a run that is ended before it handles signals has lost nothing.
    pub saves: bool,
    /// The reports of the processes of this attempt.
    pub reports: &'a Reports,
}

/// Running processes, and what is known about the others.
pub struct RunAttempt<'a> {
    rules: &'a AttemptRules<'a>,
    starter: &'a Starter,
    journal: &'a mut Journal,
    running: BTreeMap<u32, Process>,
    /// The first process that failed.
    failed: Option<(Process, ExitStatus)>,
    /// True if a process has stopped, and saved its state.
    has_stopped: bool,
    /// The first signal of this program, and its time.
    stop: Option<(i32, Instant)>,
    /// The time at which running processes are killed, and the reason.
    deadline: Option<(Instant, String)>,
    /// The end of killed processes.
    killed: Option<(u8, String)>,
    started: Instant,
    /// True if the checkpoint is known from which the attempt continues.
    is_resumed: bool,
}

struct Process {
    rank: Option<usize>,
    error: LastError,
}

impl RunAttempt<'_> {
    /// Starts the commands, forwards their output, and waits until all processes have ended, the descendants of these
    /// included. `journal` gets the events.
    ///
    /// # Errors
    /// A process that cannot be started.
    pub fn run(
        rules: &AttemptRules<'_>,
        (starter, commands): (&Starter, Vec<Command>),
        journal: &mut Journal,
    ) -> Result<AttemptEnd, Failure> {
        let mut attempt = RunAttempt {
            rules,
            starter,
            journal,
            running: BTreeMap::new(),
            failed: None,
            has_stopped: false,
            stop: None,
            deadline: None,
            killed: None,
            started: Instant::now(),
            is_resumed: false,
        };
        let outputs = Outputs::new();
        let has_ranks = commands.len() > 1;
        for (index, mut command) in commands.into_iter().enumerate() {
            let rank = has_ranks.then_some(index);
            if let Err(error) = attempt.start(&mut command, rank, &outputs) {
                attempt.kill_all();
                let program = command.get_program().display();
                let message = format!("cannot start {program}: {error}");
                return Err(Failure { message, code: code_of_start(&error) });
            }
        }
        attempt.wait();
        attempt.note_resumed();
        attempt.end_descendants();
        outputs.finish();
        Ok(attempt.end())
    }

    fn start(
        &mut self,
        command: &mut Command,
        rank: Option<usize>,
        outputs: &Outputs,
    ) -> io::Result<()> {
        // A launcher ends its processes after SIGTERM, but cannot after SIGKILL.
        let at_death = if self.starter.is_by_launcher() { libc::SIGTERM } else { libc::SIGKILL };
        self.rules.queue.supervise(command, at_death);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pid = child.id();
        let error = outputs.forward(&mut child, rank)?;
        self.running.insert(pid, Process { rank, error });
        Ok(())
    }

    /// Waits for the end of the started processes.
    fn wait(&mut self) {
        loop {
            while let Some((pid, status)) = reap_child() {
                self.note_end(pid, status);
            }
            if self.running.is_empty() {
                return;
            }
            let left = self.deadline.as_ref().map_or(Duration::MAX, |(deadline, _)| {
                deadline.saturating_duration_since(Instant::now())
            });
            // Reports have no signal. A run that begins has no checkpoint to report.
            self.note_resumed();
            let poll = if self.is_resumed { left } else { (self.started.elapsed() / 8).max(POLL) };
            if left.is_zero() {
                let (_, reason) = self.deadline.take().expect("it has passed");
                self.kill(LOST, reason);
                return;
            }
            match self.rules.queue.wait(left.min(poll)) {
                Some(signal) if is_stop_signal(signal) => self.note_signal(signal),
                // A request for the last calls of the ranks. Launchers pass it on.
                Some(libc::SIGUSR2) => {
                    self.running.keys().for_each(|pid| send_signal(*pid, false, libc::SIGUSR2));
                }
                _ => {}
            }
        }
    }

    /// Adds the checkpoint from which the attempt continues to the log, when it is known: a damaged one is skipped.
    fn note_resumed(&mut self) {
        if self.is_resumed {
            return;
        }
        if let Some(folder) = self.rules.reports.resumed() {
            self.is_resumed = true;
            let complete = |event| RunEvent { from: Some(folder), ..event };
            self.journal.add(RunEventKind::Resume, complete);
        }
    }

    fn note_end(&mut self, pid: u32, status: ExitStatus) {
        // Others are descendants that have lost their parents.
        let Some(process) = self.running.remove(&pid) else { return };
        if status.success() {
            return;
        }
        if status.code() == Some(STOPPED.into()) || self.is_stopped_early(status) {
            self.has_stopped = true;
            return;
        }
        let is_killed = |status| self.starter.signal_of(status).is_some();
        // The ranks that have lost another one may be noticed before it.
        let is_cause =
            self.failed.as_ref().is_none_or(|(_, first)| !is_killed(*first) && is_killed(status));
        let reason = "the other ranks did not end after this failure".to_owned();
        self.end_within(REST, reason);
        if is_cause {
            self.failed = Some((process, status));
        }
    }

    /// Returns true for a process of a run that saves, which a signal has ended before it handled signals.
    fn is_stopped_early(&self, status: ExitStatus) -> bool {
        let is_ended = || self.starter.signal_of(status).is_some_and(is_stop_signal);
        self.rules.saves && self.stop.is_some() && is_ended()
    }

    /// Kills the running processes after `time`, or earlier.
    fn end_within(&mut self, time: Duration, reason: String) {
        let deadline = Instant::now() + time;
        if self.deadline.as_ref().is_none_or(|(earlier, _)| deadline < *earlier) {
            self.deadline = Some((deadline, reason));
        }
    }

    fn note_signal(&mut self, signal: i32) {
        let (now, name) = (Instant::now(), signal_name(signal));
        match self.stop {
            None => {
                self.stop = Some((signal, now));
                let passed = self.starter.signal_to_pass(signal);
                let is_for_group = !self.starter.is_by_launcher();
                self.running.keys().for_each(|pid| send_signal(*pid, is_for_group, passed));
                let grace = self.rules.grace;
                let line =
                    format!("{name} is passed on; the run has {} s to stop", grace.as_secs());
                self.journal.report(RunEventKind::Signal, line);
                self.end_within(grace, format!("the run did not stop within --grace after {name}"));
            }
            Some((_, first)) if now - first < REPEATED => {}
            Some(_) => {
                let code = 128 + u8::try_from(signal).unwrap_or_default();
                self.kill(code, format!("a second signal, {name}, has ended the run immediately"));
            }
        }
    }

    /// Ends the descendants of processes that have ended. After a failure they are killed immediately.
    fn end_descendants(&mut self) {
        let grace = self.deadline.take().map(|(deadline, _)| deadline);
        let deadline = grace.unwrap_or_else(|| Instant::now() + self.rules.grace);
        let poll = Duration::from_millis(100);
        loop {
            while reap_child().is_some() {}
            if descendants().is_empty() {
                return;
            }
            if self.failed.is_some() || self.killed.is_some() || Instant::now() >= deadline {
                break;
            }
            if self.rules.queue.wait(poll).is_some_and(is_stop_signal) {
                break;
            }
        }
        let count = descendants().len();
        let line = format!("processes that the ended ones have left are killed: {count}");
        self.journal.report(RunEventKind::Kill, line);
        self.kill_all();
    }

    fn kill(&mut self, code: u8, reason: String) {
        self.journal.report(RunEventKind::Kill, reason.clone());
        self.killed = Some((code, reason));
        self.kill_all();
        self.running.clear();
    }

    /// Kills all descendants, and waits for their end.
    fn kill_all(&mut self) {
        let deadline = Instant::now() + KILL;
        loop {
            while reap_child().is_some() {}
            let left = descendants();
            if left.is_empty() {
                return;
            }
            if Instant::now() >= deadline {
                let line = format!("processes that the system does not end are left: {left:?}");
                return self.journal.report(RunEventKind::Kill, line);
            }
            left.iter().for_each(|pid| send_signal(*pid, false, libc::SIGKILL));
            self.rules.queue.wait(Duration::from_millis(20));
        }
    }

    /// Returns the end of the attempt, when its output is complete.
    fn end(self) -> AttemptEnd {
        let is_stopped = self.stop.is_some();
        let end = |code, rank, reason, is_printed| AttemptEnd {
            code,
            rank,
            reason,
            is_printed,
            is_stopped,
            has_trained: self.rules.reports.has_started() || self.starter.is_of_user(),
        };
        let failure = self.failed.map(|(process, status)| {
            let signal = self.starter.signal_of(status);
            let reported = self.rules.reports.failure();
            let rank = process.rank.filter(|_| signal.is_some()).or(reported.rank).or(process.rank);
            let (reason, is_printed) = reason_of(signal, &process, reported);
            end(code_of(signal, status), rank, reason, is_printed)
        });
        match (failure, self.killed) {
            (Some(failure), None) => failure,
            // The failure is the cause of the end of the other ranks, and a second signal that of all.
            (Some(failure), Some((code, reason))) => AttemptEnd {
                code: if is_stopped { code } else { failure.code },
                reason: format!("{}; {reason}", failure.reason),
                ..failure
            },
            (None, Some((code, reason))) => end(code, None, reason, true),
            (None, None) if self.has_stopped => end(STOPPED, None, "stopped".to_owned(), true),
            (None, None) => end(0, None, "done".to_owned(), true),
        }
    }
}

/// Returns the exit code of a run by that of a process.
fn code_of(signal: Option<i32>, status: ExitStatus) -> u8 {
    match (signal, status.code()) {
        // Something has asked this process for its end.
        (Some(signal), _) if is_stop_signal(signal) => {
            128 + u8::try_from(signal).unwrap_or_default()
        }
        (Some(_), _) | (None, None) => LOST,
        // The codes with which shells and launchers report a program that they cannot start.
        (None, Some(126 | 127)) => REFUSED,
        (None, Some(code)) => u8::try_from(code).unwrap_or(LOST),
    }
}

/// Returns the cause of the end of a process, and true if it is a message of the program. A message of another rank
/// than the one that the cause is about begins with its rank, and so do all messages of processes that have ranks.
fn reason_of(signal: Option<i32>, process: &Process, reported: ReportedFailure) -> (String, bool) {
    let lost = process.rank.or(reported.rank);
    let subject = lost.map_or("a process".to_owned(), |rank| format!("rank {rank}"));
    let (reporter, message) = match reported.reason {
        Some(reason) => (reported.reporter, Some(reason)),
        None => (process.rank, process.error.message()),
    };
    let with_reporter = |message: String, is_known: bool| match reporter.filter(|_| !is_known) {
        Some(rank) => format!("rank {rank}: {message}"),
        None => message,
    };
    match (signal, message) {
        (Some(signal), message) => {
            let message = message.map(|text| with_reporter(text, reporter == lost));
            let message = message.map(|text| format!("; {text}")).unwrap_or_default();
            (format!("{subject} was ended by {}{message}", signal_name(signal)), false)
        }
        (None, Some(message)) => {
            let is_known = process.rank.is_none() && reporter == reported.rank;
            (with_reporter(message, is_known), true)
        }
        (None, None) => (format!("{subject} ended without an error message"), false),
    }
}

/// Returns the exit code after a process that cannot be started: files without a known format are to be changed, too.
fn code_of_start(error: &io::Error) -> u8 {
    if error.raw_os_error() == Some(libc::ENOEXEC) { REFUSED } else { code_of_io(error) }
}
