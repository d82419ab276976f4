//! Each token of a distributed sequence by itself: its loss, its logits, and the rows and masks of its position.

use meshwright::nn::{ContextStyle, Layer, build};
use meshwright::tensor::{Rank, Targets, Tokens};
use meshwright::train::LanguageModel;
use meshwright_tests::compare::Report;
use meshwright_tests::data::{Batches, PackedData, Turn};
use meshwright_tests::models::context::{Batch, ContextLm, Seq};
use meshwright_tests::run::on_mesh;

use super::context_attention::{DATA, Variant};

const MESHES: [(&str, ContextStyle); 5] = [
    ("cp=2", ContextStyle::Ring),
    ("cp=3", ContextStyle::Gather),
    ("cp=4", ContextStyle::Ulysses),
    ("cp=2,tp=2", ContextStyle::Hybrid(None)),
    ("dp=2,cp=2", ContextStyle::Ring),
];

/// Rows whose targets are the next tokens.
const ROWS: usize = 4;

fn token(row: usize, position: usize) -> u32 {
    ((row * 31 + position * 7 + position * position) % DATA.vocab) as u32
}

/// Returns the loss of each position of rows that are cut from whole ones, with no other target.
fn loss_of_each_position(rank: &Rank, model: &ContextLm) -> Vec<f64> {
    let of_rows = |id: &dyn Fn(usize, usize) -> u32| {
        let axes = meshwright::layout::AxisSet::DATA;
        let (index, of) = (rank.position(axes), rank.degree_of(axes));
        let rows = index * ROWS / of..(index + 1) * ROWS / of;
        let ids: Vec<u32> = rows
            .flat_map(|row| (0..DATA.seq).map(move |at| (row, at)))
            .map(|(row, at)| id(row, at))
            .collect();
        Tokens::<(Batch, Seq)>::from_whole_rows(rank, &[ROWS, DATA.seq], 0, &ids)
    };
    let tokens = of_rows(&token);
    let ignored = Targets::<(Batch, Seq)>::IGNORED;
    rank.evaluate(|| {
        let output = Layer::forward(model, &tokens);
        let loss = |position: usize| {
            let target = |row: usize, at: usize| {
                if at == position { token(row, at + 1) } else { ignored }
            };
            model.loss_of_output(&output, &of_rows(&target)).reduce().value()
        };
        (0..DATA.seq).map(loss).collect()
    })
}

/// Targets are shifted before a row is cut, so that the last token of a chunk predicts the first one of the next chunk,
/// which another rank may have.
#[test]
fn the_loss_of_each_token_is_that_of_one_rank() {
    let setup = Variant::Window.setup();
    let losses = |mesh: &str, style: Option<ContextStyle>| {
        let mut sizes = setup.sizes.clone();
        sizes.context = style;
        on_mesh(mesh, 1, |rank| {
            loss_of_each_position(rank, &build::<ContextLm>(rank, &sizes).unwrap().model)
        })
    };
    let expected = losses("1", None).remove(0);
    let distinct = expected.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(distinct, DATA.seq - 1, "positions have losses of their own");
    let mut report = Report::default();
    for (mesh, style) in MESHES {
        for found in losses(mesh, Some(style)) {
            report.scalars("loss of a token", mesh, &found, &expected, 1e-5);
        }
    }
    report.print();
}

/// Documents that begin at borders of chunks, next to them, and at the last token; the mask of dropout is on.
#[test]
fn the_logits_of_each_token_are_those_of_one_rank() {
    for variant in [Variant::Documents, Variant::Window] {
        let setup = variant.setup();
        let logits = |mesh: &str, style: Option<ContextStyle>| {
            let mut sizes = setup.sizes.clone();
            sizes.context = style;
            on_mesh(mesh, 1, |rank| {
                let model = build::<ContextLm>(rank, &sizes).unwrap().model;
                rank.set_step(5);
                let turn = Turn { step: 0, index: 0, count: 1 };
                let (tokens, _) = match variant {
                    Variant::Documents => PackedData(DATA).block(rank, turn),
                    _ => DATA.block(rank, turn),
                };
                model.logits(&tokens).gather_to_vec()
            })
        };
        let expected = logits("1", None).remove(0);
        let row = DATA.vocab;
        let mut report = Report::default();
        for (mesh, style) in MESHES {
            for found in logits(mesh, Some(style)) {
                for (token, (found, expected)) in
                    found.chunks(row).zip(expected.chunks(row)).enumerate()
                {
                    let (row, position) = (token / DATA.seq, token % DATA.seq);
                    let distance = meshwright_tests::compare::distance(found, expected);
                    let label =
                        format_args!("{variant:?} on {mesh}, row {row}, position {position}");
                    report.note("logits", label, distance, 2e-5);
                }
            }
        }
        report.print();
    }
}
