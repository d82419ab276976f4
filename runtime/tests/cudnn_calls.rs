//! Calls of cuDNN by fused attention: plans and their arguments, streams, resources, and failures. The library is a
//! stub that logs its calls and computes nothing.
#![cfg(feature = "cuda")]

#[path = "support/stub.rs"]
mod stub;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use meshwright::backend::{Band, SequenceLayout};
use meshwright_cuda::FusedShape;
use meshwright_cuda::cudnn::{
    AttentionPass, CudnnAttention, CudnnAttentionSizes, CudnnHost, CudnnOptions, GraphOperand,
    GraphScalar, ScratchLimit,
};
use meshwright_cuda::native::LibrarySearch;
use meshwright_cuda::{AttentionGradients, AttentionOperands, DriverError, FusedAttention, Stream};

const CAPABILITY: (u32, u32) = (9, 0);

/// Memory of a nonexistent device.
#[derive(Debug, Default)]
struct Memory {
    live: Mutex<BTreeMap<u64, usize>>,
    free_memory: AtomicUsize,
}

impl CudnnHost for Memory {
    fn make_current(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn raw_stream(&self, stream: Stream) -> Result<*mut c_void, DriverError> {
        Ok((0x100 + stream.0) as *mut c_void)
    }

    fn free_memory(&self) -> Result<usize, DriverError> {
        Ok(self.free_memory.load(Ordering::Relaxed))
    }

    fn alloc(&self, _: Stream, bytes: usize) -> Result<u64, DriverError> {
        let mut live = self.live.lock().expect("nothing panics");
        let last = live.last_key_value();
        let address = last.map_or(1 << 30, |(address, bytes)| address + *bytes as u64);
        live.insert(address, bytes);
        Ok(address)
    }

    unsafe fn free(&self, _: Stream, address: u64, bytes: usize) -> Result<(), DriverError> {
        let mut live = self.live.lock().expect("nothing panics");
        assert_eq!(live.remove(&address), Some(bytes));
        Ok(())
    }
}

/// Free memory of a rank without a memory limit.
const ROOM: usize = usize::MAX;

fn shape(seq: usize, head_dim: usize) -> FusedShape {
    square(2, seq, [4, 2], head_dim)
}

fn square(batch: usize, seq: usize, [heads, kv_heads]: [usize; 2], head_dim: usize) -> FusedShape {
    FusedShape {
        batch,
        queries: seq,
        keys: SequenceLayout::dense(seq),
        heads,
        kv_heads,
        head_dim,
        value_dim: head_dim,
        scale: 0.125,
        band: Band::CAUSAL,
    }
}

/// Calls a function of the stub without parameters.
fn ask<T>(name: &CStr) -> T {
    // SAFETY: the stub is loaded permanently and has these functions with these result types.
    unsafe {
        let function = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        assert!(!function.is_null(), "{name:?}");
        std::mem::transmute::<*mut c_void, extern "C" fn() -> T>(function)()
    }
}

fn live() -> c_int {
    ask(c"fake_live")
}

fn plans() -> usize {
    ask(c"fake_plans")
}

/// Returns the logged executions, in order.
fn lines() -> Vec<String> {
    let text: *const c_char = ask(c"fake_log");
    // SAFETY: a string of the stub, which is not extended meanwhile.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().lines().map(String::from).collect()
}

fn attention(memory: &Arc<Memory>, options: CudnnOptions) -> CudnnAttention {
    let host = Arc::clone(memory) as Arc<dyn CudnnHost>;
    CudnnAttention::new(host, CAPABILITY, options).expect("the library is loaded")
}

const OPERANDS: AttentionOperands = AttentionOperands { q: 16, k: 32, v: 48, out: 64, lse: 80 };
const GRADIENTS: AttentionGradients = AttentionGradients { dout: 96, dq: 112, dk: 128, dv: 144 };

fn forward(attention: &CudnnAttention, stream: u64, s: &FusedShape) -> Result<(), DriverError> {
    // SAFETY: nothing is read or written.
    unsafe { attention.forward(Stream(stream), s, &OPERANDS) }
}

fn backward(attention: &CudnnAttention, stream: u64, s: &FusedShape) -> Result<(), DriverError> {
    // SAFETY: nothing is read or written.
    unsafe { attention.backward(Stream(stream), s, &OPERANDS, &GRADIENTS) }
}

fn address(operand: GraphOperand, scratch: u64, dq_sum: u64) -> u64 {
    match operand {
        GraphOperand::Q => 16,
        GraphOperand::K => 32,
        GraphOperand::V => 48,
        GraphOperand::Out => 64,
        GraphOperand::Lse => 80,
        GraphOperand::DOut => 96,
        GraphOperand::DQ => 112,
        GraphOperand::DK => 128,
        GraphOperand::DV => 144,
        // After the workspace of 1000 bytes.
        GraphOperand::RowSum => scratch + 1024,
        GraphOperand::DQSum => dq_sum,
    }
}

/// Checks that a log line is the execution of `pass` on `stream` with scratch memory at `scratch`.
fn assert_executed(line: &str, pass: AttentionPass, s: &FusedShape, stream: u64, scratch: u64) {
    let mut words: Vec<_> = line.split(' ').collect();
    let tensors = words.split_off(4);
    assert_eq!(
        words,
        ["stream", &format!("{}", 0x100 + stream), "workspace", &scratch.to_string()]
    );
    let row_sums = (4 * s.batch * s.heads * s.queries).next_multiple_of(256) as u64;
    let graph = pass.graph(CudnnAttentionSizes::from(s));
    let mut expected = Vec::new();
    for (id, operand) in graph.operands() {
        let at = address(operand, scratch, scratch + 1024 + row_sums);
        expected.push(format!("{}@{at}", id.uid()));
    }
    for (id, scalar) in graph.scalars() {
        let value = match scalar {
            GraphScalar::Scale => "0.125",
            GraphScalar::Masked => "-inf",
            GraphScalar::One => "1",
            GraphScalar::RightBound | GraphScalar::LeftBound => {
                panic!("a bound of causal attention")
            }
        };
        expected.push(format!("{}={value}", id.uid()));
    }
    expected.sort();
    let mut tensors: Vec<_> = tensors.into_iter().map(String::from).collect();
    tensors.sort();
    assert_eq!(tensors, expected);
}

/// A single test, since the stub's counters are global.
#[test]
fn calls_are_those_that_the_graphs_need() {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::remove_var(LibrarySearch::VARIABLE) };
    // The loader now uses the stub for this name, also if cuDNN is installed.
    stub::load("cudnn/library.c", "libcudnn.so.9").expect("a C compiler");
    let memory = Arc::new(Memory::default());
    let live_blocks = || memory.live.lock().expect("nothing panics").len();

    let exact = attention(&memory, CudnnOptions::default());
    let s = shape(48, 64);
    executes_with_what_it_is_given(&exact, &s);
    keeps_plans_for_all_threads(&exact, &s);
    reports_failures(&exact);
    assert!(live() > 0 && live_blocks() == 3, "a block for each of three streams");
    let before = live();
    exact.free_stream(Stream(2)).expect("nothing fails");
    assert_eq!((live(), live_blocks()), (before - 1, 2), "the handle and the block of the stream");
    forward(&exact, 2, &s).expect("a stream may be used again");
    drop(exact);
    assert_eq!((live(), live_blocks()), (0, 0), "everything was freed");

    let atomic =
        attention(&memory, CudnnOptions { deterministic: false, ..CudnnOptions::default() });
    assert!(atomic.supports_backward(&shape(48, 56), ROOM), "atomics are allowed");
    backward(&atomic, 9, &s).expect("a plan");
    let pass = AttentionPass::Backward { deterministic: false };
    assert_executed(lines().last().expect("a line"), pass, &s, 9, 1 << 30);
    drop(atomic);

    let scratch = ScratchLimit { least: 4096, most: 4096, ranks: 1 };
    let small = attention(&memory, CudnnOptions { scratch, ..CudnnOptions::default() });
    assert!(small.supports(&s) && small.supports_backward(&s, ROOM));
    computes_large_batches_in_parts(&small, &s);
    let why =
        small.refusal_reason(&shape(1024, 64), small.backward_pass(), ROOM).expect("too much");
    assert!(why.contains("bytes of scratch") && why.contains("the limit is 4096"), "{why}");
    drop(small);
    assert_eq!((live(), live_blocks()), (0, 0), "everything was freed");

    parts_depend_on_what_is_unused(&memory);
    assert_eq!((live(), live_blocks()), (0, 0), "everything was freed");
}

/// The deterministic backward of four samples of 4096 positions and 32 heads needs 4.4 GB in one call.
fn parts_depend_on_what_is_unused(memory: &Arc<Memory>) {
    const GIB: usize = 1 << 30;
    let shape = |batch| square(batch, 4096, [32, 8], 64);
    // Samples per call, given the free device memory and the rank's remaining memory limit.
    for (ranks, free_memory, free_bytes, samples) in [
        // A quarter of the free memory; 8 GiB are enough.
        (1, 120 * GIB, ROOM, 4),
        (1, 20 * GIB, ROOM, 4),
        (1, 12 * GIB, ROOM, 2),
        // At least 2 GiB.
        (1, 3 * GIB, ROOM, 1),
        (1, 120 * GIB, 12 * GIB, 2),
        (1, 120 * GIB, 0, 1),
        // Four ranks on one device.
        (4, 120 * GIB, ROOM, 4),
        (4, 48 * GIB, ROOM, 2),
    ] {
        memory.free_memory.store(free_memory, Ordering::Relaxed);
        let scratch = ScratchLimit { ranks, ..ScratchLimit::default() };
        let roomy = attention(memory, CudnnOptions { scratch, ..CudnnOptions::default() });
        let pass = roomy.backward_pass();
        assert_eq!(roomy.samples(&shape(4), pass), None, "the shape is unused");
        assert!(roomy.supports_backward(&shape(4), free_bytes));
        assert_eq!(
            roomy.samples(&shape(4), pass),
            Some(samples),
            "{ranks} {free_memory} {free_bytes}"
        );
        let before = lines().len();
        backward(&roomy, 1, &shape(4)).expect("a plan");
        assert_eq!(lines().len() - before, 4 / samples);
        // A later change of the free memory has no effect, and other shapes reuse the scratch memory.
        memory.free_memory.store(0, Ordering::Relaxed);
        backward(&roomy, 1, &shape(4)).expect("a plan");
        assert!(roomy.supports_backward(&shape(samples), free_bytes));
        assert_eq!(roomy.samples(&shape(samples), pass), Some(samples));
        let scratch: usize = memory.live.lock().expect("nothing panics").values().sum();
        let scores = 2 * samples * 32 * 4096 * 4096;
        assert!((scores..scores + scores / 16).contains(&scratch), "{scratch} for {samples}");
    }
    // At most 8 GiB.
    memory.free_memory.store(1000 * GIB, Ordering::Relaxed);
    let most = attention(memory, CudnnOptions::default());
    assert!(most.supports_backward(&shape(8), ROOM));
    assert_eq!(most.samples(&shape(8), most.backward_pass()), Some(4));
}

fn executes_with_what_it_is_given(exact: &CudnnAttention, s: &FusedShape) {
    assert!(exact.supports(s) && exact.supports_backward(s, ROOM));
    forward(exact, 1, s).expect("a plan");
    backward(exact, 1, s).expect("a plan");
    forward(exact, 2, s).expect("a plan");
    let lines = lines();
    let [first, second, third] = &lines[..] else { panic!("three executions: {lines:?}") };
    // Streams do not share scratch memory; a block is 2 MiB.
    assert_executed(first, AttentionPass::Forward, s, 1, 1 << 30);
    assert_executed(second, exact.backward_pass(), s, 1, 1 << 30);
    assert_executed(third, AttentionPass::Forward, s, 2, (1 << 30) + (2 << 20));
}

/// Six samples, and three fit: the plan of three runs twice, at an offset in all operands except scratch.
fn computes_large_batches_in_parts(small: &CudnnAttention, s: &FusedShape) {
    let part = FusedShape { batch: 3, ..*s };
    let whole = FusedShape { batch: 6, ..*s };
    assert!(small.supports_backward(&whole, ROOM));
    let before = lines().len();
    backward(small, 1, &whole).expect("a plan");
    let executed = lines().split_off(before);
    let row = (2 * part.head_dim) as u64;
    let of_queries = part.batch as u64 * (part.queries * part.heads) as u64 * row;
    let of_keys = part.batch as u64 * (part.keys.len * part.kv_heads) as u64 * row;
    let graph = small.backward_pass().graph(CudnnAttentionSizes::from(&part));
    assert_eq!(executed.len(), 2, "{executed:?}");
    for (nth, line) in (0..).zip(&executed) {
        for (id, operand) in graph.operands() {
            let further = match operand {
                GraphOperand::RowSum => 0,
                GraphOperand::K | GraphOperand::V | GraphOperand::DK | GraphOperand::DV => of_keys,
                GraphOperand::Lse => 4 * (part.batch * part.heads * part.queries) as u64,
                _ => of_queries,
            };
            let at = address(operand, 1 << 30, 0) + nth * further;
            let word = format!(" {}@{at}", id.uid());
            assert!(format!("{line} ").contains(&format!("{word} ")), "{word} in {line}");
        }
    }
}

fn keeps_plans_for_all_threads(exact: &CudnnAttention, s: &FusedShape) {
    assert_eq!(plans(), 2, "one for each pass");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let longer = shape(96, 64);
                let other_scale = FusedShape { scale: 0.5, ..*s };
                forward(exact, 1 + thread % 3, &longer).expect("a plan");
                forward(exact, 1 + thread % 3, &other_scale).expect("a plan");
            });
        }
    });
    assert_eq!(plans(), 3, "one more for another length, none for another scale");
    assert_eq!(lines().len(), 3 + 16);
    assert_eq!(lines().iter().filter(|line| line.contains("=0.5")).count(), 8);
}

fn reports_failures(exact: &CudnnAttention) {
    let (no_engine, fails, not_deterministic) = (shape(48, 24), shape(48, 40), shape(48, 56));
    assert!(!exact.supports(&no_engine) && !exact.supports_backward(&no_engine, ROOM));
    let why = exact.refusal_reason(&no_engine, AttentionPass::Forward, ROOM).expect("no engine");
    for part in ["cuDNN 9.19 has no engine", "head_dim 24", "such heads are not supported"] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(forward(exact, 1, &no_engine), Err(DriverError::Library(why)));

    let why =
        exact.refusal_reason(&not_deterministic, exact.backward_pass(), ROOM).expect("no engine");
    assert!(why.contains("an engine is not deterministic"), "{why}");

    // A failure after a shape was reported as supported is an error, without a fallback.
    assert!(exact.supports(&fails));
    let error = forward(exact, 1, &fails).expect_err("it fails").to_string();
    let parts =
        ["cudnnBackendExecute", "CUDNN_STATUS_EXECUTION_FAILED", "the kernel did not start"];
    for part in parts {
        assert!(error.contains(part), "{error}");
    }

    let s = shape(48, 64);
    let operands = AttentionOperands { k: 34, ..OPERANDS };
    // SAFETY: nothing is read or written.
    let unaligned = unsafe { exact.forward(Stream(1), &s, &operands) };
    let error = unaligned.expect_err("an address between elements").to_string();
    assert!(error.contains("aligned to 16 bytes; K is at 0x22"), "{error}");
}
