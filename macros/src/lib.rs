//! The attribute macros of Meshwright.
//!
//! - [`dims!`] declares named tensor dims.
//! - [`macro@model`] turns a struct of layers into a model, sharded as its fields are annotated.
//! - [`macro@forward`] turns an impl block into the model's forward function.
//! - [`macro@mesh_test`] turns a function into a test that the mesh does not matter.
//!
//! The macros generate declarations and calls; the compiler checks that shardings match, by the traits of the
//! `meshwright` crate. The macros contain nothing about devices or communication.
//!
//! To print expansions to stderr, touch the file and build with `MESHWRIGHT_MACROS_DEBUG=1`.

mod attr;
mod check;
mod diag;
mod dims;
mod entry;
mod expand;
mod forward;
mod fragments;
mod library;
mod mesh_test;
#[cfg(test)]
mod mistakes;
mod model;
#[cfg(test)]
mod snapshots;
mod tokens;
mod variants;

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
/// Every dim becomes a unit struct, `pub` unless declared otherwise, for shapes such as `Tensor<(Batch, Seq, Hidden)>`.
///
/// `@ axis` distributes the dim over that mesh axis in every tensor: each rank of the axis holds a shard. The axes are
/// `dp`, `fsdp`, `ep` and `cp`; `data` stands for all axes over which ranks read different samples (`dp`, `fsdp` and
/// `ep`). A dim without `@` is whole on every rank, unless a shape contains `Split<Hidden, Tp>`. No dim is declared
/// `@ tp`: layers are split by `#[sharded(tp = ..)]`.
///
/// A dim may have doc comments and `#[cfg(..)]`.
///
/// The `meshwright` crate is found in `Cargo.toml`, also under another name. If another crate re-exports it, begin with
/// its path: `crate = facade::meshwright;`.
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
/// allowed, lifetimes are not. `#[cfg(..)]` on a field is respected.
///
/// # `#[sharded(..)]`
///
/// Splits a layer over a mesh axis (its type becomes `<Linear<..> as Shard<Style>>::Sharded`), or makes the parameters
/// of a field an FSDP unit. Several attributes on a field are combined.
///
/// | | |
/// |---|---|
/// | `tp = "col"` | splits the output dim: input whole, output split |
/// | `tp = "row"` | splits the input dim: input split, partial sums reduced over the axis |
/// | `tp = "vocab"` | splits the vocabulary of an embedding or head |
/// | `scatter = Seq` | with `row` and `vocab`: reduce-scatter along this dim (sequence parallelism) |
/// | `fsdp` | the field's parameters are an FSDP unit: unsharded, reduced and updated together |
///
/// ZeRO stages shard parameters by unit. Without `fsdp` each element of a `Stack` is a unit, and each field of the root
/// model. The parameters of a nested unit belong to it alone. `#[sharded(fsdp)]` below `#[model]` makes every value of
/// the struct a unit.
///
/// # `#[recompute(..)]`
///
/// Activation checkpointing: saves only the input of a model, or of each layer of a `Stack`, for backward, which
/// recomputes the rest. The type of the field becomes `<Mlp as Recompute>::Recomputed`.
///
/// | | |
/// |---|---|
/// | `every = 2` | this many consecutive layers of a `Stack` are recomputed together |
/// | `every = "sqrt"` | `ceil(sqrt(L))` of `L` layers are recomputed together |
/// | `save = [attn.core, mlp.down]` | also saves the results of these fields of the model, or of each layer |
/// | `offload` | offloads the saved tensors to host memory until backward needs them |
///
/// The paths of `save` start at a field of the model, or of the layer; their fields must be visible here.
///
/// # `#[tied(path)]`
///
/// Shares the weight of an earlier field: one parameter with two uses.
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
/// # `#[shared]`
///
/// All layers of the innermost `Stack` around the field use the parameters of the first layer that has the field, such
/// as a table of position biases that all layers add.
///
/// # `#[frozen]`
///
/// Freezes the parameters inside the field: they are not trained. They have no gradient, no optimizer state and no part
/// in the gradient norm, and operations before the first trained parameter are not recorded. Checkpoints and exports
/// hold their values.
///
/// # `#[init(..)]`
///
/// Sets the initial values of the parameters inside the field, in place of those of their layers.
///
/// | | |
/// |---|---|
/// | `zeros`, `ones`, `constant(1.5)` | all elements are the number |
/// | `normal(0.02)` | normally distributed with this standard deviation |
/// | `uniform(0.1)` | uniformly distributed between the negative of the number and the number |
/// | `scaled` | normally distributed with the standard deviation `Sizes::init_std / sqrt(2 Layers)` |
/// | `bias = zeros` | the same, of the parameters named `bias` only |
///
/// The attribute of an inner field precedes that of a field around it; `Sizes::with_init` precedes both.
///
/// # `#[pipeline_stage(..)]`
///
/// Pipeline parallelism: the fields with this attribute, in order, are the model's `forward`, which is then declared
/// without a body. They can be on different ranks; a `Stack` can be cut between any two of its layers.
///
/// | | |
/// |---|---|
/// | `last` | the field is used after all stages, by loss and logits only |
/// | `cost = 1.5` | the field, or each layer of a `Stack`, costs as much as 1.5 layers of the first `Stack` |
///
/// Every field is a stage or `last`. Stages pass tensors, tokens, and tuples of up to four of them to each other.
/// On a struct the attribute only checks that its input and output can cross.
///
/// # Kinds of layers
///
/// An enum whose variants hold one layer each is a model too: its values are the layers of one `Stack`, and
/// `Sizes::with_kinds` says which layer is of which kind. All layers take and return the same types. The name of the
/// variant is no part of the paths of parameters.
///
/// ```text
/// #[model]
/// enum Block {
///     Dense(DenseBlock),
///     Moe(MoeBlock),
/// }
/// ```
///
/// # Errors
///
/// All mistakes of a struct are reported together. Attributes similar to those above are reported as misspellings;
/// others are left alone.
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
/// A derive macro cannot change the types of fields, which sharding needs.
#[proc_macro_derive(
    Model,
    attributes(sharded, tied, shared, frozen, init, recompute, pipeline_stage)
)]
pub fn derive_model(item: TokenStream) -> TokenStream {
    entry::derive_model(item.into()).into()
}

/// Attributes that `#[model]` reads and removes, so that the compiler sees them only where `#[model]` is missing, or
/// stands below. A field cannot have an attribute macro; the note says why.
macro_rules! of_model {
    ($($name:ident)*) => {$(
        #[doc(hidden)]
        #[deprecated(note = "it is read by `#[model]`, which has to stand above the struct, and above its other \
                             attributes")]
        #[proc_macro_attribute]
        pub fn $name(_: TokenStream, item: TokenStream) -> TokenStream {
            entry::without_model(stringify!($name), item.into()).into()
        }
    )*};
}

of_model! { sharded tied shared frozen init recompute pipeline_stage }

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
/// The `forward` of a model with pipeline stages has no body, `fn forward(&self, x: &In) -> Out;`: it runs the fields
/// with `#[pipeline_stage]` in order.
///
/// The macro adds:
/// - Diagnostics with a fix for an argument of the wrong type, and for a result that is a partial sum or in flight.
///   Results are checked at the return expression, so their types must be known there: `.into()` as the last expression
///   needs a type.
/// - An error for unused `#[must_use]` values in the block.
/// - The name of the method (`Mlp::forward`) and the source location in traces, for the collectives it issues.
///
/// `#[forward(crate = facade::meshwright)]` gives the path of the `meshwright` crate if another crate re-exports
/// it.
#[proc_macro_attribute]
pub fn forward(args: TokenStream, item: TokenStream) -> TokenStream {
    entry::forward(args.into(), item.into()).into()
}

/// Makes a function a test that the mesh does not matter.
///
/// ```text
/// #[mesh_test(meshes = ["dp=2", "tp=2", "fsdp=2,tp=2"])]
/// fn my_loop(rank: &Rank) -> meshwright::Result<Observed> {
///     let built = build::<Net>(rank, &sizes())?;
///     let mut observed = Observed::new(rank);
///     let loss = built.model.loss(..);
///     observed.loss(loss.reduce().value());
///     observed.gradients(&built, &loss.backward().reduce());
///     Ok(observed)
/// }
/// ```
///
/// The test runs the function on one rank, and on every rank of each mesh, by
/// `meshwright::testing::assert_mesh_independent`. Without `meshes` these are `dp=2`, `fsdp=2`, `tp=2` and
/// `fsdp=2,tp=2`. Other attributes of the function, such as `#[ignore]`, apply to the test.
///
/// `#[mesh_test(crate = facade::meshwright)]` gives the path of the `meshwright` crate if another crate re-exports it.
#[proc_macro_attribute]
pub fn mesh_test(args: TokenStream, item: TokenStream) -> TokenStream {
    entry::mesh_test(args.into(), item.into()).into()
}
