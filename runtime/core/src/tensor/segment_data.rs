//! Tensors and token ids as inputs and outputs of checkpointed segments and pipeline stages.

use crate::autograd::{Part, PartKind, SegmentData};
use crate::layout::{Dims, Internal};

use super::{Tensor, Tokens};

#[diagnostic::do_not_recommend]
impl<S: Dims> SegmentData for Tensor<S> {
    fn add_part_kinds(kinds: &mut Vec<PartKind>, _: Internal) {
        kinds.push(PartKind::Activation(S::DIMS));
    }

    fn add_parts(&self, parts: &mut Vec<Part>, _: Internal) {
        parts.push(Part::Activation(self.value().clone()));
    }

    fn from_parts(next: &mut dyn FnMut() -> Part, _: Internal) -> Tensor<S> {
        match next() {
            Part::Activation(value) => Tensor::from_untyped(value),
            _ => unreachable!("the part of a tensor is an activation"),
        }
    }
}

#[diagnostic::do_not_recommend]
impl<S: Dims> SegmentData for Tokens<S> {
    fn add_part_kinds(kinds: &mut Vec<PartKind>, _: Internal) {
        kinds.push(PartKind::TokenIds(S::DIMS));
    }

    fn add_parts(&self, parts: &mut Vec<Part>, _: Internal) {
        parts.push(Part::TokenIds(self.untyped().clone()));
    }

    fn from_parts(next: &mut dyn FnMut() -> Part, _: Internal) -> Tokens<S> {
        match next() {
            Part::TokenIds(ids) => Tokens::of_untyped(ids),
            _ => unreachable!("the part of tokens is token ids"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::autograd::{data_of_parts, parts_of};
    use crate::context::Rank;
    use meshwright_backend::Category;
    use meshwright_comm::{CommError, launch};
    use meshwright_cpu::CpuBackend;
    use meshwright_macros::dims;

    dims! { crate = crate; Batch @ data, Seq, Hidden }

    type Ids = Tokens<(Batch, Seq)>;
    type Stream = Tensor<(Batch, Seq, Hidden)>;
    type Data = ((Stream, Ids), Stream);

    fn kinds_of<X: SegmentData>() -> Vec<PartKind> {
        let mut kinds = Vec::new();
        X::add_part_kinds(&mut kinds, Internal::new());
        kinds
    }

    #[test]
    fn types_determine_the_kinds_of_parts() {
        let kinds = kinds_of::<Data>();
        let names = kinds.iter().map(|kind| kind.dims().iter().map(|dim| dim.name).collect());
        let names: Vec<Vec<&str>> = names.collect();
        let stream = vec!["Batch", "Seq", "Hidden"];
        assert_eq!(names, [stream.clone(), vec!["Batch", "Seq"], stream]);
        let are_ids = kinds.iter().map(|kind| matches!(kind, PartKind::TokenIds(_)));
        assert_eq!(are_ids.collect::<Vec<_>>(), [false, true, false]);
        assert!(kinds_of::<()>().is_empty());
    }

    /// Data made of copies of its parts' buffers, as another rank would receive them.
    #[test]
    fn data_is_made_of_received_buffers() {
        launch(&"dp=2".parse().unwrap(), |comms| {
            let backend = CpuBackend::new(1).expect("threads start");
            let rank = Rank::new(comms, Box::new(backend), 1);
            let stream =
                |shift: f32| Stream::from_fn(&rank, &[4, 3, 2], |index| shift + index[0] as f32);
            let ids = Ids::from_rows(&rank, &[4, 3], 1, &[4, 2, 9]);
            let sent: Data = ((stream(0.5), ids), stream(2.0));
            let parts = parts_of(&sent).into_iter().zip(kinds_of::<Data>()).map(|(part, kind)| {
                let (own, extents, data) = match &part {
                    Part::Activation(value) => {
                        (value.rank(), value.extents(), value.compute_with_node().data)
                    }
                    Part::TokenIds(ids) => (ids.rank(), ids.extents(), ids.on_device().clone()),
                };
                assert_eq!(data.dtype(), kind.dtype(own));
                let copy = match &part {
                    Part::Activation(_) => own.copy_buffer(&data, Category::Communication),
                    _ => own
                        .allocator()
                        .copy_of(&data.view().to_vec::<u32>(), Category::Communication),
                };
                kind.part_of_buffer(own, extents.to_vec(), Arc::new(copy))
            });
            let received: Data = data_of_parts(parts);
            assert_eq!(received.0.0.to_local_vec(), sent.0.0.to_local_vec());
            assert_eq!(received.1.local_extents(), sent.1.local_extents());
            assert_eq!(received.1.to_local_vec(), sent.1.to_local_vec());
            assert_eq!(received.0.1.local_extents(), sent.0.1.local_extents());
            assert_eq!(received.0.1.on_host(), [4, 2, 9]);
            assert_eq!(received.0.1.id_buffer().view().to_vec::<u32>(), [4, 2, 9]);
            Ok::<(), CommError>(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    }
}
