//! The worker threads of one rank, and the partition of operands over them.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Number of elements per thread below which another thread does not pay.
const MIN_ELEMENTS: usize = 16 * 1024;

/// The threads that run the kernels of one rank. One thread needs no pool.
#[derive(Clone)]
pub(super) struct Workers {
    pool: Option<Arc<ThreadPool>>,
    threads: usize,
}

thread_local! {
    /// The pool whose first worker is this thread: a thread can belong to one pool only, for its lifetime.
    static OWN_POOL: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

impl Workers {
    /// The calling thread alone.
    pub const ONE: Workers = Workers { pool: None, threads: 1 };

    /// Creates workers; the first one is the calling thread.
    ///
    /// A second call on a thread with another number of threads creates a pool that does not include the thread.
    pub fn new(threads: usize) -> Result<Workers, rayon::ThreadPoolBuildError> {
        let threads = threads.max(1);
        if threads == 1 {
            return Ok(Workers { pool: None, threads });
        }
        let own = OWN_POOL.with_borrow(Clone::clone);
        let pool = match own {
            Some(pool) if pool.current_num_threads() == threads => pool,
            Some(_) => Arc::new(ThreadPoolBuilder::new().num_threads(threads).build()?),
            None if rayon::current_thread_index().is_some() => {
                Arc::new(ThreadPoolBuilder::new().num_threads(threads).build()?)
            }
            None => {
                let builder = ThreadPoolBuilder::new().num_threads(threads);
                let pool = Arc::new(builder.use_current_thread().build()?);
                OWN_POOL.set(Some(Arc::clone(&pool)));
                pool
            }
        };
        Ok(Workers { pool: Some(pool), threads })
    }

    /// Returns the number of threads, including the caller.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `f` such that rayon's parallel iterators use these workers.
    pub fn install(&self, f: impl FnOnce() + Send) {
        match &self.pool {
            None => f(),
            Some(pool) => pool.install(f),
        }
    }

    /// Runs `f(0)` to `f(tasks - 1)`, each once, in any order.
    pub fn for_each_task(&self, tasks: usize, f: impl Fn(usize) + Send + Sync) {
        if self.pool.is_none() || tasks < 2 {
            (0..tasks).for_each(f);
        } else {
            self.each_in_parallel(tasks, &f);
        }
    }

    /// [`for_each_task`](Self::for_each_task) over the threads. By reference, so that this part is compiled once and
    /// not for each kernel.
    fn each_in_parallel(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        self.install(|| (0..tasks).into_par_iter().with_max_len(1).for_each(f));
    }

    /// Partitions `rows` evenly over the threads if `rows * row_len` elements are enough.
    ///
    /// For kernels whose rows are independent, so that the partition does not affect the result.
    pub fn rows<S: SplitChunks>(
        &self,
        rows: usize,
        row_len: usize,
        data: S,
        f: impl Fn(Range<usize>, S) + Send + Sync,
    ) {
        let parts = self.threads.min(rows * row_len / MIN_ELEMENTS).max(1);
        self.chunks(rows, rows.div_ceil(parts).max(1), data, f);
    }

    /// Partitions `rows` into chunks of `chunk` rows, independent of the number of threads.
    ///
    /// For kernels that sum over rows: with one partial sum per chunk, the result does not depend on the number of
    /// threads.
    pub fn chunks<S: SplitChunks>(
        &self,
        rows: usize,
        chunk: usize,
        mut data: S,
        f: impl Fn(Range<usize>, S) + Send + Sync,
    ) {
        if self.pool.is_none() || rows <= chunk {
            let mut start = 0;
            while start < rows {
                let range = start..rows.min(start + chunk);
                let (head, rest) = data.split_rows(range.len());
                start = range.end;
                f(range, head);
                data = rest;
            }
            return;
        }
        let parts = RowChunks::new(rows, chunk, data);
        self.each_in_parallel(parts.0.len(), &|index| {
            let (range, part) = parts.take(index);
            f(range, part);
        });
    }
}

/// Chunks of rows; one thread takes each.
struct RowChunks<S>(Vec<Mutex<Option<RowChunk<S>>>>);

/// The rows of a chunk, and its operands.
type RowChunk<S> = (Range<usize>, S);

impl<S: SplitChunks> RowChunks<S> {
    fn new(rows: usize, chunk: usize, mut data: S) -> RowChunks<S> {
        let mut parts = Vec::with_capacity(rows.div_ceil(chunk));
        for start in (0..rows).step_by(chunk) {
            let range = start..rows.min(start + chunk);
            let (head, rest) = data.split_rows(range.len());
            parts.push(Mutex::new(Some((range, head))));
            data = rest;
        }
        RowChunks(parts)
    }

    fn take(&self, index: usize) -> RowChunk<S> {
        let part = self.0[index].lock().expect("nothing panics while it holds the lock").take();
        part.expect("each part is taken once")
    }
}

/// Exclusive operands that can be split after a number of rows.
pub(super) trait SplitChunks: Send + Sized {
    /// Returns the first `rows` rows, and the rest.
    fn split_rows(self, rows: usize) -> (Self, Self);
}

/// A slice in rows of a fixed length; the last row may be shorter.
pub(super) struct Rows<'a, T>(pub &'a mut [T], pub usize);

impl<T: Send> SplitChunks for Rows<'_, T> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let Rows(slice, len) = self;
        let (head, rest) = slice.split_at_mut((rows * len).min(slice.len()));
        (Rows(head, len), Rows(rest, len))
    }
}

impl<S: SplitChunks> SplitChunks for Option<S> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        self.map(|part| part.split_rows(rows)).unzip()
    }
}

impl<S: SplitChunks> SplitChunks for Vec<S> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        self.into_iter().map(|part| part.split_rows(rows)).unzip()
    }
}

impl<A: SplitChunks, B: SplitChunks> SplitChunks for (A, B) {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let (a, b) = (self.0.split_rows(rows), self.1.split_rows(rows));
        ((a.0, b.0), (a.1, b.1))
    }
}

impl<A: SplitChunks, B: SplitChunks, C: SplitChunks> SplitChunks for (A, B, C) {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let (a, b) = (self.0.split_rows(rows), self.1.split_rows(rows));
        let c = self.2.split_rows(rows);
        ((a.0, b.0, c.0), (a.1, b.1, c.1))
    }
}
