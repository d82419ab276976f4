//! Numbers in messages.

/// Formats a count with its noun: `1 thread`, `2 threads`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {}", inflected(noun, count))
}

/// Formats a count that may be large with its noun: `1 token`, `8,917 tokens`.
pub fn counted_with_commas(count: usize, noun: &str) -> String {
    format!("{} {}", with_commas(count as u64), inflected(noun, count))
}

/// Returns the singular or the plural of a noun.
fn inflected(noun: &str, count: usize) -> String {
    let plural = match count {
        1 => "",
        _ if noun.ends_with("ch") || noun.ends_with("ss") => "es",
        _ => "s",
    };
    format!("{noun}{plural}")
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
        let steps = [0, 1, 2000].map(|count| counted(count, "step"));
        assert_eq!(steps, ["0 steps", "1 step", "2000 steps"]);
        let tokens = [1, 8917].map(|count| counted_with_commas(count, "token"));
        assert_eq!(tokens, ["1 token", "8,917 tokens"]);
        assert_eq!(counted(2, "micro-batch"), "2 micro-batches");
    }
}
