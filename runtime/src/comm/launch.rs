//! Running one body on every rank of a mesh, each rank a thread.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{DeviceFailure, OutOfMemory};
use crate::mesh::MeshShape;
use crate::trace::Tracer;

use super::local::{Activity, RankComms, World};
use super::panics;
use super::{CommError, CommFailure, Departure};

/// Settings of [`launch_with`].
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// How long a collective waits for the other members before it fails. Default: 10 minutes.
    pub timeout: Duration,
    /// Stack of each rank's thread in bytes. Default: 16 MiB, of which untouched pages cost nothing.
    pub stack_size: usize,
    /// Records what each rank does, its collectives included. Default: none.
    pub tracer: Option<Arc<Tracer>>,
}

impl Default for LaunchOptions {
    fn default() -> Self {
        LaunchOptions { timeout: Duration::from_secs(600), stack_size: 16 << 20, tracer: None }
    }
}

/// Runs `body` once per rank of `shape`, each on its own thread, and gives the results in the order of ranks.
///
/// A rank that fails or panics does not leave the others waiting: their collectives with it fail. While a rank
/// runs, a panic of its thread prints nothing; its message and place are part of the error.
///
/// # Errors
/// When any rank failed: the errors of all of them, the one that caused the others first.
pub fn launch<T: Send, E: Display + Send>(
    shape: &MeshShape,
    body: impl Fn(RankComms) -> Result<T, E> + Sync,
) -> Result<Vec<T>, LaunchError<E>> {
    launch_with(&LaunchOptions::default(), shape, body)
}

/// [`launch`] with settings.
///
/// # Errors
/// As [`launch`].
pub fn launch_with<T: Send, E: Display + Send>(
    options: &LaunchOptions,
    shape: &MeshShape,
    body: impl Fn(RankComms) -> Result<T, E> + Sync,
) -> Result<Vec<T>, LaunchError<E>> {
    run_ranks(options, shape, 0..shape.world_size(), body)
}

/// Runs `body` for one rank of `shape`, the others being processes of their own: collectives need an
/// [engine](RankComms::over) that reaches them.
///
/// # Errors
/// When the rank failed.
pub fn launch_rank<T: Send, E: Display + Send>(
    options: &LaunchOptions,
    shape: &MeshShape,
    rank: usize,
    body: impl Fn(RankComms) -> Result<T, E> + Sync,
) -> Result<T, LaunchError<E>> {
    let mut values = run_ranks(options, shape, rank..rank + 1, body)?;
    Ok(values.pop().expect("one rank has one result"))
}

/// Runs `body` for `ranks`, each on its own thread.
fn run_ranks<T: Send, E: Display + Send>(
    options: &LaunchOptions,
    shape: &MeshShape,
    ranks: Range<usize>,
    body: impl Fn(RankComms) -> Result<T, E> + Sync,
) -> Result<Vec<T>, LaunchError<E>> {
    panics::install_hook();
    let world = World::new(*shape, options);
    let run_rank = |rank: usize| {
        Activity::join();
        let comms = world.comms(rank);
        let outcome = panics::recorded(|| catch_unwind(AssertUnwindSafe(|| body(comms))));
        let outcome = match outcome {
            Ok(result) => result.map_err(FailureCause::Error),
            Err(payload) => Err(FailureCause::of_panic(payload)),
        };
        let departure = match &outcome {
            Ok(_) => Departure::Returned,
            Err(cause) => cause.departure(),
        };
        world.leave(rank, departure);
        outcome
    };
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
                    world.leave(rank, Departure::Failed(format!("no thread: {error}").into()));
                }
                thread
            })
            .collect();
        let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match thread {
            Ok(thread) => {
                thread.join().unwrap_or_else(|payload| Err(FailureCause::of_panic(payload)))
            }
            Err(error) => Err(FailureCause::Thread(error.to_string())),
        };
        threads.into_iter().map(join).collect()
    });

    let mut values = Vec::with_capacity(outcomes.len());
    let mut failures = Vec::new();
    for (rank, outcome) in ranks.zip(outcomes) {
        match outcome {
            Ok(value) => values.push(value),
            Err(cause) => {
                failures.push(RankFailure { rank, cause, stopped_by: world.stopped_by(rank) })
            }
        }
    }
    if failures.is_empty() {
        return Ok(values);
    }
    failures.sort_by_key(|f| (f.stopped_by.is_some(), world.end_order(f.rank)));
    Err(LaunchError { failures })
}

/// The failures of a [`launch`], the cause of the others first.
#[derive(Debug)]
pub struct LaunchError<E> {
    /// One entry for each rank that failed; never empty.
    pub failures: Vec<RankFailure<E>>,
}

/// How one rank failed.
#[derive(Debug)]
pub struct RankFailure<E> {
    /// World rank.
    pub rank: usize,
    /// What it failed with.
    pub cause: FailureCause<E>,
    /// The rank whose end made this one fail, if it did not fail by itself.
    pub stopped_by: Option<usize>,
}

/// What a rank failed with.
#[derive(Debug)]
pub enum FailureCause<E> {
    /// The error that its body returned.
    Error(E),
    /// A communication error that passed through code without `Result`s, as a [`CommFailure`].
    Comm(CommError),
    /// A buffer that did not fit in memory, asked for by code without `Result`s.
    OutOfMemory(OutOfMemory),
    /// A device that did not do what it was asked for, by code without `Result`s.
    Device(DeviceFailure),
    /// A panic.
    Panic {
        /// Message and place.
        message: String,
        /// Where backtraces are switched on.
        backtrace: Option<String>,
    },
    /// The system could not start the rank's thread.
    Thread(String),
}

impl<E: Display> FailureCause<E> {
    fn of_panic(payload: Box<dyn Any + Send>) -> Self {
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
                let panics::Record { message, backtrace } = panics::take_record(&*payload);
                FailureCause::Panic { message, backtrace }
            }
        }
    }

    fn departure(&self) -> Departure {
        match self {
            FailureCause::Panic { message, .. } => Departure::Panicked(message.as_str().into()),
            _ => Departure::Failed(self.to_string().into()),
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

/// The failures that have no other cause, those with the same text on one line, and who was stopped by them.
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
        let mut lines: Vec<_> =
            texts.iter().map(|(text, ranks)| format!("{} failed: {text}", name(ranks))).collect();
        if causes.is_empty() {
            // A rank was waited for that had returned without an error.
            lines.extend(stopped.iter().map(|f| format!("rank {} failed: {}", f.rank, f.cause)));
        } else if !stopped.is_empty() {
            let ranks: Vec<_> = stopped.iter().map(|failure| failure.rank).collect();
            lines.push(format!("{} stopped because of that", name(&ranks)));
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

/// `rank 3`, `ranks 0, 2`.
fn name(ranks: &[usize]) -> String {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    super::local::name_ranks(&ranks)
}
