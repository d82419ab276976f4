//! Datasets of evaluations, which have each target once.

use crate::data::{Batch, DataSource, Dataset, DocumentOptions, TokenFile};

/// The targets that count in all batches, in order, and the tokens before them.
fn evaluated(dataset: &Dataset) -> Vec<[u32; 2]> {
    let batch = dataset.batch();
    let batches = (0..dataset.batches()).map(|step| dataset.rows(step, 0..batch).unwrap());
    let pairs = batches.flat_map(|batch| std::iter::zip(batch.tokens, batch.targets));
    pairs.filter(|(_, target)| *target != Batch::IGNORED).map(<[u32; 2]>::from).collect()
}

#[test]
fn evaluations_have_each_target_once() {
    for (len, seq) in [(100, 7), (99, 7), (8, 7), (9, 7), (14, 7), (15, 7), (2, 1), (57, 1)] {
        for batch in [1, 2, 3, 50] {
            let text: Vec<u8> = (0..len).collect();
            let file = TokenFile::from_text(text, 256, "numbers").unwrap();
            let dataset =
                Dataset::for_evaluation(DataSource::of_file(file), seq, batch, None).unwrap();
            let expected: Vec<_> = (1..u32::from(len)).map(|next| [next - 1, next]).collect();
            assert_eq!(evaluated(&dataset), expected, "{len} in rows of {seq}, {batch} each");
            let rows = (usize::from(len) - 1).div_ceil(seq);
            assert_eq!(dataset.batches(), rows.div_ceil(batch) as u64);
            // No two rows have the same position.
            let batches = (0..dataset.batches()).map(|step| dataset.rows(step, 0..batch).unwrap());
            let mut places: Vec<_> = batches.flat_map(|batch| batch.places).collect();
            let count = places.len();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), count);
        }
    }
    let file = TokenFile::from_text((0..7).collect(), 256, "numbers").unwrap();
    let text =
        Dataset::for_evaluation(DataSource::of_file(file), 7, 2, None).unwrap_err().to_string();
    assert!(text.contains("numbers has 7 tokens") && text.contains("needs 8"), "{text}");
}

/// Documents of 3 tokens in rows of 8: the first two of each row are whole, and the ranks are ragged at the end.
#[test]
fn evaluations_of_documents_have_each_target_once() {
    let text = b"ab.cd.ef.gh.ij.kl.mn.op.qr.st.uv.w".to_vec();
    for (packs, masks_borders) in [(false, false), (false, true), (true, false), (true, true)] {
        let end = u32::from(b'.');
        let options = DocumentOptions { end, packs, masks_borders };
        let file = TokenFile::from_text(text.clone(), 256, "words").unwrap();
        let dataset =
            Dataset::for_evaluation(DataSource::of_file(file), 8, 3, Some(options)).unwrap();
        let mut found = evaluated(&dataset);
        found.sort_unstable();
        let within = text.windows(2).filter(|pair| pair[0] != b'.');
        let mut expected: Vec<[u32; 2]> =
            within.map(|pair| [pair[0], pair[1]].map(u32::from)).collect();
        if !masks_borders && !packs {
            let after = text.windows(2).filter(|pair| pair[0] == b'.');
            expected.extend(after.map(|pair| [pair[0], pair[1]].map(u32::from)));
        }
        expected.sort_unstable();
        if packs && !masks_borders {
            found.retain(|[token, _]| *token != end);
        }
        assert_eq!(found, expected, "packs: {packs}, masks: {masks_borders}");
    }
}
