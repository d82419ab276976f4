//! The number of layers as a dim.

use crate::layout::name::{H7, H9, HB, HC, HE, HF};
use crate::layout::{Here, Local, Named, Whole};

/// The number of layers of a [`Stack`](super::Stack), as a dim: `Sizes::new().with(Layers, 12)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layers;

#[diagnostic::do_not_recommend]
impl Whole for Layers {
    const DECLARED_NAME: &'static str = "Layers";
    type Home = Here;
}

#[diagnostic::do_not_recommend]
impl Local for Layers {}

#[diagnostic::do_not_recommend]
impl Named for Layers {
    type Name = (HB, (HC, (H7, (HF, (HE, (H9, (H7, (HF, ()))))))));
}
