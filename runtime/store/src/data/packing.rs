//! Packing of documents into rows: best fit decreasing (Johnson, 1973; Ding et al., "Fewer Truncations Improve Language
//! Modeling", 2024).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use xxhash_rust::xxh3::Xxh3Default;

use super::documents::{RowParts, read_blocks};
use super::{Batch, DataError, DocumentOptions, TokenFile};

/// Rows that are packed with the documents of a file, all of them once.
///
/// Documents are taken by length, the longest first, and put into the row that has the least space left that suffices.
/// Only a document that is longer than a row is cut: into whole rows, and a rest that is packed like a document. Rows
/// are numbered by their first document in the file, so that their lengths do not follow from their number.
#[derive(Debug)]
pub struct Packing {
    seq: usize,
    /// Pieces in the order of rows, and within a row in that of the file.
    pieces: Vec<DocumentPiece>,
    /// Index of the first piece of each row, and the number of pieces.
    rows: Vec<usize>,
    waste: PackingWaste,
}

/// A document in a row, or a part of one that is longer than a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct DocumentPiece {
    /// Index of the first token in the file.
    start: usize,
    /// Number of tokens, at most a row.
    len: usize,
}

/// The padding of packed rows, and the documents that are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackingWaste {
    /// Documents of the file.
    pub documents: usize,
    /// Documents that are longer than a row, which are cut.
    pub cut: usize,
    /// Rows that they are packed into.
    pub rows: usize,
    /// Tokens of these rows that hold no document.
    pub padding: usize,
    /// Tokens of these rows.
    pub tokens: usize,
}

impl PackingWaste {
    /// Adds the rows of another file.
    pub(super) fn add(self, other: PackingWaste) -> PackingWaste {
        PackingWaste {
            documents: self.documents + other.documents,
            cut: self.cut + other.cut,
            rows: self.rows + other.rows,
            padding: self.padding + other.padding,
            tokens: self.tokens + other.tokens,
        }
    }

    /// Returns the fraction of tokens that hold no document.
    pub fn fraction(&self) -> f64 {
        self.padding as f64 / self.tokens.max(1) as f64
    }
}

impl Packing {
    /// Packs the documents of `file` into rows of `seq` tokens. Reads the whole file.
    ///
    /// # Errors
    /// A token beyond the vocabulary.
    pub fn new(
        file: &TokenFile,
        options: &DocumentOptions,
        seq: usize,
    ) -> Result<Packing, DataError> {
        let mut documents: Vec<DocumentPiece> = Vec::new();
        let mut start = 0;
        read_blocks(file, 0..file.len(), |first, block| {
            for index in options.ends_in(file, first, block) {
                let next = first + index + 1;
                documents.push(DocumentPiece { start, len: next - start });
                start = next;
            }
            true
        })?;
        if start < file.len() {
            documents.push(DocumentPiece { start, len: file.len() - start });
        }
        Ok(Packing::of_documents(&documents, seq))
    }

    fn of_documents(documents: &[DocumentPiece], seq: usize) -> Packing {
        let pieces: Vec<DocumentPiece> =
            documents.iter().flat_map(|document| document.cut_pieces(seq)).collect();
        let row_of = best_fit(&pieces, seq);
        let n_rows = row_of.iter().max().map_or(0, |last| last + 1);
        // Rows by their first piece.
        let mut number = vec![usize::MAX; n_rows];
        let mut numbered = 0;
        for row in &row_of {
            if number[*row] == usize::MAX {
                number[*row] = numbered;
                numbered += 1;
            }
        }
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|piece| number[row_of[*piece]]);
        let mut rows: Vec<usize> = vec![0; n_rows + 1];
        for row in &row_of {
            rows[number[*row] + 1] += 1;
        }
        for row in 0..n_rows {
            rows[row + 1] += rows[row];
        }
        let held: usize = pieces.iter().map(|piece| piece.len).sum();
        let waste = PackingWaste {
            documents: documents.len(),
            cut: documents.iter().filter(|document| document.len > seq).count(),
            rows: n_rows,
            padding: n_rows * seq - held,
            tokens: n_rows * seq,
        };
        Packing { seq, pieces: order.into_iter().map(|piece| pieces[piece]).collect(), rows, waste }
    }

    /// Returns the XXH3 of the documents of all rows, in hexadecimal: equal for rows of documents with the same lengths
    /// and order.
    pub fn fingerprint(&self) -> String {
        let mut hash = Xxh3Default::new();
        let mut add = |number: usize| hash.update(&(number as u64).to_le_bytes());
        self.rows.iter().for_each(|first| add(*first));
        for piece in &self.pieces {
            add(piece.start);
            add(piece.len);
        }
        format!("{:016x}", hash.digest())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len() - 1
    }

    /// The padding and the cut documents of all rows.
    pub fn waste(&self) -> PackingWaste {
        self.waste
    }

    /// Returns the index in the file of the first token of row `row`, which is unique to this row.
    pub fn start(&self, row: usize) -> usize {
        self.pieces[self.rows[row]].start
    }

    /// Returns the number of padding tokens of row `row`.
    pub fn padding(&self, row: usize) -> usize {
        self.seq - self.pieces_of(row).iter().map(|piece| piece.len).sum::<usize>()
    }

    /// Returns the ranges of tokens of row `row`.
    pub(super) fn spans(&self, row: usize) -> impl Iterator<Item = Range<usize>> {
        self.pieces_of(row).iter().map(|piece| piece.start..piece.start + piece.len)
    }

    fn pieces_of(&self, row: usize) -> &[DocumentPiece] {
        &self.pieces[Range { start: self.rows[row], end: self.rows[row + 1] }]
    }

    /// Reads row `row`: its tokens, their targets, and the position at which the document of each begins.
    ///
    /// The target of the last token of a document is the first one of the next document in the row, if there is one and
    /// borders are not masked. Padding is the token that ends documents, a document of its own, without targets.
    pub(super) fn read_row(
        &self,
        file: &TokenFile,
        row: usize,
        options: &DocumentOptions,
        parts: RowParts<'_>,
    ) -> Result<(), DataError> {
        let RowParts { tokens, targets, starts } = parts;
        tokens.fill(options.end);
        targets.fill(Batch::IGNORED);
        let mut position = 0;
        for piece in self.pieces_of(row) {
            let range = position..position + piece.len;
            file.read(piece.start, &mut tokens[range.clone()])?;
            let last = piece.start + piece.len - 1;
            let ends =
                options.ends_in(file, last, &tokens[range.end - 1..range.end]).next().is_some();
            if position > 0 && !options.masks_borders {
                targets[position - 1] = tokens[position];
            }
            targets[position..range.end - 1].copy_from_slice(&tokens[position + 1..range.end]);
            // A document that is cut continues in the file.
            if !ends && piece.start + piece.len < file.len() {
                file.read(piece.start + piece.len, &mut targets[range.end - 1..range.end])?;
            }
            starts[range.clone()].fill(position as u32);
            position = range.end;
        }
        starts[position..].fill(position as u32);
        Ok(())
    }
}

impl DocumentPiece {
    /// Cuts a document into whole rows of `seq` tokens and the rest.
    fn cut_pieces(self, seq: usize) -> impl Iterator<Item = DocumentPiece> {
        let end = self.start + self.len;
        (self.start..end)
            .step_by(seq)
            .map(move |start| DocumentPiece { start, len: seq.min(end - start) })
    }
}

/// Returns the row of each piece, with rows in the order of opening.
fn best_fit(pieces: &[DocumentPiece], seq: usize) -> Vec<usize> {
    let mut by_length: Vec<usize> = (0..pieces.len()).collect();
    by_length.sort_by_key(|piece| Reverse(pieces[*piece].len));
    let mut row_of = vec![0; pieces.len()];
    let mut n_rows = 0;
    // Rows by the space that they have left.
    let mut open: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for piece in by_length {
        let len = pieces[piece].len;
        let (space, row) = match open.range_mut(len..).next() {
            Some((space, rows)) => {
                let (space, row) = (*space, rows.pop().expect("empty lists are removed"));
                if rows.is_empty() {
                    open.remove(&space);
                }
                (space, row)
            }
            None => {
                n_rows += 1;
                (seq, n_rows - 1)
            }
        };
        row_of[piece] = row;
        if space > len {
            open.entry(space - len).or_default().push(row);
        }
    }
    row_of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> TokenFile {
        TokenFile::from_text(text.as_bytes().to_vec(), 256, "text").unwrap()
    }

    fn options(masks_borders: bool) -> DocumentOptions {
        DocumentOptions { end: u32::from(b'.'), packs: true, masks_borders }
    }

    /// Tokens and targets as text, with `_` for ignored targets, and starts.
    fn row(
        file: &TokenFile,
        packing: &Packing,
        row: usize,
        masks: bool,
    ) -> (String, String, Vec<u32>) {
        let [mut tokens, mut targets, mut starts] = [(); 3].map(|()| vec![7; packing.seq]);
        let parts = RowParts { tokens: &mut tokens, targets: &mut targets, starts: &mut starts };
        packing.read_row(file, row, &options(masks), parts).unwrap();
        let text = |ids: Vec<u32>| {
            let letter = |id| char::from_u32(id).filter(|_| id != Batch::IGNORED).unwrap_or('_');
            ids.into_iter().map(letter).collect::<String>()
        };
        (text(tokens), text(targets), starts)
    }

    #[test]
    fn documents_fill_the_row_with_the_least_space() {
        // Lengths 3, 4, 2, 5, 3 in rows of 7: 5 + 2, 4 + 3, 3.
        let file = file("ab.abc.a.abcd.xy.");
        let packing = Packing::new(&file, &options(false), 7).unwrap();
        let expected = PackingWaste { documents: 5, cut: 0, rows: 3, padding: 4, tokens: 21 };
        assert_eq!(packing.waste(), expected);
        let rows = |masks| [0, 1, 2].map(|number| row(&file, &packing, number, masks));
        assert_eq!(
            rows(false),
            [
                ("ab.abc.".into(), "b.abc._".into(), vec![0, 0, 0, 3, 3, 3, 3]),
                ("a.abcd.".into(), ".abcd._".into(), vec![0, 0, 2, 2, 2, 2, 2]),
                ("xy.....".into(), "y._____".into(), vec![0, 0, 0, 3, 3, 3, 3]),
            ]
        );
        let targets = rows(true).map(|(_, targets, _)| targets);
        assert_eq!(targets, ["b._bc._", "._bcd._", "y._____"]);
        assert_eq!([0, 1, 2].map(|number| packing.padding(number)), [0, 0, 4]);
        assert_eq!([0, 1, 2].map(|number| packing.start(number)), [0, 7, 14]);
    }

    #[test]
    fn only_documents_longer_than_a_row_are_cut() {
        let file = file("abcdefghi.x.jk");
        let packing = Packing::new(&file, &options(false), 4).unwrap();
        let expected = PackingWaste { documents: 3, cut: 1, rows: 4, padding: 2, tokens: 16 };
        assert_eq!(packing.waste(), expected);
        let rows = [0, 1, 2, 3].map(|number| row(&file, &packing, number, true));
        assert_eq!(rows[0], ("abcd".into(), "bcde".into(), vec![0; 4]));
        assert_eq!(rows[1], ("efgh".into(), "fghi".into(), vec![0; 4]));
        assert_eq!(rows[2], ("i.x.".into(), "._._".into(), vec![0, 0, 2, 2]));
        // The last document of the file has no end, and no target after its last token.
        assert_eq!(rows[3], ("jk..".into(), "k___".into(), vec![0, 0, 2, 2]));
    }

    /// Every token of a file is in one row once, whole documents together, and no two rows could be one.
    #[test]
    fn packing_keeps_every_token_and_document() {
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for seq in [1, 2, 5, 16, 61] {
            for _ in 0..20 {
                let mut documents = Vec::new();
                let mut start = 0;
                for _ in 0..next(60) + 1 {
                    let len = next(40) as usize + 1;
                    documents.push(DocumentPiece { start, len });
                    start += len;
                }
                let packing = Packing::of_documents(&documents, seq);
                let mut pieces: Vec<DocumentPiece> =
                    (0..packing.rows()).flat_map(|row| packing.pieces_of(row).to_vec()).collect();
                let held = |row| seq - packing.padding(row);
                assert!((0..packing.rows()).all(|row| (1..=seq).contains(&held(row))));
                assert!((0..packing.rows()).all(|row| packing.pieces_of(row).is_sorted()));
                let padding: usize = (0..packing.rows()).map(|row| packing.padding(row)).sum();
                assert_eq!(padding, packing.waste().padding);
                pieces.sort();
                let expected: Vec<DocumentPiece> =
                    documents.iter().flat_map(|document| document.cut_pieces(seq)).collect();
                assert_eq!(pieces, expected);
                assert_eq!(packing.waste().documents, documents.len());
                // Best fit leaves at most one row no more than half full.
                let sparse = (0..packing.rows()).filter(|row| 2 * held(*row) <= seq).count();
                assert!(sparse <= 1, "{sparse} rows of {seq}");
                let starts: Vec<usize> =
                    (0..packing.rows()).map(|row| packing.start(row)).collect();
                assert!(starts.is_sorted_by(|a, b| a < b), "rows follow the file");
            }
        }
    }
}
