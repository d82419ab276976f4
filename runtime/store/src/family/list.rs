//! Lists of families, from which a program picks that of a folder, a checkpoint or a flag.

use super::LanguageModel;

/// A list of families that a program trains, made by [`families!`](crate::families).
pub trait FamilyList {
    /// Returns the `model_type` of each family. The first one is that of a new model by default.
    fn names() -> Vec<&'static str>;

    /// Calls `visitor` with the model of a family. Returns `None` if the list does not have it.
    fn with<V: WithFamily>(family: &str, visitor: V) -> Option<V::Out>;
}

/// A function of a model of any family.
pub trait WithFamily {
    /// The result.
    type Out;

    /// Runs with a model.
    fn with<M: LanguageModel>(self) -> Self::Out;
}

/// Declares a list of families: their models, and the lists that it contains.
///
/// ```
/// use meshwright::families;
/// use meshwright::models::{Families, Gpt2, Llama};
/// use meshwright::train::FamilyList;
///
/// families! {
///     /// The families of this program.
///     struct Two: Llama, Gpt2;
/// }
/// assert_eq!(Two::names().first(), Some(&"llama"));
///
/// families! {
///     /// A model of the program, here a Llama, beside the families of the library.
///     struct All: Llama; with Families
/// }
/// assert!(All::names().len() > Two::names().len());
/// ```
#[macro_export]
macro_rules! families {
    ($(#[$meta:meta])* $vis:vis struct $name:ident: $($model:ty),+; $(with $others:ty)?) => {
        $(#[$meta])*
        $vis struct $name;

        impl $crate::family::FamilyList for $name {
            fn names() -> ::std::vec::Vec<&'static str> {
                let mut names = ::std::vec::Vec::new();
                $(names.extend_from_slice($crate::__internal::model_types::<$model>());)+
                $(
                    let others = <$others as $crate::family::FamilyList>::names();
                    let new = others.into_iter().filter(|name| !names.contains(name));
                    let new: ::std::vec::Vec<_> = new.collect();
                    names.extend(new);
                )?
                names
            }

            fn with<V: $crate::family::WithFamily>(
                family: &str,
                visitor: V,
            ) -> ::std::option::Option<V::Out> {
                $(
                    if $crate::__internal::model_types::<$model>().contains(&family) {
                        return ::std::option::Option::Some(visitor.with::<$model>());
                    }
                )+
                $(
                    return <$others as $crate::family::FamilyList>::with(family, visitor);
                    #[allow(unreachable_code)]
                )?
                ::std::option::Option::None
            }
        }
    };
}

/// Returns the `model_type` of each family of a model.
pub fn model_types<M: LanguageModel>() -> &'static [&'static str] {
    <M::Config as crate::checkpoint::hf::HfConfig>::MODEL_TYPES
}
