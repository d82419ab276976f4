//! Layers of two kinds, in turn.

/// Returns the shortest beginning of `kinds` that all of them repeat, perhaps not to its end.
pub fn period_of(kinds: &[bool]) -> &[bool] {
    let repeats = |len: &usize| kinds.iter().enumerate().all(|(i, kind)| *kind == kinds[i % len]);
    &kinds[..(1..kinds.len()).find(repeats).unwrap_or(kinds.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_the_shortest() {
        let (t, f) = (true, false);
        assert_eq!(period_of(&[t, t, t]), [t]);
        assert_eq!(period_of(&[t, f, t, f, t]), [t, f]);
        assert_eq!(period_of(&[t, t, f, t, t, f, t]), [t, t, f]);
        assert_eq!(period_of(&[t, t, f]), [t, t, f]);
        assert_eq!(period_of(&[f]), [f]);
    }
}
