//! Parser of the assembler's report on each kernel (`--ptxas-options=-v`).

/// Resource usage of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceUsage {
    /// Registers per thread.
    pub registers: u32,
    /// Spilled registers, in bytes stored and loaded.
    pub spilled: u32,
    /// Local memory per thread, in bytes: arrays with indices unknown at compile time.
    pub stack: u32,
    /// Static shared memory per block, in bytes.
    pub shared: u32,
}

/// Returns the kernels of a log, by name.
pub fn kernels(log: &str) -> impl Iterator<Item = (String, ResourceUsage)> {
    let mut kernels: Vec<(String, ResourceUsage)> = Vec::new();
    for line in log.lines() {
        if let Some(name) = entry_name(line) {
            kernels.push((name.to_string(), ResourceUsage::default()));
        }
        // Lines before the first kernel concern the whole source.
        let Some((_, usage)) = kernels.last_mut() else { continue };
        // Functions that a kernel calls have lines of their own after its name.
        usage.stack = usage.stack.max(number_before(line, " bytes stack frame"));
        usage.spilled +=
            number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
        usage.registers = usage.registers.max(number_before(line, " registers"));
        usage.shared = usage.shared.max(number_before(line, " bytes smem"));
    }
    kernels.into_iter()
}

/// Returns the compiler warnings, one line each.
pub fn warnings(log: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(": warning #")).map(str::to_string).collect()
}

/// Returns the name of the kernel whose lines begin here.
fn entry_name(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Compiling entry function '")?;
    Some(rest.split_once('\'')?.0)
}

/// Returns the number before `unit`; 0 if the line has none.
fn number_before(line: &str, unit: &str) -> u32 {
    let Some(end) = line.find(unit) else { return 0 };
    let digits = line[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    line[digits..end].parse().unwrap_or(0)
}
