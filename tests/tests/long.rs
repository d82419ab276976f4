#[path = "../counting/mod.rs"]
mod counting;
#[path = "../memory.rs"]
mod memory;
#[path = "../trace.rs"]
mod trace;
