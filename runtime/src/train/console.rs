//! Text for the terminal: lines on stderr, counts and large numbers.

use std::io::Write;

/// Prints a line to stderr. A closed or full stderr does not stop a run: errors are ignored.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Formats a count with its noun: `1 thread`, `2 threads`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Formats a number with thousands separators: `1,234,567`.
pub fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let numbers = [0, 999, 1000, 1234567].map(with_commas);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2].map(|count| counted(count, "step")), ["1 step", "2 steps"]);
    }
}
