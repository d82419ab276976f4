//! Terms of the field that the glossary explains, so that a search of the book finds each.

use crate::{read, root};

/// The terms of a course on large-scale training.
const FIELD_TERMS: [&str; 67] = [
    "1F1B",
    "6 N T",
    "activation checkpointing",
    "all-gather",
    "all-reduce",
    "all-to-all",
    "arithmetic intensity",
    "asynchronous training",
    "barrier",
    "broadcast",
    "bubble",
    "bus bandwidth",
    "capacity factor",
    "checkpoint",
    "Chinchilla",
    "collective",
    "context parallelism",
    "critical batch size",
    "CUDA graph",
    "data parallelism",
    "DDP",
    "elastic training",
    "Ethernet",
    "expert parallelism",
    "exposed communication",
    "FSDP",
    "global batch",
    "Gloo",
    "goodput",
    "gradient accumulation",
    "gradient clipping",
    "gradient noise scale",
    "HBM",
    "heartbeat",
    "HFU",
    "HSDP",
    "InfiniBand",
    "linear scaling rule",
    "load-balancing loss",
    "master weights",
    "MFU",
    "micro-batch",
    "mixed precision",
    "MoE",
    "MTBF",
    "NVLink",
    "parameter server",
    "PCIe",
    "pipeline parallelism",
    "point-to-point",
    "process group",
    "RDMA",
    "reduce-scatter",
    "rendezvous",
    "roofline",
    "sequence parallelism",
    "shared memory",
    "stale",
    "straggler",
    "strong scaling",
    "tensor core",
    "tensor parallelism",
    "top-k",
    "virtual stage",
    "warm-up",
    "weak scaling",
    "ZeRO",
];

#[test]
fn terms_of_the_field_are_in_the_glossary() {
    let glossary = read(&root().join("src/glossary.md")).to_lowercase();
    let rows: Vec<&str> = glossary.lines().filter(|line| line.starts_with("| ")).collect();
    for term in FIELD_TERMS {
        let is_found = rows.iter().any(|row| row.contains(&term.to_lowercase()));
        assert!(is_found, "the glossary has no row with `{term}`");
    }
}
