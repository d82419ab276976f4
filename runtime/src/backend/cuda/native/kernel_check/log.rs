//! What the assembler prints about each kernel (`--ptxas-options=-v`).

/// What a kernel uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of registers that are stored to memory and loaded again.
    pub spilled: u32,
    /// Bytes of a thread's own memory: arrays whose index is not known when it is compiled.
    pub stack: u32,
    /// Bytes of static shared memory of a block.
    pub shared: u32,
}

/// The kernels that a log tells of, by name.
pub fn kernels(log: &str) -> impl Iterator<Item = (String, Usage)> {
    let mut kernels: Vec<(String, Usage)> = Vec::new();
    for line in log.lines() {
        if let Some(name) = entry(line) {
            kernels.push((name.to_string(), Usage::default()));
        }
        // What stands before the first kernel is about the whole source.
        let Some((_, usage)) = kernels.last_mut() else { continue };
        // Functions that a kernel calls have lines of their own, after its name.
        usage.stack = usage.stack.max(before(line, " bytes stack frame"));
        usage.spilled += before(line, " bytes spill stores") + before(line, " bytes spill loads");
        usage.registers = usage.registers.max(before(line, " registers"));
        usage.shared = usage.shared.max(before(line, " bytes smem"));
    }
    kernels.into_iter()
}

/// The compiler's warnings, a line each.
pub fn warnings(log: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(": warning #")).map(str::to_string).collect()
}

/// The kernel whose lines begin here.
fn entry(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Compiling entry function '")?;
    Some(rest.split_once('\'')?.0)
}

/// The number that stands before `unit`; 0 if the line has none.
fn before(line: &str, unit: &str) -> u32 {
    let Some(end) = line.find(unit) else { return 0 };
    let digits = line[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    line[digits..end].parse().unwrap_or(0)
}
