//! Tokens, and their order in training.

use std::ops::Range;
use std::sync::OnceLock;

use super::documents::RowParts;
use super::fingerprint::Fingerprints;
use super::{
    Batch, DataError, DocumentOptions, Order, Packing, PackingWaste, SamplePosition, Sampler,
    TokenFile,
};

/// Tokens and their order in training.
#[derive(Debug)]
pub struct Dataset {
    file: TokenFile,
    sampler: Sampler,
    documents: Option<DocumentOptions>,
    /// The rows, if they are packed with documents.
    packing: Option<Packing>,
    /// [`Packing::fingerprint`].
    packing_fingerprint: Option<String>,
    /// True if each row is read once, as in an evaluation; otherwise the rows repeat, epoch by epoch.
    is_single_pass: bool,
    /// See [`held_out`](Self::held_out).
    held_out: Option<f64>,
    /// See [`fingerprints`](Self::fingerprints). Hashed once: every checkpoint holds them.
    fingerprints: OnceLock<Fingerprints>,
}

impl Dataset {
    /// Creates a dataset of samples of `seq` tokens from `file`, `batch` of them per step.
    ///
    /// # Errors
    /// A file that is shorter than one sample, `seq + 1` tokens.
    pub fn new(
        file: TokenFile,
        seq: usize,
        batch: usize,
        order: Order,
        seed: u64,
    ) -> Result<Dataset, DataError> {
        match Sampler::new(file.len(), seq, batch, order, seed) {
            Some(sampler) => Ok(Dataset::of_sampler(file, sampler)),
            None => {
                let (name, tokens) = (file.name().to_owned(), file.len());
                Err(DataError::TooShort { name, tokens, seq })
            }
        }
    }

    fn of_sampler(file: TokenFile, sampler: Sampler) -> Dataset {
        Dataset {
            file,
            sampler,
            documents: None,
            packing: None,
            packing_fingerprint: None,
            is_single_pass: false,
            held_out: None,
            fingerprints: OnceLock::new(),
        }
    }

    /// Creates a dataset of samples of `seq` tokens from a `file` of documents, `batch` of them per step. Samples
    /// follow one another in the file, or are packed with whole documents.
    ///
    /// # Errors
    /// As [`new`](Self::new); and a file without the end of a document.
    pub fn of_documents(
        file: TokenFile,
        seq: usize,
        batch: usize,
        order: Order,
        seed: u64,
        options: DocumentOptions,
    ) -> Result<Dataset, DataError> {
        options.check_file(&file)?;
        if !options.packs {
            let dataset = Dataset::new(file, seq, batch, order, seed)?;
            return Ok(Dataset { documents: Some(options), ..dataset });
        }
        let packing = Packing::new(&file, &options, seq)?;
        let sampler = Sampler::of_samples(packing.rows() as u64, seq, batch, order, seed);
        let sampler = sampler.expect("a file with the end of a document has a row");
        Ok(Dataset {
            documents: Some(options),
            packing_fingerprint: Some(packing.fingerprint()),
            packing: Some(packing),
            ..Dataset::of_sampler(file, sampler)
        })
    }

    /// Creates a dataset of an evaluation: its [batches](Self::batches) have each target of `file` exactly once, in
    /// order, as rows of `seq` tokens, or packed if `documents` say so. All have `batch` rows. In the last row of a
    /// file, and the last batch, what the file does not fill is token 0 with ignored targets.
    ///
    /// ```
    /// use meshwright::data::{Batch, Dataset, TokenFile};
    ///
    /// let file = TokenFile::from_text((0..12).collect(), 256, "numbers")?;
    /// let dataset = Dataset::for_evaluation(file, 4, 2, None)?;
    /// assert_eq!(dataset.batches(), 2);
    /// let last = dataset.rows(1, 0..2)?;
    /// const NONE: u32 = Batch::IGNORED;
    /// assert_eq!(last.targets, [9, 10, 11, NONE, NONE, NONE, NONE, NONE]);
    /// # Ok::<_, meshwright::data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`of_documents`](Self::of_documents).
    pub fn for_evaluation(
        file: TokenFile,
        seq: usize,
        batch: usize,
        documents: Option<DocumentOptions>,
    ) -> Result<Dataset, DataError> {
        let order = Order::Sequential;
        let mut dataset = match documents {
            Some(options) => Dataset::of_documents(file, seq, batch, order, 0, options)?,
            None => Dataset::new(file, seq, batch, order, 0)?,
        };
        if dataset.packing.is_none() {
            let samples = (dataset.file.len() - 1).div_ceil(seq) as u64;
            let all = Sampler::of_samples(samples, seq, batch, order, 0);
            dataset.sampler = all.expect("a file of a whole row has one");
        }
        Ok(Dataset { is_single_pass: true, ..dataset })
    }

    /// Returns the epochs after `steps` steps: samples that were trained on, by the samples of the data.
    pub fn epochs_after(&self, steps: u64) -> f64 {
        steps as f64 * self.sampler.batch() as f64 / self.sampler.samples() as f64
    }

    /// Returns the number of batches with which each row is read once.
    pub fn batches(&self) -> u64 {
        self.sampler.samples().div_ceil(self.sampler.batch() as u64)
    }

    /// Returns the dataset as one of data from whose end this fraction is held out for validation: a run that is
    /// resumed holds out the same.
    #[must_use]
    pub fn holding_out(self, fraction: Option<f64>) -> Dataset {
        Dataset { held_out: fraction, ..self }
    }

    /// Returns the fraction of the data that is held out for validation, and not in this dataset.
    pub fn held_out(&self) -> Option<f64> {
        self.held_out
    }

    /// Hashes the data for [`DataPosition`](super::DataPosition), while the file is complete: a run that begins with it
    /// can save its position if the file is cut off later.
    #[doc(hidden)]
    pub fn prepare_position(&self) {
        self.fingerprints();
    }

    /// Returns the hashes of the data.
    pub(super) fn fingerprints(&self) -> &Fingerprints {
        self.fingerprints.get_or_init(|| Fingerprints::new(&self.file))
    }

    /// The rows `rows` of the global batch of `step` (from 0).
    ///
    /// # Errors
    /// A token beyond the vocabulary, and a file that has become shorter.
    pub fn rows(&self, step: u64, rows: Range<usize>) -> Result<Batch, DataError> {
        self.micro_batches(step, &[rows][..])
    }

    /// The rows of the global batch of `step` (from 0) that a rank has of each micro-batch, of
    /// [`rows_of_rank`](super::rows_of_rank).
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn micro_batches(
        &self,
        step: u64,
        micro_batches: &[Range<usize>],
    ) -> Result<Batch, DataError> {
        self.file.check_length()?;
        let seq = self.sampler.seq();
        let n_rows = micro_batches.iter().map(Range::len).sum::<usize>();
        let mut tokens = vec![0; n_rows * seq];
        let mut targets = vec![0; n_rows * seq];
        let mut starts = self.documents.map(|_| vec![0; n_rows * seq]);
        let mut places = Vec::with_capacity(n_rows);
        for (index, row) in micro_batches.iter().cloned().flatten().enumerate() {
            let elements = index * seq..(index + 1) * seq;
            let (tokens, targets) = (&mut tokens[elements.clone()], &mut targets[elements.clone()]);
            let (epoch, _) = self.sampler.sample_at(step, row);
            if self.is_single_pass && epoch > 0 {
                targets.fill(Batch::IGNORED);
                places.push(self.sampler.place(step, row));
                continue;
            }
            let place = match (&self.documents, &mut starts) {
                (Some(documents), Some(starts)) => {
                    let starts = &mut starts[elements];
                    self.read_documents(step, row, documents, RowParts { tokens, targets, starts })
                }
                _ => self.read_row(step, row, tokens, targets),
            };
            places.push(place?);
        }
        let micro_batches = micro_batches.to_vec();
        Ok(Batch { tokens, targets, starts, rows: n_rows, places, micro_batches })
    }

    /// Reads tokens and targets of a row of the global batch of `step`, which follow one another in the file, and
    /// returns its position.
    fn read_row(
        &self,
        step: u64,
        row: usize,
        tokens: &mut [u32],
        targets: &mut [u32],
    ) -> Result<SamplePosition, DataError> {
        let place = self.sampler.place(step, row);
        let held = tokens.len().min(self.file.len() - 1 - place.start);
        self.file.read(place.start, &mut tokens[..held])?;
        self.file.read(place.start + 1, &mut targets[..held])?;
        targets[held..].fill(Batch::IGNORED);
        Ok(place)
    }

    /// Reads tokens and targets of a row of documents, and the start of the document of each token; returns the
    /// position of the row.
    fn read_documents(
        &self,
        step: u64,
        row: usize,
        options: &DocumentOptions,
        parts: RowParts<'_>,
    ) -> Result<SamplePosition, DataError> {
        if let Some(packing) = &self.packing {
            let (epoch, sample) = self.sampler.sample_at(step, row);
            packing.read_row(&self.file, sample as usize, options, parts)?;
            return Ok(SamplePosition { epoch, start: packing.start(sample as usize) });
        }
        let mut parts = parts;
        let place = self.read_row(step, row, parts.tokens, parts.targets)?;
        options.separate(&self.file, place.start, &mut parts);
        Ok(place)
    }

    /// The tokens.
    pub fn file(&self) -> &TokenFile {
        &self.file
    }

    /// The order.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Returns how rows are made of documents; `None` if each row is one document.
    pub fn documents(&self) -> Option<DocumentOptions> {
        self.documents
    }

    /// Returns true if targets are ignored: those across borders, or of padding.
    pub fn ignores_targets(&self) -> bool {
        self.documents.is_some_and(|options| options.packs || options.masks_borders)
    }

    /// Returns the XXH3 of the lengths and the order of the documents that rows are packed with, in hexadecimal; `None`
    /// if rows are not packed.
    pub fn packing_fingerprint(&self) -> Option<&str> {
        self.packing_fingerprint.as_deref()
    }

    /// Returns the padding and the cut documents of all rows; `None` if rows are not packed.
    pub fn packing_waste(&self) -> Option<PackingWaste> {
        self.packing.as_ref().map(Packing::waste)
    }

    /// Returns the fraction of the tokens of the global batch of `step` that hold no document; `None` if rows are not
    /// packed.
    pub fn padding_of_step(&self, step: u64) -> Option<f64> {
        let packing = self.packing.as_ref()?;
        let (batch, seq) = (self.sampler.batch(), self.sampler.seq());
        let padding_of = |row| packing.padding(self.sampler.sample_at(step, row).1 as usize);
        let padding: usize = (0..batch).map(padding_of).sum();
        Some(padding as f64 / (batch * seq) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(packs: bool, order: Order, seed: u64) -> Dataset {
        let text = b"one.two.three.a.bc.def.ghij.klmnopqrst.u.v.w.xyz.".to_vec();
        let file = TokenFile::from_text(text, 256, "words").unwrap();
        let options = DocumentOptions { end: u32::from(b'.'), packs, masks_borders: true };
        Dataset::of_documents(file, 8, 4, order, seed, options).unwrap()
    }

    #[test]
    fn rows_that_follow_one_another_cut_documents() {
        let batch = dataset(false, Order::Sequential, 0).rows(0, 0..2).unwrap();
        let text: Vec<u8> = batch.tokens.iter().map(|id| *id as u8).collect();
        assert_eq!(text, b"one.two.three.a.");
        let starts = [0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 6, 6];
        assert_eq!(batch.starts.as_deref(), Some(&starts[..]));
        let ignored: Vec<usize> =
            (0..16).filter(|index| batch.targets[*index] == Batch::IGNORED).collect();
        assert_eq!(ignored, [3, 7, 13, 15]);
        assert_eq!(batch.targets[..3], batch.tokens[1..4]);
    }

    #[test]
    fn packed_batches_depend_on_step_and_row_only() {
        for order in [Order::Sequential, Order::Shuffled] {
            let [first, second] = [(); 2].map(|()| dataset(true, order, 3));
            let n_rows = first.packing_waste().unwrap().rows;
            for step in (0..3 * n_rows as u64).rev() {
                let whole = second.rows(step, 0..4).unwrap();
                let [low, high] = [0..2, 2..4].map(|rows| first.rows(step, rows).unwrap());
                assert_eq!(
                    [low.tokens, high.tokens].concat(),
                    whole.tokens,
                    "{order}, step {step}"
                );
                assert_eq!([low.targets, high.targets].concat(), whole.targets);
                assert_eq!(
                    [low.starts.unwrap(), high.starts.unwrap()].concat(),
                    whole.starts.unwrap()
                );
            }
            // An epoch has each row once.
            let places =
                (0..n_rows).map(|index| first.rows(0, index..index + 1).unwrap().places[0]);
            let mut starts: Vec<usize> = places.map(|place| place.start).collect();
            starts.sort_unstable();
            starts.dedup();
            assert_eq!(starts.len(), n_rows);
        }
        let order = |seed| {
            let dataset = dataset(true, Order::Shuffled, seed);
            (0..8)
                .map(|index| dataset.rows(0, index..index + 1).unwrap().places[0].start)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn padding_is_counted_by_step() {
        let dataset = dataset(true, Order::Sequential, 0);
        let waste = dataset.packing_waste().unwrap();
        let held = 49;
        assert_eq!((waste.tokens, waste.padding), (8 * waste.rows, 8 * waste.rows - held));
        // As many steps as rows are four epochs.
        let sum: f64 =
            (0..waste.rows as u64).map(|step| dataset.padding_of_step(step).unwrap()).sum();
        assert!((sum / waste.rows as f64 - waste.fraction()).abs() < 1e-12);
    }
}
