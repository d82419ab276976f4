//! Progress of a run through its data, kept in checkpoints.

use serde::{Deserialize, Serialize};

use super::source_record::{counted_files, first_difference};
use super::{DataError, Dataset, DocumentOptions, Order, SourceRecord, TokenizerRecord};

/// The position in the data, and all settings that the next samples follow from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataPosition {
    /// Samples that were trained on.
    pub samples: u64,
    /// The file, or the names of several sources, for the record; files may move.
    pub file: String,
    /// Length of the data.
    pub tokens: usize,
    /// XXH3 of the data's first mebibyte, in hexadecimal; empty for several files, which are recorded in `sources`.
    pub fingerprint: String,
    /// XXH3 of blocks of all of the data, in hexadecimal; `None` in checkpoints that were saved without it.
    #[serde(default)]
    pub blocks: Option<String>,
    /// The same hashes of the ids, whatever their width in the file, which replace hashes of bytes; `None` in
    /// checkpoints that were saved without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<[String; 2]>,
    /// The tokenizer of a text; `None` for token ids, and in checkpoints that were saved without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<TokenizerRecord>,
    /// Tokens of a sample.
    pub seq: usize,
    /// Samples of a step.
    pub batch: usize,
    /// Order of the samples.
    pub order: Order,
    /// Seed of a shuffled order.
    pub seed: u64,
    /// Packing of documents into rows; `None` if each row is one document.
    #[serde(default)]
    pub documents: Option<DocumentOptions>,
    /// XXH3 of the lengths and the order of the documents that rows are packed with, in hexadecimal; `None` if rows are
    /// not packed, and in checkpoints that were saved without it.
    #[serde(default)]
    pub packing: Option<String>,
    /// The fraction of the data that is held out for validation, `--eval-fraction`.
    #[serde(default, rename = "eval-fraction", skip_serializing_if = "Option::is_none")]
    pub held_out: Option<f64>,
    /// The sources, if they are several, or one of several files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<SourceRecord>>,
    /// The step that began with the first row of the data, if it is not the first one: `--new-data`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_step: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The end of messages about other data.
const ADVICE: &str = "use the data of the saved run, or begin with these by --new-data";

impl DataPosition {
    /// Returns the position in `dataset` after `steps` steps.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn after(steps: u64, dataset: &Dataset) -> Result<DataPosition, DataError> {
        let fingerprints = dataset.fingerprints()?;
        let steps = steps.saturating_sub(dataset.first_step());
        Ok(DataPosition {
            samples: steps.saturating_mul(dataset.batch() as u64),
            file: dataset.name(),
            tokens: dataset.tokens(),
            fingerprint: fingerprints.map(|own| own.start.clone()).unwrap_or_default(),
            blocks: fingerprints.map(|own| own.blocks.clone()),
            ids: fingerprints.map(|own| own.ids.clone()),
            tokenizer: dataset.first_file().and_then(|file| file.tokenizer().cloned()),
            seq: dataset.seq(),
            batch: dataset.batch(),
            order: dataset.order(),
            seed: dataset.seed(),
            documents: dataset.documents(),
            packing: dataset.packing_fingerprint().map(str::to_owned),
            held_out: dataset.held_out(),
            sources: dataset.records()?.map(<[_]>::to_vec),
            first_step: dataset.first_step(),
        })
    }

    /// Describes the data of `now`, if a run that was saved here would not continue with the same ones.
    pub fn other_data(&self, now: &DataPosition) -> Option<String> {
        let other_tokenizer = self.other_tokenizer(now);
        if self.sources.is_some() || now.sources.is_some() {
            return other_tokenizer.or_else(|| self.other_sources(now));
        }
        // A text that another tokenizer reads is another one, even if these ids are the same.
        let of_ids = self.ids.is_some() && now.ids.is_some() && other_tokenizer.is_none();
        let hashes = |of: &'_ DataPosition| match &of.ids {
            Some([start, blocks]) if of_ids => (start.clone(), Some(blocks.clone())),
            _ => (of.fingerprint.clone(), of.blocks.clone()),
        };
        let differ = |saved: Option<&String>, now: Option<&String>| {
            saved.zip(now).is_some_and(|(saved, now)| saved != now)
        };
        let [(saved_start, saved_blocks), (start, blocks)] = [self, now].map(hashes);
        let has_same_start = (self.tokens, saved_start) == (now.tokens, start);
        // Other options of documents have other rows, and are compared as settings.
        let is_packed_alike = (self.seq, &self.documents) == (now.seq, &now.documents);
        if has_same_start && is_packed_alike && differ(self.packing.as_ref(), now.packing.as_ref())
        {
            return Some(format!(
                "--data: the documents of {} begin at other positions than in the saved run, so its packed rows \
                 differ; {ADVICE}",
                self.file
            ));
        }
        if has_same_start && !differ(saved_blocks.as_ref(), blocks.as_ref()) {
            return None;
        }
        Some(other_tokenizer.unwrap_or_else(|| {
            format!(
                "--data: {} with {} tokens differs from the data of the checkpoint, {} with {} tokens; {ADVICE}",
                now.file, now.tokens, self.file, self.tokens
            )
        }))
    }

    /// Describes the first source of `now` that differs, if there is one.
    fn other_sources(&self, now: &DataPosition) -> Option<String> {
        let difference = match (&self.sources, &now.sources) {
            (Some(saved), Some(now)) => first_difference(saved, now)?,
            _ => {
                let files = |of: &DataPosition| match &of.sources {
                    Some(sources) => {
                        counted_files(sources.iter().map(|source| source.files.len()).sum())
                    }
                    None => "1 file".to_owned(),
                };
                format!(
                    "{} ({}) differs from the data of the checkpoint, {} ({})",
                    now.file,
                    files(now),
                    self.file,
                    files(self)
                )
            }
        };
        Some(format!("--data: {difference}; {ADVICE}"))
    }

    /// Describes the tokenizer of `now`, if it is another one: then the tokens of the same text differ.
    pub fn other_tokenizer(&self, now: &DataPosition) -> Option<String> {
        let (saved, now_used) = (self.tokenizer.as_ref()?, now.tokenizer.as_ref()?);
        if saved.is_same(now_used) {
            return None;
        }
        Some(format!(
            "--tokenizer: {now_used} with {} tokens of {}, but {saved} with {} tokens of {} was saved; use the \
             tokenizer of the saved run",
            now.tokens, now.file, self.tokens, self.file
        ))
    }
}

#[cfg(any(test, feature = "faults"))]
impl DataPosition {
    /// Returns a position in a text of 100 tokens that does not exist, for tests of checkpoints.
    #[doc(hidden)]
    pub fn without_data(samples: u64, seed: u64) -> DataPosition {
        DataPosition {
            samples,
            file: "text".into(),
            tokens: 100,
            fingerprint: "00".into(),
            blocks: None,
            ids: None,
            tokenizer: None,
            seq: 8,
            batch: 4,
            order: Order::Shuffled,
            seed,
            documents: None,
            packing: None,
            held_out: None,
            sources: None,
            first_step: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fingerprint::{BLOCK_BYTES, MOST_BLOCKS, START_BYTES, hash_blocks};
    use super::*;
    use crate::data::{Encoding, Ids, TokenFile};

    fn position(text: &[u8], seq: usize, batch: usize, seed: u64) -> DataPosition {
        let file = TokenFile::from_text(text.to_vec(), 256, "text").unwrap();
        let dataset = Dataset::new(file, seq, batch, Order::Shuffled, seed).unwrap();
        DataPosition::after(3, &dataset).unwrap()
    }

    #[test]
    fn positions_need_the_same_data() {
        let saved = position(b"twelve bytes", 2, 4, 1);
        assert_eq!(saved.samples, 12);
        let json = serde_json::to_string(&saved).unwrap();
        assert_eq!(serde_json::from_str::<DataPosition>(&json).unwrap(), saved);
        assert_eq!(saved.other_data(&position(b"twelve bytes", 2, 4, 1)), None);
        let text = saved.other_data(&position(b"Twelve bytes", 3, 5, 2)).unwrap();
        let expected = "--data: text with 12 tokens differs from the data of the checkpoint";
        assert!(text.starts_with(expected), "{text}");
    }

    fn hashed(bytes: &[u8]) -> u64 {
        hash_blocks::<DataError>(bytes.len(), |block| Ok(bytes[block].into())).unwrap()
    }

    /// A change anywhere in a file of up to 64 MiB, and at the end of any file.
    #[test]
    fn positions_need_the_same_data_everywhere() {
        let text = vec![b'x'; 5 * BLOCK_BYTES + 77];
        let saved = position(&text, 2, 4, 1);
        for changed in [START_BYTES, START_BYTES + BLOCK_BYTES / 2, text.len() - 1] {
            let mut other = text.clone();
            other[changed] = b'y';
            let message = saved.other_data(&position(&other, 2, 4, 1)).unwrap();
            assert!(message.contains("differs from the data of the checkpoint"), "{message}");
        }
        // Checkpoints that were saved without these hashes.
        let mut other = text;
        other[START_BYTES] = b'y';
        let older = DataPosition { blocks: None, ids: None, ..saved };
        assert_eq!(older.other_data(&position(&other, 2, 4, 1)), None);

        let mut long = vec![0; (MOST_BLOCKS + 10) * BLOCK_BYTES];
        let all = hashed(&long);
        let end = long.len() - 1;
        long[end] = 1;
        assert_ne!(hashed(&long), all);
    }

    /// The same ids in files of another width.
    #[test]
    fn positions_do_not_depend_on_the_width_of_ids() {
        let text: Vec<u8> = (0..START_BYTES + BLOCK_BYTES).map(|at| (at * at) as u8).collect();
        let of_width = |encoding, text: &[u8]| {
            let mut ids = Ids::new(encoding);
            ids.extend(&text.iter().map(|byte| u32::from(*byte)).collect::<Vec<_>>());
            let file = TokenFile::from_ids(ids, 256, "ids").unwrap();
            DataPosition::after(3, &Dataset::new(file, 2, 4, Order::Shuffled, 1).unwrap()).unwrap()
        };
        let widths = [Encoding::Bytes, Encoding::U16, Encoding::U32];
        let mut other = text.clone();
        *other.last_mut().unwrap() ^= 1;
        for saved in widths {
            let older = DataPosition { ids: None, ..of_width(saved, &text) };
            for now in widths {
                assert_eq!(of_width(saved, &text).other_data(&of_width(now, &text)), None);
                assert!(of_width(saved, &text).other_data(&of_width(now, &other)).is_some());
                // Checkpoints that were saved without hashes of ids need the same file.
                assert_eq!(older.other_data(&of_width(now, &text)).is_none(), saved == now);
            }
        }
    }

    /// Documents behind the bytes that are hashed.
    #[test]
    fn positions_need_the_same_packed_rows() {
        let position = |end: usize| {
            let mut text = vec![b'x'; START_BYTES + 1000];
            text[START_BYTES + end] = b' ';
            let file = TokenFile::from_text(text, 256, "text").unwrap();
            let options = DocumentOptions { end: b' '.into(), packs: true, masks_borders: false };
            let dataset = Dataset::of_documents(file, 64, 4, Order::Shuffled, 0, options).unwrap();
            DataPosition::after(3, &dataset).unwrap()
        };
        let saved = position(500);
        assert_eq!(saved.other_data(&position(500)), None);
        let text = saved.other_data(&position(501)).unwrap();
        let part = "--data: the documents of text begin at other positions than in the saved run";
        assert!(text.contains(part), "{text}");
    }

    /// Positions of checkpoints that were saved without the packed rows, or before documents were told apart.
    #[test]
    fn older_positions_are_read() {
        let file = TokenFile::from_text(b"two words, some bytes".to_vec(), 256, "text").unwrap();
        let options = DocumentOptions { end: b' '.into(), packs: true, masks_borders: false };
        let dataset = Dataset::of_documents(file, 2, 4, Order::Shuffled, 0, options).unwrap();
        let saved = DataPosition::after(3, &dataset).unwrap();
        let mut older = serde_json::to_value(&saved).unwrap();
        assert_eq!(serde_json::from_value::<DataPosition>(older.clone()).unwrap(), saved);
        for key in ["packing", "documents"] {
            older.as_object_mut().unwrap().remove(key).unwrap();
            let older = serde_json::from_value::<DataPosition>(older.clone()).unwrap();
            assert_eq!(older.other_data(&saved), None);
        }
    }
}
