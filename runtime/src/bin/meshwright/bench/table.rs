//! Tables of measurements as text.

/// Aligns the columns of rows: the first `n_left` to the left, the others to the right.
pub fn align(rows: &[Vec<String>], n_left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < n_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Returns a size in binary units if it is a whole number of them: `64 KiB`.
pub fn size_text(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => {
            format!("{} GiB", bytes >> 30)
        }
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => {
            format!("{} MiB", bytes >> 20)
        }
        bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => {
            format!("{} KiB", bytes >> 10)
        }
        bytes => format!("{bytes} B"),
    }
}

/// Returns a duration with a unit: `12.3 us`.
pub fn time_text(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1e-3 => format!("{:.2} us", seconds * 1e6),
        seconds if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}
