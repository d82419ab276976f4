//! Training on CPU ranks, against formulas, finite differences and PyTorch.
//!
//! All are modules of one program, because each program links the whole runtime. `meshes` is another one.

// One rank.
mod attention_reference;
mod functions;
mod gradients;
mod layer_settings;
mod losses_reference;
mod reference;
mod rotary;

// Memory, communication, FLOPs and traces of a run.
mod budget;
mod counting;
mod course_arithmetic;
mod explain;
mod memory;
mod noise_scale;
mod own_gpu_steps;
mod trace;

// Reproducibility, resumption and failures.
mod faults;
mod state;

// The programs of tests themselves.
mod test_files;
