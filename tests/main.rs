//! Training on CPU ranks, against formulas, finite differences, PyTorch, and other meshes.
//!
//! All are modules of one program, because each program links the whole runtime.

// One rank.
mod attention_reference;
mod functions;
mod gradients;
mod reference;
mod rotary;

// Every mesh against one rank.
mod documents;
mod known_bugs;
mod optim;
mod parity;
mod promise;

// Memory, communication, FLOPs and traces of a run.
mod counting;
mod memory;
mod trace;

// Reproducibility, resumption and failures.
mod faults;
mod state;

// The programs of tests themselves, and scripts.
mod gpu_check;
mod test_files;
