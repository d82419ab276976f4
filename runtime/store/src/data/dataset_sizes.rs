//! Sizes of a dataset, and the progress through it.

use super::dataset::Source;
use super::mixture::BLOCK_ROWS;
use super::{Dataset, PackingWaste, TokenFile};

/// The size of a source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceSize<'a> {
    /// The name.
    pub name: &'a str,
    /// The fraction of the rows of a run that come from it.
    pub share: f64,
    /// The tokens of its files.
    pub tokens: usize,
    /// The files.
    pub files: usize,
}

impl Dataset {
    /// Returns the sizes of the sources.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = SourceSize<'_>> {
        let sources = self.sources.iter().zip(self.mixture.counts());
        sources.map(|(Source { name, rows, .. }, count)| SourceSize {
            name,
            share: *count as f64 / BLOCK_ROWS as f64,
            tokens: rows.tokens(),
            files: rows.files().len(),
        })
    }

    /// Returns the epochs after `steps` steps: samples that were trained on, by the samples of the data.
    pub fn epochs_after(&self, steps: u64) -> f64 {
        let samples: u64 = self.sources.iter().map(|source| source.rows.rows()).sum();
        self.row_number(steps, 0) as f64 / samples as f64
    }

    /// Returns the epochs of each source after `steps` steps, with its name.
    pub fn source_epochs_after(&self, steps: u64) -> impl Iterator<Item = (&str, f64)> {
        let counts = self.mixture.counts_of(self.row_number(steps, 0));
        let epochs = |source: &Source, count: u64| count as f64 / source.rows.rows() as f64;
        let sources = self.sources.iter().zip(counts);
        sources.map(move |(source, count)| (&*source.name, epochs(source, count)))
    }

    /// Returns the number of tokens of all sources.
    pub fn tokens(&self) -> usize {
        self.sources.iter().map(|source| source.rows.tokens()).sum()
    }

    /// Returns the names of the sources, for messages.
    pub fn name(&self) -> String {
        self.sources().map(|source| source.name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the files that are too short for a row, and are not read.
    pub fn files_without_rows(&self) -> impl Iterator<Item = &TokenFile> {
        self.sources.iter().flat_map(|source| source.rows.files_without_rows())
    }

    /// Returns the padding and the cut documents of all rows; `None` if rows are not packed.
    pub fn packing_waste(&self) -> Option<PackingWaste> {
        self.sources
            .iter()
            .flat_map(|source| source.rows.packing_wastes())
            .reduce(PackingWaste::add)
    }

    /// Returns the fraction of the tokens of the global batch of `step` that hold no document; `None` if rows are not
    /// packed.
    pub fn padding_of_step(&self, step: u64) -> Option<f64> {
        let padding_of = |row| {
            let (source, _, sample) = self.sample_at(step, row);
            source.rows.padding(sample)
        };
        let padding: usize = (0..self.batch).map(padding_of).sum::<Option<usize>>()?;
        Some(padding as f64 / (self.batch * self.seq) as f64)
    }
}
