//! Runs a function on every rank of a mesh, each rank on a thread.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use meshwright_backend::{DeviceFailure, OutOfMemory};
use meshwright_mesh::MeshShape;
use meshwright_os::exit_code::LOST;
use meshwright_os::take_report_request;

use super::panics;
use super::process_ranks::ProcessRanks;
use super::rank_table::name_ranks;
use super::run_reports::report_start;
use super::sync::DeadlockDetector;
use super::{CommError, CommFailure, LaunchOptions, RankComms, RankExit};

/// Runs `body` once per rank of `shape`, each on a thread, and returns the results in the order of ranks.
///
/// If a rank fails or panics, the collectives of other ranks with it fail. A panic of a rank is not printed; its
/// message and source location are part of the error.
///
/// # Errors
/// If any rank failed: the errors of all of them, the root cause first.
pub fn launch<T: Send, E: Display + Send>(
    shape: &MeshShape,
    body: impl Fn(RankComms) -> Result<T, E> + Sync,
) -> Result<Vec<T>, LaunchError<E>> {
    launch_with(&LaunchOptions::default(), shape, body)
}

/// Runs like [`launch`], with settings.
///
/// # Errors
/// As [`launch`].
pub fn launch_with<T: Send, E: Display + Send>(
    options: &LaunchOptions,
    shape: &MeshShape,
    body: impl Fn(RankComms) -> Result<T, E> + Sync,
) -> Result<Vec<T>, LaunchError<E>> {
    // Ranks of one process need no exit code of each other.
    launch_coded(options, shape, |_| LOST, body)
}

/// Runs like [`launch_with`]; `exit_code` returns the exit code after an error. The last calls of a run whose settings
/// or input are refused are not written.
///
/// # Errors
/// As [`launch`].
pub fn launch_coded<T: Send, E: Display + Send>(
    options: &LaunchOptions,
    shape: &MeshShape,
    exit_code: impl Fn(&E) -> u8 + Sync,
    body: impl Fn(RankComms) -> Result<T, E> + Sync,
) -> Result<Vec<T>, LaunchError<E>> {
    run_ranks(options, shape, 0..shape.world_size(), &exit_code, &body)
}

/// Runs `body` for one rank of `shape`, with the others in separate processes: collectives need an
/// [engine](RankComms::over) that connects them. `exit_code` returns the exit code after an error, which others fail
/// with too.
///
/// # Errors
/// If the rank failed.
pub fn launch_rank<T: Send, E: Display + Send>(
    options: &LaunchOptions,
    shape: &MeshShape,
    rank: usize,
    exit_code: impl Fn(&E) -> u8 + Sync,
    body: impl Fn(RankComms) -> Result<T, E> + Sync,
) -> Result<T, LaunchError<E>> {
    let mut values = run_ranks(options, shape, rank..rank + 1, &exit_code, &body)?;
    Ok(values.pop().expect("one rank has one result"))
}

/// Runs `body` for `ranks`, each on a thread.
///
/// Compiled once for each type of results, and not for each body.
fn run_ranks<T: Send, E: Display + Send>(
    options: &LaunchOptions,
    shape: &MeshShape,
    ranks: Range<usize>,
    exit_code: &(dyn Fn(&E) -> u8 + Sync),
    body: &(dyn Fn(RankComms) -> Result<T, E> + Sync),
) -> Result<Vec<T>, LaunchError<E>> {
    let values: Vec<Mutex<Option<T>>> = ranks.clone().map(|_| Mutex::new(None)).collect();
    let first = ranks.start;
    run_fallible(options, shape, ranks, exit_code, &|comms| {
        let slot = &values[comms.rank() - first];
        let value = body(comms)?;
        *slot.lock().expect("only this rank takes the lock") = Some(value);
        Ok(())
    })?;
    let value_of =
        |slot: Mutex<Option<T>>| slot.into_inner().expect("no rank panics while it holds the lock");
    Ok(values.into_iter().filter_map(value_of).collect())
}

/// Runs `body` for `ranks`, each on a thread, and returns the failures with their errors.
fn run_fallible<E: Display + Send>(
    options: &LaunchOptions,
    shape: &MeshShape,
    ranks: Range<usize>,
    exit_code: &(dyn Fn(&E) -> u8 + Sync),
    body: &(dyn Fn(RankComms) -> Result<(), E> + Sync),
) -> Result<(), LaunchError<E>> {
    let errors: Vec<Mutex<Option<E>>> = ranks.clone().map(|_| Mutex::new(None)).collect();
    let first = ranks.start;
    let run_rank = |comms: RankComms| {
        let slot = &errors[comms.rank() - first];
        body(comms).map_err(|error| {
            let text = ErrorText { text: error.to_string(), code: exit_code(&error) };
            *slot.lock().expect("only this rank takes the lock") = Some(error);
            text
        })
    };
    let failures = run_threads(options, shape, ranks, &run_rank);
    if failures.is_empty() {
        return Ok(());
    }
    let failure_of = |RankFailure { rank, cause, stopped_by }: RankFailure<ErrorText>| {
        let mut error =
            errors[rank - first].lock().expect("no rank panics while it holds the lock");
        RankFailure { rank, cause: cause.with_error(error.take()), stopped_by }
    };
    Err(LaunchError { failures: failures.into_iter().map(failure_of).collect() })
}

/// Message and exit code of an error that is stored separately.
#[derive(Debug)]
struct ErrorText {
    text: String,
    code: u8,
}

impl Display for ErrorText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Runs `body` for `ranks`, each on a thread, and returns the failures, the root cause first.
///
/// Independent of the types of results, so that it is compiled once and not for each body.
fn run_threads(
    options: &LaunchOptions,
    shape: &MeshShape,
    ranks: Range<usize>,
    body: &(dyn Fn(RankComms) -> Result<(), ErrorText> + Sync),
) -> Vec<RankFailure<ErrorText>> {
    panics::install_hook();
    report_start();
    let process_ranks = ProcessRanks::new(*shape, options);
    let run_rank = |rank: usize| {
        DeadlockDetector::register_thread();
        let comms = RankComms::new(&process_ranks, rank);
        let outcome = panics::capture_panics(|| catch_unwind(AssertUnwindSafe(|| body(comms))));
        let outcome = match outcome {
            Ok(result) => result.map_err(FailureCause::Error),
            Err(payload) => Err(FailureCause::from_panic(payload)),
        };
        let exit = match &outcome {
            Ok(()) => RankExit::Returned,
            Err(cause) => cause.rank_exit(),
        };
        process_ranks.leave(rank, exit.clone());
        if outcome.is_err() && !process_ranks.is_refused() {
            process_ranks.write_flight(rank, Some(&exit));
        }
        outcome
    };
    let watch = options.flight.as_ref().map(|_| watch_requests(&process_ranks, ranks.clone()));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let run_rank = &run_rank;
        let threads: Vec<_> = ranks
            .clone()
            .map(|rank| {
                let builder = std::thread::Builder::new().name(format!("rank {rank}"));
                let thread = builder
                    .stack_size(options.stack_size)
                    .spawn_scoped(scope, move || run_rank(rank));
                if let Err(error) = &thread {
                    process_ranks.leave(
                        rank,
                        RankExit::Failed {
                            error: format!("no thread: {error}").into(),
                            code: LOST,
                        },
                    );
                }
                thread
            })
            .collect();
        let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match thread {
            Ok(thread) => {
                thread.join().unwrap_or_else(|payload| Err(FailureCause::from_panic(payload)))
            }
            Err(error) => Err(FailureCause::Thread(error.to_string())),
        };
        threads.into_iter().map(join).collect()
    });

    drop(watch);
    // What the others did explains the failure.
    if outcomes.iter().any(Result::is_err) && !process_ranks.is_refused() {
        for (rank, _) in ranks.clone().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()) {
            process_ranks.write_flight(rank, Some(&RankExit::Returned));
        }
    }

    let failure_of = |(rank, outcome): (usize, Result<(), FailureCause<ErrorText>>)| {
        let cause = outcome.err()?;
        Some(RankFailure { rank, cause, stopped_by: process_ranks.stopped_by(rank) })
    };
    let mut failures: Vec<_> = ranks.zip(outcomes).filter_map(failure_of).collect();
    failures.sort_by_key(|f| (f.stopped_by.is_some(), process_ranks.exit_position(f.rank)));
    failures
}

/// Writes the last calls of `ranks` whenever a signal asks for them, until the returned sender is dropped.
fn watch_requests(process_ranks: &Arc<ProcessRanks>, ranks: Range<usize>) -> mpsc::Sender<()> {
    /// Time between two checks.
    const PERIOD: Duration = Duration::from_millis(200);

    let (sender, ended) = mpsc::channel();
    let process_ranks = Arc::clone(process_ranks);
    let watch = move || {
        while ended.recv_timeout(PERIOD) == Err(mpsc::RecvTimeoutError::Timeout) {
            if take_report_request() {
                ranks.clone().for_each(|rank| process_ranks.write_flight(rank, None));
            }
        }
    };
    // Without a thread, requests are not served; failures are still recorded.
    let _ = std::thread::Builder::new().name("flight recorder".into()).spawn(watch);
    sender
}

/// The failures of a [`launch`], the root cause first.
#[derive(Debug)]
pub struct LaunchError<E> {
    /// One entry for each rank that failed; never empty.
    pub failures: Vec<RankFailure<E>>,
}

/// The failure of one rank.
#[derive(Debug)]
pub struct RankFailure<E> {
    /// World rank.
    pub rank: usize,
    /// The error or panic.
    pub cause: FailureCause<E>,
    /// The rank whose exit made this one fail, if it did not fail by itself.
    pub stopped_by: Option<usize>,
}

/// The error or panic of a rank.
#[derive(Debug)]
pub enum FailureCause<E> {
    /// The error that its body returned.
    Error(E),
    /// A communication error in code without `Result`s, unwound as a [`CommFailure`].
    Comm(CommError),
    /// An allocation that did not fit in memory, in code without `Result`s.
    OutOfMemory(OutOfMemory),
    /// A failed device operation, in code without `Result`s.
    Device(DeviceFailure),
    /// A panic.
    Panic {
        /// Message and source location.
        message: String,
        /// Set if backtraces are enabled.
        backtrace: Option<String>,
    },
    /// The system could not start the rank's thread.
    Thread(String),
}

impl<E> FailureCause<E> {
    /// Returns the exit code of a program that fails because of this, given that of an error.
    pub fn exit_code(&self, of_error: impl Fn(&E) -> u8) -> u8 {
        match self {
            FailureCause::Error(error) => of_error(error),
            FailureCause::Comm(error) => error.exit_code(),
            FailureCause::OutOfMemory(_)
            | FailureCause::Device(_)
            | FailureCause::Panic { .. }
            | FailureCause::Thread(_) => LOST,
        }
    }
}

impl FailureCause<ErrorText> {
    fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let payload = match payload.downcast::<CommFailure>() {
            Ok(failure) => return FailureCause::Comm(failure.0),
            Err(payload) => payload,
        };
        let payload = match payload.downcast::<OutOfMemory>() {
            Ok(error) => return FailureCause::OutOfMemory(*error),
            Err(payload) => payload,
        };
        match payload.downcast::<DeviceFailure>() {
            Ok(failure) => FailureCause::Device(*failure),
            Err(payload) => {
                let panics::PanicReport { message, backtrace } =
                    panics::take_panic_report(&*payload);
                FailureCause::Panic { message, backtrace }
            }
        }
    }

    fn rank_exit(&self) -> RankExit {
        match self {
            FailureCause::Panic { message, .. } => RankExit::Panicked(message.as_str().into()),
            _ => {
                let code = self.exit_code(|error| error.code);
                RankExit::Failed { error: self.to_string().into(), code }
            }
        }
    }

    /// Replaces the text of the error by the error itself.
    fn with_error<E>(self, error: Option<E>) -> FailureCause<E> {
        match self {
            FailureCause::Error(_) => {
                FailureCause::Error(error.expect("a rank that returned an error has left it"))
            }
            FailureCause::Comm(error) => FailureCause::Comm(error),
            FailureCause::OutOfMemory(error) => FailureCause::OutOfMemory(error),
            FailureCause::Device(failure) => FailureCause::Device(failure),
            FailureCause::Panic { message, backtrace } => {
                FailureCause::Panic { message, backtrace }
            }
            FailureCause::Thread(error) => FailureCause::Thread(error),
        }
    }
}

impl<E: Display> Display for FailureCause<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FailureCause::Error(error) => error.fmt(f),
            FailureCause::Comm(error) => Display::fmt(error, f),
            FailureCause::OutOfMemory(error) => Display::fmt(error, f),
            FailureCause::Device(failure) => Display::fmt(failure, f),
            FailureCause::Panic { message, .. } => write!(f, "panic: {message}"),
            FailureCause::Thread(error) => write!(f, "its thread could not be started: {error}"),
        }
    }
}

/// The root causes, one line per distinct text, and the ranks that were stopped by them.
impl<E: Display> Display for LaunchError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stopped, causes): (Vec<_>, Vec<_>) =
            self.failures.iter().partition(|failure| failure.stopped_by.is_some());
        let mut texts: Vec<(String, Vec<usize>)> = Vec::new();
        for failure in &causes {
            let text = failure.cause.to_string();
            match texts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, ranks)) => ranks.push(failure.rank),
                None => texts.push((text, vec![failure.rank])),
            }
        }
        let mut lines: Vec<_> = texts
            .iter()
            .map(|(text, ranks)| format!("{} failed: {text}", sorted_names(ranks)))
            .collect();
        if causes.is_empty() {
            // Ranks waited for one that had returned without an error.
            lines.extend(stopped.iter().map(|f| format!("rank {} failed: {}", f.rank, f.cause)));
        } else if !stopped.is_empty() {
            let ranks: Vec<_> = stopped.iter().map(|failure| failure.rank).collect();
            lines.push(format!("{} stopped because of that", sorted_names(&ranks)));
        }
        if let Some(FailureCause::Panic { backtrace: Some(trace), .. }) =
            causes.first().map(|failure| &failure.cause)
        {
            lines.push(format!("backtrace of rank {}:\n{trace}", causes[0].rank));
        }
        f.write_str(&lines.join("\n"))
    }
}

impl<E: Debug + Display> std::error::Error for LaunchError<E> {}

/// Returns `rank 3` or `ranks 0, 2`.
fn sorted_names(ranks: &[usize]) -> String {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    name_ranks(&ranks)
}
