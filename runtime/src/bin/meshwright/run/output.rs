//! The output of started processes, which is forwarded line by line.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::process::Child;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Longest part of a line that is kept before it is written.
const MAX_PART: u64 = 1 << 16;

/// Time in which the output of processes that have ended arrives.
const LAST_OUTPUT: Duration = Duration::from_secs(5);

/// The outputs of the processes of an attempt.
pub struct Outputs {
    /// Held by the threads that forward.
    running: Sender<()>,
    ended: Receiver<()>,
}

/// The last error message among the lines of a process.
#[derive(Clone, Default)]
pub struct LastError(Arc<Mutex<Option<String>>>);

impl Outputs {
    pub fn new() -> Outputs {
        let (running, ended) = channel();
        Outputs { running, ended }
    }

    /// Forwards stdout and stderr of a process. Lines of a rank get its number, `[3] `; rank 0 has none on a terminal.
    ///
    /// # Errors
    /// A thread that cannot be started.
    pub fn forward(&self, child: &mut Child, rank: Option<usize>) -> io::Result<LastError> {
        let prefix = |is_terminal: bool| match rank {
            Some(rank) if rank > 0 || !is_terminal => format!("[{rank}] "),
            _ => String::new(),
        };
        let error = LastError::default();
        if let Some(stdout) = child.stdout.take() {
            let prefix = prefix(io::stdout().is_terminal());
            self.start(move || forward_lines(stdout, &prefix, io::stdout, |_| {}))?;
        }
        if let Some(stderr) = child.stderr.take() {
            let (prefix, error) = (prefix(io::stderr().is_terminal()), error.clone());
            self.start(move || {
                forward_lines(stderr, &prefix, io::stderr, |line| error.note(line))
            })?;
        }
        Ok(error)
    }

    fn start(&self, forward: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let running = self.running.clone();
        let thread = Builder::new().name("output".to_owned());
        thread.spawn(move || {
            forward();
            drop(running);
        })?;
        Ok(())
    }

    /// Waits until everything is written. A process that is none of this run may hold an output open; it is not waited
    /// for.
    pub fn finish(self) {
        drop(self.running);
        // An error is the end of all threads.
        let _ = self.ended.recv_timeout(LAST_OUTPUT);
    }
}

impl LastError {
    /// Keeps the message of a line. A launcher may have put something before it.
    fn note(&self, line: &[u8]) {
        if let Some((_, error)) = String::from_utf8_lossy(line).trim().split_once("error: ") {
            *self.lock() = Some(error.to_owned());
        }
    }

    /// Returns the message.
    pub fn message(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes each line of `from` with a prefix. An output that is closed or full does not stop the run: errors are
/// ignored, and the lines are read on.
fn forward_lines<W: Write>(
    from: impl Read,
    prefix: &str,
    to: impl Fn() -> W,
    mut note: impl FnMut(&[u8]),
) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend(prefix.as_bytes());
        match from.by_ref().take(MAX_PART).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        note(&line[prefix.len()..]);
        // Lines of several ranks stay apart.
        if !prefix.is_empty() && !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        let mut to = to();
        let _ = to.write_all(&line).and_then(|()| to.flush());
    }
}
