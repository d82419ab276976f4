//! Gathers and reductions within one flat buffer, as data-parallel sharding uses them.

use std::sync::Arc;

use crate::{Blocks, CommError, Communicator, Site};
use meshwright_backend::{Buffer, CachingAllocator, Category, Element, ViewMut};

use super::{data, failures_of, on_ranks};

fn buffer<T: Element>(values: &[T]) -> Buffer {
    CachingAllocator::new().copy_of(values, Category::Communication)
}

/// The own run of `whole`, among elements that are wrong.
fn own_part<T: Element>(tp: &Communicator, whole: &[T], wrong: T, blocks: &Blocks) -> Vec<T> {
    let mut own = vec![wrong; whole.len()];
    let run = blocks.start(tp.rank())..blocks.start(tp.rank() + 1);
    own[run.clone()].copy_from_slice(&whole[run]);
    own
}

#[test]
fn members_may_mix_both_forms() {
    for blocks in [Blocks::new(1, [3, 0, 5]), Blocks::new(1, [9001, 16, 20_000])] {
        let whole = data(1, blocks.total());
        on_ranks(3, |tp| {
            let (site, ones) = (Site::new("x"), vec![1f32; blocks.total()]);
            let run = blocks.start(tp.rank())..blocks.start(tp.rank() + 1);
            if tp.rank() == 1 {
                let (part, room) = (buffer(&whole[run.clone()]), buffer(&ones));
                let gathered = tp.start_all_gather(&site, Arc::new(part), room, &blocks).wait()?;
                assert_eq!(gathered.typed::<f32>(), whole);
                let (ones, room) = (buffer(&ones), buffer(&whole[run]));
                let sum = tp.start_reduce_scatter(&site, Arc::new(ones), room, &blocks).wait()?;
                assert!(sum.typed::<f32>().iter().all(|value| *value == 3.0));
            } else {
                let own = own_part(tp, &whole, f32::NAN, &blocks);
                let gathered = tp.start_all_gather_in_place(&site, buffer(&own), &blocks).wait()?;
                assert_eq!(gathered.typed::<f32>(), whole);
                let sum = tp.start_reduce_scatter_in_place(&site, buffer(&ones), &blocks).wait()?;
                assert!(sum.typed::<f32>()[run].iter().all(|value| *value == 3.0));
            }
            Ok(())
        });
    }
}

/// Rounds of both, as a training step makes them, with more members than cores.
#[test]
fn many_members_reuse_the_same_buffers() {
    let lens = [512, 0, 528, 3000, 16, 512, 0, 7, 2049, 64, 64, 1];
    let blocks = Blocks::new(1, lens);
    on_ranks(lens.len(), |tp| {
        let run = blocks.start(tp.rank())..blocks.start(tp.rank() + 1);
        let mut flat = buffer(&vec![1f32; blocks.total()]);
        for round in 0..60 {
            flat = tp.start_reduce_scatter_in_place(&Site::new("grad"), flat, &blocks).wait()?;
            let sums = &mut flat.typed_mut::<f32>()[run.clone()];
            assert!(sums.iter().all(|sum| *sum == (12 + 12 * round) as f32));
            sums.iter_mut().for_each(|sum| *sum /= 12.0);
            flat = tp.start_all_gather_in_place(&Site::new("param"), flat, &blocks).wait()?;
            flat.typed_mut::<f32>().iter_mut().for_each(|value| *value += 1.0);
        }
        Ok(())
    });
}

#[test]
fn several_rows_in_place_are_refused() {
    let error = failures_of(2, |comms| {
        let (tp, site) = (comms.group(super::TP), Site::here("x"));
        type Start = fn(&Communicator, &Site, Buffer, &Blocks) -> Result<Buffer, CommError>;
        let forms: [Start; 2] = [
            |tp, site, data, blocks| tp.start_all_gather_in_place(site, data, blocks).wait(),
            |tp, site, data, blocks| tp.start_reduce_scatter_in_place(site, data, blocks).wait(),
        ];
        for form in forms {
            let refused = |data: &[f32], blocks| {
                form(&tp, &site, buffer(data), &blocks).expect_err("does not fit").to_string()
            };
            let text = refused(&[0.0; 8], Blocks::even(2, 2, 2));
            assert!(text.contains("has 2 rows, but a collective in place takes one"), "{text}");
            let text = refused(&[0.0; 7], Blocks::even(1, 4, 2));
            assert!(text.contains("data has 7 elements where 8 are expected"), "{text}");
        }
        Err(tp.broadcast(&site, 9, ViewMut::from(&mut [0f32][..])).expect_err("no member 9"))
    });
    assert_eq!(error.failures.len(), 2);
}
