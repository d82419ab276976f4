//! Hygiene of expansions: they need no prelude and no crate called `meshwright`, and do not collide with names in
//! scope.

#![deny(warnings, missing_docs)]

#[path = "support/mock.rs"]
pub mod mock;

/// The runtime under another name.
pub mod renamed {
    pub use super::mock as runtime;
}

#[no_implicit_prelude]
#[expect(missing_docs, reason = "the fields of the cases")]
pub mod without_prelude {
    use crate::renamed::runtime as rt;
    use ::meshwright_macros::{dims, forward, mesh_test, model};

    /// Names that an expansion might resolve to by mistake.
    pub mod traps {
        pub struct Build;
        pub struct Whole;
        pub struct Local;
        pub struct BatchDim;
        pub struct Data;
        pub struct Here;
        pub struct Module;
        pub struct Option;
        pub struct Some;
        pub struct Grouping;
        pub struct Recompute;
        pub struct RecomputePolicy;
        pub fn scope() {}
        pub fn drop() {}
    }
    #[allow(unused_imports, reason = "traps are not meant to be used")]
    use traps::*;

    dims! { crate = crate::renamed::runtime; Batch @ data, Seq @ cp, Hidden, Vocab, r#Type }

    #[model(crate = crate::renamed::runtime)]
    pub struct Embed {
        #[sharded(tp = "vocab")]
        pub tokens: rt::Embedding<Vocab, Hidden>,
    }

    #[model(crate = crate::renamed::runtime)]
    #[sharded(fsdp)]
    pub struct Inner<T: rt::Dim> {
        #[recompute(save = [tokens], offload)]
        pub builder: Embed,
        /// A field called like the layer in an expansion.
        #[recompute(every = 2, save = [__layer.tokens])]
        pub child: rt::Stack<Wrapped, 2>,
        #[recompute]
        #[sharded(fsdp)]
        pub r#type: rt::Stack<rt::RmsNorm<T>, 2>,
    }

    #[model(crate = crate::renamed::runtime)]
    pub struct Wrapped {
        pub __layer: Embed,
    }

    #[model(crate = crate::renamed::runtime)]
    pub struct Net<T: rt::Dim> {
        /// A field called like the builder in an expansion.
        builder: Embed,
        #[tied(builder.tokens, when = "tie")]
        #[sharded(tp = "col")]
        child: rt::Linear<Hidden, Vocab>,
        #[cfg(any())]
        r#false: Nothing,
        pub r#type: rt::RmsNorm<T>,
    }

    #[forward(crate = crate::renamed::runtime)]
    impl<T: rt::Dim> Net<T> {
        fn forward(
            &self,
            input: &rt::Tensor<(Batch, Seq, Hidden)>,
        ) -> rt::Tensor<(Batch, Seq, Hidden)> {
            let _scope = &self.builder;
            let returned = rt::Tensor::<(Batch, Seq, Hidden)>::new();
            if false {
                return returned;
            }
            let _ = input;
            returned
        }
    }

    /// A test called like the function that it calls.
    #[mesh_test(crate = crate::renamed::runtime, meshes = ["tp=2"])]
    pub fn assert_mesh_independent(rank: &rt::Rank) -> ::core::result::Result<rt::Observed, ()> {
        ::core::result::Result::Ok(rt::Observed::new(rank))
    }
}

macro_rules! model_in_a_macro {
    ($name:ident, $field:ident: $ty:ty) => {
        #[meshwright_macros::model(crate = $crate::mock)]
        struct $name {
            #[sharded(tp = "col")]
            $field: $ty,
        }

        #[meshwright_macros::forward(crate = $crate::mock)]
        impl $name {
            fn forward(&self, x: &mock::Tensor<u8>) -> mock::Tensor<u8> {
                let _ = &self.$field;
                x.split()
            }
        }
    };
}

use without_prelude::{Hidden, Vocab};
model_in_a_macro!(FromMacro, up: mock::Linear<Hidden, Vocab>);

#[test]
fn models_without_a_prelude_are_built() {
    use mock::{Build, Builder, Dim, Model};
    let mut builder = Builder::new();
    without_prelude::Net::<Hidden>::build(&mut builder);
    FromMacro::build(&mut builder);
    without_prelude::Inner::<Hidden>::build(&mut builder.field("inner"));
    assert_eq!(
        builder.log(),
        [
            ".builder.tokens",
            ".child -> builder.tokens when tie",
            ".child",
            ".type",
            ".up",
            ".inner is a unit",
            ".inner.builder recomputes Every(1) but [\"tokens\"], offloading",
            ".inner.builder.tokens",
            ".inner.child recomputes Every(2) but [\"__layer.tokens\"]",
            ".inner.child.__layer.tokens",
            ".inner.child.__layer.tokens",
            ".inner.type is a unit",
            ".inner.type recomputes Every(1) but []",
            ".inner.type",
            ".inner.type",
        ]
    );
    assert_eq!(without_prelude::Type::NAME, "Type");
    assert_eq!(FromMacro::describe().fields[0].sharded, Some("tp = \"col\""));
}
