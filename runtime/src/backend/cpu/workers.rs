//! The threads of one rank, and how rows of an operand are dealt out to them.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Elements below which another thread costs more than it brings.
const MIN_ELEMENTS: usize = 16 * 1024;

/// The threads that the kernels of one rank run on. One thread needs no pool at all.
#[derive(Clone)]
pub(super) struct Workers {
    pool: Option<Arc<ThreadPool>>,
    threads: usize,
}

thread_local! {
    /// The pool that has this thread as its first worker: a thread can belong to one pool only, for life.
    static OWN_POOL: RefCell<Option<Arc<ThreadPool>>> = const { RefCell::new(None) };
}

impl Workers {
    /// The calling thread alone.
    pub const ONE: Workers = Workers { pool: None, threads: 1 };

    /// Workers of the calling thread, which is the first of them.
    ///
    /// A thread that asks again for another number of threads gets a pool beside it.
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

    /// Number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `f` where rayon's parallel iterators use these workers.
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            None => f(),
            Some(pool) => pool.install(f),
        }
    }

    /// Runs `f(0)` to `f(tasks - 1)`, each once, in any order.
    pub fn each(&self, tasks: usize, f: impl Fn(usize) + Send + Sync) {
        if self.pool.is_none() || tasks < 2 {
            (0..tasks).for_each(f);
        } else {
            self.install(|| (0..tasks).into_par_iter().with_max_len(1).for_each(f));
        }
    }

    /// Cuts `rows` evenly over the threads, if `rows * row_len` elements are worth it.
    ///
    /// For kernels whose rows do not depend on each other, so that the cut cannot be seen in the result.
    pub fn rows<S: Split>(
        &self,
        rows: usize,
        row_len: usize,
        data: S,
        f: impl Fn(Range<usize>, S) + Send + Sync,
    ) {
        let parts = self.threads.min(rows * row_len / MIN_ELEMENTS).max(1);
        self.chunks(rows, rows.div_ceil(parts).max(1), data, f);
    }

    /// Cuts `rows` into chunks of `chunk` rows, whatever the number of threads.
    ///
    /// For kernels that sum over rows: with one partial sum per chunk, the result is the same on any number.
    pub fn chunks<S: Split>(
        &self,
        rows: usize,
        chunk: usize,
        mut data: S,
        f: impl Fn(Range<usize>, S) + Send + Sync,
    ) {
        let ranges = (0..rows).step_by(chunk).map(|start| start..rows.min(start + chunk));
        if self.pool.is_none() || rows <= chunk {
            for range in ranges {
                let (head, rest) = data.split_rows(range.len());
                f(range, head);
                data = rest;
            }
            return;
        }
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let (head, rest) = data.split_rows(range.len());
            parts.push((range, head));
            data = rest;
        }
        self.install(|| {
            parts.into_par_iter().with_max_len(1).for_each(|(range, part)| f(range, part))
        });
    }
}

/// Exclusive operands that can be cut after a number of rows.
pub(super) trait Split: Send + Sized {
    /// The first `rows` rows, and the rest.
    fn split_rows(self, rows: usize) -> (Self, Self);
}

/// A slice in rows of a fixed length; the last row may be shorter.
pub(super) struct Rows<'a, T>(pub &'a mut [T], pub usize);

impl<T: Send> Split for Rows<'_, T> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let Rows(slice, len) = self;
        let (head, rest) = slice.split_at_mut((rows * len).min(slice.len()));
        (Rows(head, len), Rows(rest, len))
    }
}

impl<S: Split> Split for Option<S> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        self.map(|part| part.split_rows(rows)).unzip()
    }
}

impl<S: Split> Split for Vec<S> {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        self.into_iter().map(|part| part.split_rows(rows)).unzip()
    }
}

impl<A: Split, B: Split> Split for (A, B) {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let (a, b) = (self.0.split_rows(rows), self.1.split_rows(rows));
        ((a.0, b.0), (a.1, b.1))
    }
}

impl<A: Split, B: Split, C: Split> Split for (A, B, C) {
    fn split_rows(self, rows: usize) -> (Self, Self) {
        let (a, b) = (self.0.split_rows(rows), self.1.split_rows(rows));
        let c = self.2.split_rows(rows);
        ((a.0, b.0, c.0), (a.1, b.1, c.1))
    }
}
