//! The attribute macros of Meshwright.
//!
//! - [`dims!`] declares named tensor dims.
//! - [`macro@model`] turns a struct of layers into a model, sharded as its fields say.
//! - [`macro@forward`] turns an impl block into the model's forward function.
//!
//! The macros write declarations and calls; whether shardings fit together is judged by the compiler,
//! from the traits of the `meshwright` crate. Nothing in here knows about devices or communication.
//!
//! To read what a macro wrote, touch the file and build with `MESHWRIGHT_MACROS_DEBUG=1`: the expansions
//! are printed to stderr.

mod attr;
mod check;
mod diag;
mod dims;
mod entry;
mod expand;
mod forward;
mod fragments;
#[cfg(test)]
mod mistakes;
mod model;
#[cfg(test)]
mod snapshots;
mod tokens;

use proc_macro::TokenStream;

/// Declares named dims.
///
/// ```text
/// dims! {
///     Batch @ data,
///     Seq @ cp,
///     /// Width of the residual stream.
///     Hidden,
///     pub(crate) Ffn,
/// }
/// ```
///
/// Every dim becomes a unit struct, `pub` unless it says otherwise, for use in shapes such as
/// `Tensor<(Batch, Seq, Hidden)>`.
///
/// `@ axis` says that the dim is always distributed over that mesh axis: every rank of the axis holds a
/// part of it. The axes are `dp`, `fsdp`, `ep` and `cp`; `data` stands for all those over which ranks read
/// different samples (`dp`, `fsdp` and `ep`). A dim without `@` is whole on every rank, unless a shape says
/// `Split<Hidden, Tp>`. No dim is declared `@ tp`: layers are cut by `#[sharded(tp = ..)]`.
///
/// Doc comments and `#[cfg(..)]` may stand before a dim.
///
/// The `meshwright` crate is found in `Cargo.toml`, also under another name. If another crate re-exports it,
/// begin with its path: `crate = facade::meshwright;`.
#[proc_macro]
pub fn dims(input: TokenStream) -> TokenStream {
    entry::dims(input.into()).into()
}

/// Makes a struct of layers a model.
///
/// ```text
/// #[model]
/// struct Mlp {
///     #[sharded(tp = "col")]
///     up: Linear<Hidden, Ffn>,
///     #[sharded(tp = "row", scatter = Seq)]
///     down: Linear<Ffn, Hidden>,
/// }
/// ```
///
/// The struct needs named fields, each a layer or another model. It is built field by field in the order of
/// declaration, and the names of the fields are the names of its parameters. Type and const parameters are
/// allowed, lifetimes are not. `#[cfg(..)]` on a field is honoured.
///
/// # `#[sharded(..)]`
///
/// Cuts a layer over a mesh axis (its type becomes `<Linear<..> as Shard<Style>>::Sharded`), or makes the parameters of
/// a field a unit. Several may stand on a field, and count as one.
///
/// | | |
/// |---|---|
/// | `tp = "col"` | cuts the output dim: input whole, output split |
/// | `tp = "row"` | cuts the input dim: input split, output summed over the axis |
/// | `tp = "vocab"` | cuts the vocabulary of an embedding, summed over the axis |
/// | `scatter = Seq` | with `row` and `vocab`: the sum ends split along this dim (sequence parallelism) |
/// | `fsdp` | the field's parameters are a unit: gathered, reduced and updated together |
///
/// Units are what the data-parallel levels work on. Without `fsdp` each element of a `Stack` is one, and each field of
/// the whole model. A unit inside of another has its parameters for itself. `#[sharded(fsdp)]` below `#[model]` makes
/// every value of the struct a unit.
///
/// # `#[recompute(..)]`
///
/// Keeps only what enters a model, or each layer of a `Stack`, for backward, which computes the rest once more. The type
/// of the field becomes `<Mlp as Recompute>::Recomputed`.
///
/// | | |
/// |---|---|
/// | `every = 2` | that many consecutive layers of a `Stack` are recomputed together |
/// | `every = "sqrt"` | of `L` layers, each `ceil(sqrt(L))` |
/// | `save = [attn.core, mlp.down]` | keeps the results of these fields of the model, or of each layer |
/// | `offload` | moves what is kept to host memory until backward needs it |
///
/// The paths of `save` start at a field of the model, or of the layer; their fields must be visible here.
///
/// # `#[tied(path)]`
///
/// Uses the weight of an earlier field: one parameter with two uses.
///
/// ```text
/// embed: Embed,
/// #[tied(embed.tokens, when = "tie_word_embeddings")]
/// head: Head,
/// ```
///
/// The path starts at a field of this struct, declared before this one; its fields must be visible here.
/// With `when`, they are tied only if that key of the model's configuration is true.
///
/// # Errors
///
/// All mistakes of a struct are reported at once. Attributes that sound like ours are taken for
/// misspellings; others are left alone.
///
/// # The path of the crate
///
/// The `meshwright` crate is found in `Cargo.toml`, also under another name. If another crate re-exports it,
/// `#[model(crate = facade::meshwright)]` gives its path.
#[proc_macro_attribute]
pub fn model(args: TokenStream, item: TokenStream) -> TokenStream {
    entry::model(args.into(), item.into()).into()
}

/// Refuses `#[derive(Model)]` in favor of `#[model]`.
///
/// A derive macro cannot change the types of fields, which sharding needs. This one is there for its attributes: where
/// `#[model]` was forgotten above a struct with `#[sharded(..)]`, `#[tied(..)]` or `#[recompute]`, the compiler names
/// `Model` as what they belong to.
#[proc_macro_derive(Model, attributes(sharded, tied, recompute, pipeline_stage))]
pub fn derive_model(item: TokenStream) -> TokenStream {
    entry::derive_model(item.into()).into()
}

/// Makes an impl block the forward function of a model.
///
/// ```text
/// #[forward]
/// impl Mlp {
///     fn forward(&self, x: &Stream) -> Stream {
///         self.down.forward(&self.up.forward(x).silu())
///     }
/// }
/// ```
///
/// The block holds exactly one `fn forward(&self, x: &In) -> Out`, and any other methods. Several inputs go
/// in a tuple: `(x, mask): &(Stream, Mask)`. `forward` stays a method of the type, with the same visibility,
/// and the type implements `Module<In = In, Out = Out>`.
///
/// What the macro adds:
/// - An argument of the wrong type, and a result that is still a partial sum or in flight, get messages
///   that say what to do. So results are checked where they leave `forward`, and their types have to be
///   known there: `.into()` as the last expression needs a type.
/// - A value that has to be used and is dropped (`#[must_use]`) is an error in the block.
/// - Collectives issued in a method are traced under its name (`Mlp::forward`) and its place in the source.
///
/// `#[forward(crate = facade::meshwright)]` gives the path of the `meshwright` crate if another crate re-exports
/// it.
#[proc_macro_attribute]
pub fn forward(args: TokenStream, item: TokenStream) -> TokenStream {
    entry::forward(args.into(), item.into()).into()
}
