//! Text in columns, and numbers in cells.

use std::ops::Range;

use crate::backend::Bytes;

/// Returns lines whose columns have the width of their longest cell. The cells of `numbers` are aligned to the right.
pub fn aligned<const N: usize>(lines: &[[String; N]], numbers: Range<usize>) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let text_of = |line: &[String; N]| {
        let cells = line.iter().zip(&widths).enumerate().filter(|(_, (_, width))| **width > 0);
        let cells = cells.map(|(column, (cell, width))| {
            if numbers.contains(&column) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(text_of).collect()
}

/// Returns a number of bytes, or a dash for none.
pub fn bytes_text(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { Bytes(bytes as f64).to_string() }
}

/// Returns a number of FLOPs with three digits, such as `1.50 T`, or a dash for none.
pub fn flops_text(flops: f64) -> String {
    if flops == 0.0 {
        return "-".to_owned();
    }
    // The same scale as of bytes, without their unit.
    let text = Bytes(flops).to_string();
    text.trim_end_matches('B').trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flops_have_the_prefix_of_their_size() {
        for (flops, text) in [
            (0.0, "-"),
            (512.0, "512"),
            (6.144e3, "6.14 k"),
            (99.96e9, "100 G"),
            (1.5e18, "1.50 E"),
        ] {
            assert_eq!(flops_text(flops), text);
        }
    }

    #[test]
    fn empty_columns_are_left_out() {
        let lines = [["a", "", "10"], ["bcd", "", "7"]].map(|line| line.map(str::to_owned));
        assert_eq!(aligned(&lines, 2..3), "  a    10\n  bcd   7\n");
    }
}
