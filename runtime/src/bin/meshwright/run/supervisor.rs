//! The attempts of a run, one after the other.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use meshwright::checkpoint::{NewestCheckpoint, RunEvent, RunEventKind};
use meshwright::counted;
use meshwright::exit_code::{LOST, REFUSED, STOPPED};
use meshwright_os::{SignalQueue, adopt_orphans, is_stop_signal, signal_name};

use super::Failure;
use super::attempt::{AttemptEnd, AttemptRules, RunAttempt};
use super::elastic::Elastic;
use super::journal::{Journal, say};
use super::reports::Reports;
use super::restarts::Restarts;
use super::start::Starter;
use super::train_command::TrainCommand;

/// A run that is supervised.
pub struct Supervisor {
    command: TrainCommand,
    starter: Starter,
    elastic: Option<Elastic>,
    restarts: Restarts,
    grace: Duration,
    /// The folder of `--save`, if it is on a file system.
    save: Option<PathBuf>,
    journal: Journal,
    /// True if an attempt was neither refused nor of another program.
    has_begun: bool,
}

impl Supervisor {
    /// Opens the log of the run, which no other supervisor can then write.
    ///
    /// # Errors
    /// A log that cannot be written.
    pub fn open(
        command: TrainCommand,
        starter: Starter,
        elastic: Option<Elastic>,
        restarts: Restarts,
        grace: Duration,
    ) -> Result<Supervisor, Failure> {
        let save = command.save_folder();
        let journal = Journal::open(save.as_deref())?;
        let has_begun = false;
        Ok(Supervisor { command, starter, elastic, restarts, grace, save, journal, has_begun })
    }

    /// Runs attempts until one is the last. Returns the exit code of the run. A command that is refused leaves nothing.
    ///
    /// # Errors
    /// Processes that cannot be started, and too many failures without progress.
    pub fn run(mut self) -> Result<u8, Failure> {
        let ended = self.run_attempts();
        let is_refused = match &ended {
            Ok(code) => *code == REFUSED,
            Err(failure) => failure.code == REFUSED,
        };
        if is_refused && !self.has_begun {
            self.journal.discard();
        }
        ended
    }

    fn run_attempts(&mut self) -> Result<u8, Failure> {
        let queue = SignalQueue::hold_signals();
        adopt_orphans();
        self.restarts.begin(self.newest());
        loop {
            let attempt = self.journal.begin_attempt();
            let (count, end) = self.attempt(&queue, attempt)?;
            let newest = self.newest();
            let is_refused = end.code == REFUSED && !end.is_stopped;
            self.has_begun |= newest.is_some() || !is_refused && end.code > 1;
            let is_smaller =
                is_refused && self.elastic.as_mut().is_some_and(|own| own.try_fewer(count));
            let restart = match end.code {
                _ if is_smaller => Some((0, Duration::ZERO)),
                LOST if !end.is_stopped => self.restarts.next_restart(newest.as_ref()),
                _ => None,
            };
            self.log_end(&end, newest.as_ref(), restart.map(|(_, wait)| wait));
            let Some((number, wait)) = restart else {
                return self.last_code(&end, newest.as_ref());
            };
            let from = newest.filter(|newest| self.restarts.is_own(Some(newest)));
            let from = from
                .map_or("as at first".to_owned(), |from| format!("from {}", from.folder.display()));
            let cause = first_line(&end.reason).trim_end_matches('.');
            say(&if is_smaller {
                format!(
                    "no mesh of {} fits; starting fewer {from}",
                    counted(count.unwrap_or(1), "rank")
                )
            } else {
                let (limit, seconds) = (self.restarts.limit(), wait.as_secs());
                let wait = if seconds == 0 { String::new() } else { format!(" in {seconds} s") };
                format!(
                    "{cause}; starting again {from}{wait} (restart {number} of {limit} without a further checkpoint)"
                )
            });
            if let Some(signal) = wait_for_stop(&queue, wait) {
                let line = format!(
                    "{} between two attempts; nothing is started again",
                    signal_name(signal)
                );
                self.journal.report(RunEventKind::Signal, line);
                return Ok(STOPPED);
            }
        }
    }

    /// Runs one attempt. Returns the number of its processes, if it is known, and its end.
    fn attempt(
        &mut self,
        queue: &SignalQueue,
        attempt: u32,
    ) -> Result<(Option<usize>, AttemptEnd), Failure> {
        let size = self.elastic.as_ref().map(|elastic| elastic.next_size(&self.starter));
        let (count, mesh) = match size {
            None => (self.starter.processes(), None),
            Some(Ok((count, mesh))) => (count, Some(mesh)),
            // What is missing may come back.
            Some(Err(Failure { message, .. })) if attempt > 1 => {
                let end = AttemptEnd {
                    code: LOST,
                    rank: None,
                    reason: message,
                    is_printed: false,
                    is_stopped: false,
                    has_trained: true,
                };
                return Ok((None, end));
            }
            Some(Err(failure)) => return Err(failure),
        };
        let resized =
            count.filter(|_| mesh.is_some()).map(|count| self.starter.with_processes(count));
        let starter = resized.as_ref().unwrap_or(&self.starter);
        let newest = self.newest();
        let is_resumed = self.restarts.is_own(newest.as_ref());
        let words = self.command.words(is_resumed, mesh.as_deref());
        let from = self.origin(newest, is_resumed);
        self.journal.add(RunEventKind::Start, |event| RunEvent { processes: count, from, ..event });
        let reports = Reports::create();
        let commands = starter.commands(&words, attempt, &reports);
        let commands = commands.map_err(|error| Failure::new(error.to_string(), &error))?;
        let saves = self.command.save().is_some();
        let rules = AttemptRules { queue, grace: self.grace, saves, reports: &reports };
        let end = RunAttempt::run(&rules, (starter, commands), &mut self.journal)?;
        Ok((count, end))
    }

    /// Returns the checkpoint from which an attempt continues.
    fn origin(&self, newest: Option<NewestCheckpoint>, is_resumed: bool) -> Option<PathBuf> {
        let newest = newest.map(|newest| newest.folder);
        match self.command.setting("resume") {
            _ if is_resumed => newest,
            Some(resume) if resume == "auto" => newest,
            resume => resume.map(PathBuf::from),
        }
    }

    fn newest(&self) -> Option<NewestCheckpoint> {
        NewestCheckpoint::find(self.save.as_deref()?)
    }

    fn log_end(
        &mut self,
        end: &AttemptEnd,
        newest: Option<&NewestCheckpoint>,
        wait: Option<Duration>,
    ) {
        self.journal.add(RunEventKind::End, |event| RunEvent {
            code: Some(end.code),
            rank: end.rank,
            reason: Some(end.reason.clone()),
            checkpoint: newest.map(|newest| newest.folder.clone()),
            restart_in: wait.map(|wait| wait.as_secs()),
            ..event
        });
    }

    /// Returns the exit code after the last attempt.
    fn last_code(
        &self,
        end: &AttemptEnd,
        newest: Option<&NewestCheckpoint>,
    ) -> Result<u8, Failure> {
        let limit = self.restarts.limit();
        let program = self.command.program().display();
        match (end.code, &self.save) {
            (code @ (0 | 1), _) if !end.has_trained && newest.is_none() => Err(format!(
                "{program} has ended with exit code {code}, and no program of Meshwright has run in it: name the \
                 training program after --, and the launcher of one that runs in a container or on another host by \
                 --launcher"
            )
            .into()),
            (0, Some(save)) if newest.is_none() => {
                Err(format!(
                    "{program} has ended with exit code 0, but there is no checkpoint in {}: it is no training program \
                     with --save, or one that only reports, which needs no `meshwright run`",
                    save.display()
                )
                .into())
            }
            (LOST, _) if limit > 0 && !end.is_stopped => Err(Failure {
                message: format!(
                    "the run has failed {} in a row without a further checkpoint; the last failure: {}",
                    counted(limit as usize + 1, "time"),
                    first_line(&end.reason)
                ),
                code: LOST,
            }),
            (0 | STOPPED, _) => Ok(end.code),
            (code, _) => {
                if !end.is_printed {
                    say(&format!("{}; exit code {code}", first_line(&end.reason)));
                }
                Ok(code)
            }
        }
    }
}

/// Returns the first line of a reason. The rest is among the output of the program, and in the log.
fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default()
}

/// Waits between two attempts. Returns the signal that asks for a stop meanwhile.
fn wait_for_stop(queue: &SignalQueue, time: Duration) -> Option<i32> {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match queue.wait(left) {
            Some(signal) if is_stop_signal(signal) => return Some(signal),
            None if left.is_zero() => return None,
            _ => {}
        }
    }
}
