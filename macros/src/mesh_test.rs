//! A function with `#[mesh_test]`: what its macro's other parts read.

use syn::{Item, ItemFn, LitStr};

use crate::attr::{MeshTestArgs, Runtime};
use crate::diag::Ctxt;
use crate::tokens::first_line;

/// A test on meshes.
pub struct MeshTest {
    pub runtime: Runtime,
    /// The meshes, each valid.
    pub meshes: Vec<LitStr>,
    pub function: ItemFn,
}

impl MeshTest {
    /// Parses the function of an item, and reports an item of another kind.
    pub fn lower(cx: &Ctxt, args: MeshTestArgs, item: &Item) -> Option<Self> {
        let Item::Fn(function) = item else {
            cx.error_at(
                first_line(item),
                "`#[mesh_test]` belongs on a function: `#[mesh_test] fn name(rank: &Rank) -> Result<Observed> { .. }`",
            );
            return None;
        };
        let MeshTestArgs { runtime, meshes } = args;
        Some(Self { runtime, meshes, function: function.clone() })
    }
}
