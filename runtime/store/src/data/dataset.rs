//! Tokens, and their order in training.

use std::ops::Range;
use std::sync::OnceLock;

use super::documents::RowParts;
use super::fingerprint::Fingerprints;
use super::source::{RowOptions, SourceRows};
use super::{
    Batch, DataError, DataSource, DocumentOptions, Mixture, Order, SamplePosition, Sampler,
    SourceRecord, TokenFile,
};

/// Blocks of 65,536 ids that are hashed to recognize data of several files: all of 134 million ids, and blocks at equal
/// distances of more.
const HASHED_BLOCKS: usize = 2048;

/// Tokens and their order in training.
#[derive(Debug)]
pub struct Dataset {
    pub(super) sources: Vec<Source>,
    pub(super) mixture: Mixture,
    pub(super) seq: usize,
    pub(super) batch: usize,
    order: Order,
    seed: u64,
    documents: Option<DocumentOptions>,
    /// True if each row is read once, as in an evaluation; otherwise the rows repeat, epoch by epoch.
    pub(super) is_single_pass: bool,
    /// True if reads of a file take long, and are prepared.
    pub(super) is_distant: bool,
    /// See [`beginning_at`](Self::beginning_at).
    first_step: u64,
    /// See [`held_out`](Self::held_out).
    held_out: Option<f64>,
    /// See [`fingerprints`](Self::fingerprints). Hashed once: every checkpoint holds them.
    fingerprints: OnceLock<Fingerprints>,
    /// See [`records`](Self::records).
    records: OnceLock<Vec<SourceRecord>>,
}

/// The rows of a source, and their order.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) rows: SourceRows,
    sampler: Sampler,
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
        let options = RowOptions { seq, documents: None, has_short_rows: false };
        Dataset::with_options(vec![DataSource::of_file(file)], options, batch, (order, seed))
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
        let options = RowOptions { seq, documents: Some(options), has_short_rows: false };
        Dataset::with_options(vec![DataSource::of_file(file)], options, batch, (order, seed))
    }

    /// Creates a dataset of samples of `seq` tokens from several sources, mixed by their [weights](Mixture), `batch` of
    /// them per step. Each source repeats in epochs of its own.
    ///
    /// ```
    /// use meshwright::data::{DataSource, Dataset, Order, TokenFile};
    ///
    /// let source = |name: &str, weight, text: &str| {
    ///     let file = TokenFile::from_text(text.repeat(100).into(), 256, name)?;
    ///     Ok::<_, meshwright::data::DataError>(DataSource { weight, ..DataSource::of_file(file) })
    /// };
    /// let sources = vec![source("web", 0.75, "a")?, source("code", 0.25, "b")?];
    /// let dataset = Dataset::of_sources(sources, 4, 2048, (Order::Shuffled, 0), None)?;
    /// let batches = [0, 1].map(|step| dataset.rows(step, 0..2048).unwrap().tokens).concat();
    /// assert_eq!(batches.iter().filter(|token| **token == u32::from(b'b')).count(), 4 * 1024);
    /// # Ok::<_, meshwright::data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// As [`of_documents`](Self::of_documents), of each source, and weights that cannot be mixed.
    pub fn of_sources(
        sources: Vec<DataSource>,
        seq: usize,
        batch: usize,
        (order, seed): (Order, u64),
        documents: Option<DocumentOptions>,
    ) -> Result<Dataset, DataError> {
        let options = RowOptions { seq, documents, has_short_rows: false };
        Dataset::with_options(sources, options, batch, (order, seed))
    }

    /// Creates a dataset of an evaluation: its [batches](Self::batches) have each target of `source` exactly once, in
    /// order, as rows of `seq` tokens, or packed if `documents` say so. All have `batch` rows. In the last row of a
    /// file, and the last batch, what the files do not fill is token 0 with ignored targets.
    ///
    /// ```
    /// use meshwright::data::{Batch, DataSource, Dataset, TokenFile};
    ///
    /// let file = TokenFile::from_text((0..12).collect(), 256, "numbers")?;
    /// let dataset = Dataset::for_evaluation(DataSource::of_file(file), 4, 2, None)?;
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
        source: DataSource,
        seq: usize,
        batch: usize,
        documents: Option<DocumentOptions>,
    ) -> Result<Dataset, DataError> {
        let options = RowOptions { seq, documents, has_short_rows: true };
        Dataset::with_options(vec![source], options, batch, (Order::Sequential, 0))
    }

    fn with_options(
        sources: Vec<DataSource>,
        options: RowOptions,
        batch: usize,
        (order, seed): (Order, u64),
    ) -> Result<Dataset, DataError> {
        let RowOptions { seq, documents, has_short_rows } = options;
        let weights: Vec<(&str, f64)> =
            sources.iter().map(|source| (&*source.name, source.weight)).collect();
        let mixture = Mixture::new(&weights, seed)?;
        let mut first_token = 0;
        let mut own = Vec::with_capacity(sources.len());
        for (index, source) in sources.into_iter().enumerate() {
            let (name, order) = (source.name.clone(), source.order.unwrap_or(order));
            let rows = SourceRows::new(source, first_token, &options)?;
            first_token += rows.tokens();
            // Sources of one length are shuffled differently.
            let seed = seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let sampler = Sampler::of_samples(rows.rows(), seq, batch, order, seed);
            let sampler = sampler.expect("a source has a row");
            own.push(Source { name, rows, sampler });
        }
        let is_distant = own.iter().any(|source| source.rows.files().any(TokenFile::is_distant));
        Ok(Dataset {
            sources: own,
            mixture,
            seq,
            batch,
            order,
            seed,
            documents,
            is_single_pass: has_short_rows,
            is_distant,
            first_step: 0,
            held_out: None,
            fingerprints: OnceLock::new(),
            records: OnceLock::new(),
        })
    }

    /// Returns the dataset as one whose first row is that of `step`: a run that goes on with new data begins with their
    /// first row.
    #[must_use]
    pub fn beginning_at(self, step: u64) -> Dataset {
        Dataset { first_step: step, ..self }
    }

    /// Returns the step whose batch begins with the first row.
    pub fn first_step(&self) -> u64 {
        self.first_step
    }

    /// Returns the index of the source of a row of the global batch of `step` (from 0).
    pub fn source_of_row(&self, step: u64, row: usize) -> usize {
        self.mixture.row_at(self.row_number(step, row)).source
    }

    /// Returns the number of batches with which each row is read once.
    pub fn batches(&self) -> u64 {
        self.rows_of_epoch().div_ceil(self.batch as u64)
    }

    /// Returns the number of rows of all sources.
    pub fn rows_of_epoch(&self) -> u64 {
        self.sources.iter().map(|source| source.rows.rows()).sum()
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

    /// Hashes the data for [`DataPosition`](super::DataPosition), while the files are complete: a run that begins with
    /// them can save its position if one is cut off later.
    #[doc(hidden)]
    pub fn prepare_position(&self) -> Result<(), DataError> {
        match self.only_file() {
            Some(_) => self.fingerprints().map(drop),
            None => self.records().map(drop),
        }
    }

    /// Returns the hashes of the data, if they are one file.
    pub(super) fn fingerprints(&self) -> Result<Option<&Fingerprints>, DataError> {
        let Some(file) = self.only_file() else { return Ok(None) };
        if self.fingerprints.get().is_none() {
            // Another thread may be faster, and has the same ones.
            let _ = self.fingerprints.set(Fingerprints::new(file)?);
        }
        Ok(self.fingerprints.get())
    }

    /// Returns the records of the sources, if they are several, or one of several files.
    pub(super) fn records(&self) -> Result<Option<&[SourceRecord]>, DataError> {
        if self.only_file().is_some() {
            return Ok(None);
        }
        if self.records.get().is_none() {
            let rows = self.mixture.counts().iter();
            let record = |(source, rows): (&Source, &u64)| {
                let blocks = HASHED_BLOCKS / self.sources.len();
                source.rows.record(&source.name, *rows, source.sampler.order(), blocks)
            };
            let records: Result<Vec<_>, _> = self.sources.iter().zip(rows).map(record).collect();
            let _ = self.records.set(records?);
        }
        Ok(self.records.get().map(Vec::as_slice))
    }

    /// Returns the only file of the only source.
    fn only_file(&self) -> Option<&TokenFile> {
        let [source] = &self.sources[..] else { return None };
        source.rows.files().next().filter(|_| source.rows.files().len() == 1)
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
        self.prepare_steps(step..step + 1, micro_batches);
        let n_rows = micro_batches.iter().map(Range::len).sum::<usize>();
        if let Some(streams) = self.streams() {
            return self.task_rows(step, micro_batches, streams);
        }
        let seq = self.seq;
        let mut tokens = vec![0; n_rows * seq];
        let mut targets = vec![0; n_rows * seq];
        let mut starts = self.documents.map(|_| vec![0; n_rows * seq]);
        let mut places = Vec::with_capacity(n_rows);
        for (index, row) in micro_batches.iter().cloned().flatten().enumerate() {
            let elements = index * seq..(index + 1) * seq;
            let parts = RowParts {
                tokens: &mut tokens[elements.clone()],
                targets: &mut targets[elements.clone()],
                starts: starts.as_mut().map_or(&mut [], |starts| &mut starts[elements]),
            };
            places.push(self.read_row(step, row, parts)?);
        }
        let micro_batches = micro_batches.to_vec();
        Ok(Batch { tokens, targets, starts, streams: None, rows: n_rows, places, micro_batches })
    }

    /// Reads a row of the global batch of `step`, and returns its position.
    fn read_row(
        &self,
        step: u64,
        row: usize,
        parts: RowParts<'_>,
    ) -> Result<SamplePosition, DataError> {
        let (source, epoch, sample) = self.sample_at(step, row);
        if self.is_single_pass && epoch > 0 {
            parts.targets.fill(Batch::IGNORED);
            return Ok(SamplePosition { epoch, start: self.seq * sample as usize });
        }
        let start = source.rows.read_row(sample, self.documents.as_ref(), parts)?;
        Ok(SamplePosition { epoch, start })
    }

    /// Returns the source of a row of the global batch of `step`, its epoch, and its row there.
    pub(super) fn sample_at(&self, step: u64, row: usize) -> (&Source, u64, u64) {
        let mixed = self.mixture.row_at(self.row_number(step, row));
        let source = &self.sources[mixed.source];
        let (epoch, sample) = source.sampler.sample_of(mixed.row);
        (source, epoch, sample)
    }

    /// Returns the number of a row of the global batch of `step` among all rows since the first one.
    pub(super) fn row_number(&self, step: u64, row: usize) -> u64 {
        step.saturating_sub(self.first_step).saturating_mul(self.batch as u64) + row as u64
    }

    /// Copies the first tokens of the data, up to a row of them.
    ///
    /// # Errors
    /// As [`rows`](Self::rows).
    pub fn first_tokens(&self, at_most: usize) -> Result<Vec<u32>, DataError> {
        let Some(file) = self.first_file() else {
            if self.streams().is_some() {
                return Ok(Vec::new());
            }
            let (mut tokens, mut targets) = (vec![0; self.seq], vec![0; self.seq]);
            let parts = RowParts { tokens: &mut tokens, targets: &mut targets, starts: &mut [] };
            self.sources[0].rows.read_row(0, None, parts)?;
            tokens.truncate(at_most);
            return Ok(tokens);
        };
        let mut tokens = vec![0; at_most.min(file.len())];
        file.check_length()?;
        file.read(0, &mut tokens)?;
        Ok(tokens)
    }

    /// Returns the first file of the first source, if it has files.
    pub(super) fn first_file(&self) -> Option<&TokenFile> {
        self.sources[0].rows.files().next()
    }

    /// Returns the number of inputs of a sample.
    pub fn seq(&self) -> usize {
        self.seq
    }

    /// Returns the number of samples of a step, over all ranks.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns the order of the samples.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Returns the seed of a shuffled order.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns how rows are made of documents; `None` if each row is one document.
    pub fn documents(&self) -> Option<DocumentOptions> {
        self.documents
    }

    /// Returns true if targets are ignored: those across borders, or of padding.
    pub fn ignores_targets(&self) -> bool {
        self.documents.is_some_and(|options| options.packs || options.masks_borders)
    }

    /// Returns the XXH3 of the lengths and the order of the documents that the rows of the only file are packed with,
    /// in hexadecimal; `None` if rows are not packed.
    pub fn packing_fingerprint(&self) -> Option<&str> {
        self.only_file().and_then(|_| self.sources[0].rows.packing_of_first())
    }
}
