//! Loss and gradients of rows of several documents.

use meshwright::nn::build;
use meshwright::prelude::*;
use meshwright_tests::compare::{Report, Tensors, assert_same_bits};
use meshwright_tests::run::on_mesh;

use super::bags::{Bags, Batch, Ffn, Hidden, Positions, Seq, Vocab};

const SEQ: usize = 12;
const ROWS: usize = 4;

fn sizes() -> Sizes {
    Sizes::new().with(Positions, SEQ).with(Hidden, 8).with(Ffn, 12).with(Vocab, 16).with(Layers, 2)
}

/// Lengths of the documents of each row: one, two, documents of one token, many.
const LENGTHS: [&[usize]; ROWS] = [&[12], &[5, 7], &[1, 10, 1], &[3, 1, 1, 4, 3]];

fn starts() -> Vec<u32> {
    let row = |lengths: &&[usize]| {
        let mut start = 0;
        let of_document = |len: &usize| {
            let own = start;
            start += *len as u32;
            vec![own; *len]
        };
        lengths.iter().flat_map(of_document).collect::<Vec<u32>>()
    };
    LENGTHS.iter().flat_map(row).collect()
}

fn token(row: usize, position: usize) -> u32 {
    ((row * 31 + position * 7 + position * position) % 16) as u32
}

/// Loss and gradients of rows of several documents on `mesh`.
fn of_packed_rows(mesh: &str) -> (f64, Tensors) {
    let starts = starts();
    on_mesh(mesh, 1, |rank| {
        let built = build::<Bags>(rank, &sizes()).unwrap();
        let own = rank_rows(rank);
        let block = |id: fn(usize, usize) -> u32| -> Vec<u32> {
            own.clone().flat_map(|row| (0..SEQ).map(move |position| id(row, position))).collect()
        };
        let from_block = |ids: &[u32]| Tokens::from_block(rank, &[ROWS, SEQ], ids);
        let tokens =
            from_block(&block(token)).with_documents(&starts[own.start * SEQ..own.end * SEQ]);
        let targets = from_block(&block(|row, position| token(row, position + 1)));
        gradients_of(&built, &tokens, &targets)
    })
    .remove(0)
}

/// The rows of a data rank.
fn rank_rows(rank: &Rank) -> std::ops::Range<usize> {
    let axes = meshwright::layout::AxisSet::DATA;
    let (index, of) = (rank.position(axes), rank.degree_of(axes));
    index * ROWS / of..(index + 1) * ROWS / of
}

fn gradients_of(
    built: &meshwright::nn::Built<Bags>,
    tokens: &Tokens<(Batch, Seq)>,
    targets: &Targets<(Batch, Seq)>,
) -> (f64, Tensors) {
    let loss = built.model.loss(tokens, targets);
    let mean = loss.reduce().value();
    let gradients = loss.backward().reduce();
    let params = built.params();
    let gathered = params.iter().map(|param| (param.path().to_owned(), gradients.gather(param)));
    (mean, gathered.collect())
}

/// Rows of several documents have the loss and gradients of each document in a row of its own, after which nothing
/// counts.
#[test]
fn documents_in_one_row_are_as_documents_apart() {
    let expected = on_mesh("1", 1, |rank| {
        let built = build::<Bags>(rank, &sizes()).unwrap();
        let documents: Vec<(usize, usize, usize)> = (0..ROWS)
            .flat_map(|row| {
                let mut start = 0;
                LENGTHS[row].iter().map(move |len| {
                    start += len;
                    (row, start - len, *len)
                })
            })
            .collect();
        let block = |id: &dyn Fn(usize, usize, bool) -> u32| -> Vec<u32> {
            let of_document = |(row, start, len): &(usize, usize, usize)| {
                let (row, start, len) = (*row, *start, *len);
                (0..SEQ).map(|index| id(row, start + index, index < len)).collect::<Vec<u32>>()
            };
            documents.iter().flat_map(of_document).collect()
        };
        let from_block = |ids: &[u32]| Tokens::from_block(rank, &[documents.len(), SEQ], ids);
        let tokens = block(&|row, position, counts| if counts { token(row, position) } else { 0 });
        let ignored = Targets::<(Batch, Seq)>::IGNORED;
        let targets = block(&|row, position, counts| {
            if counts { token(row, position + 1) } else { ignored }
        });
        gradients_of(&built, &from_block(&tokens), &from_block(&targets))
    })
    .remove(0);
    let mut report = Report::default();
    for mesh in ["1", "dp=2", "tp=2", "tp=4", "fsdp=2,tp=2", "dp=4"] {
        let (loss, gradients) = of_packed_rows(mesh);
        report.scalars("loss", mesh, &[loss], &[expected.0], 1e-6);
        report.tensors("gradient", mesh, &gradients, &expected.1, 2e-6);
    }
    report.print();
}

#[test]
fn rows_of_one_document_are_rows_without_documents() {
    on_mesh("1", 1, |rank| {
        let built = build::<Bags>(rank, &sizes()).unwrap();
        let ids: Vec<u32> = (0..SEQ).map(|position| token(0, position)).collect();
        let tokens = Tokens::from_block(rank, &[1, SEQ], &ids);
        assert!(tokens.documents().starts().is_none() && tokens.documents().ends().is_none());
        let one = tokens.with_documents(&[0; SEQ]);
        let documents = one.documents();
        let held = |block: Option<&std::sync::Arc<meshwright::backend::Buffer>>| {
            block.unwrap().view().to_vec::<u32>()
        };
        assert_eq!(held(documents.starts()), [0; SEQ]);
        assert_eq!(held(documents.ends()), [SEQ as u32; SEQ]);
        let [plain, in_one] = [&tokens, &one].map(|tokens| gradients_of(&built, tokens, tokens));
        assert_eq!(plain.0, in_one.0);
        assert_same_bits("gradients", &in_one.1, &plain.1);
    });
}

#[test]
fn documents_of_other_rows_are_refused() {
    on_mesh("1", 1, |rank| {
        let built = build::<Bags>(rank, &sizes()).unwrap();
        let tokens = |rows: usize| {
            let ids = vec![1; rows * SEQ];
            Tokens::<(Batch, Seq)>::from_block(rank, &[rows, SEQ], &ids)
                .with_documents(&vec![0; rows * SEQ])
        };
        let (two, three) = (tokens(2), tokens(3));
        let x = built.model.embed.forward(&two);
        let positions = &built.model.blocks.layers()[0].positions;
        let mixed = || positions.forward_in(&x, &three.documents());
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(mixed)).err().unwrap();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("documents of 3 rows of 12 tokens"), "{text}");
    });
}
