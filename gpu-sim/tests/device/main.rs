//! Tests on a device: the simulated one, or with `MESHWRIGHT_TEST_DEVICE=cuda` a GPU.
//!
//! All are modules of one program, because each program links the whole runtime. `bench/gpu/kit` runs modules by their
//! names.

// Kernels of the backend.
mod bits;
mod conformance;

// Kernels and calls of the backend, compared with the CPU.
mod attention;
mod collectives;
mod combine;
mod cudnn_device;
mod embedding;
mod epilogues;
mod loss;
mod map;
mod norm;
mod rows;

// Whole models, in one process and in several.
mod models;
mod processes;

// Calls of the backend to its driver.
mod autotune;
mod device_calls;
mod profile;
mod workspace;

// The simulated device itself.
mod simulator;

// Benchmarks of GPUs.
mod gpu_tables;

// Shared by the tests above.
mod nccl_stub;
#[allow(dead_code, reason = "also used by the tests of collectives")]
#[path = "../../../runtime/tests/integration/device_collectives/scenario.rs"]
mod scenario;
mod support;
