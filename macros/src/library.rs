//! Expansions in the library's own models.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{ItemImpl, parse_quote};

/// The package of the library's models.
const MODELS: &str = "meshwright-models";

/// Hides the impls of the library's models from lists of the compiler: such a list is for an author, whose own dims and
/// layers would be lost among models that the program may not use. Other expansions stay as they are.
pub fn hide_impls(code: TokenStream) -> TokenStream {
    if std::env::var_os("CARGO_PKG_NAME").is_none_or(|package| package != MODELS) {
        return code;
    }
    let Ok(mut file) = syn::parse2::<syn::File>(code.clone()) else { return code };
    Hide.visit_file_mut(&mut file);
    file.into_token_stream()
}

struct Hide;

impl VisitMut for Hide {
    fn visit_item_impl_mut(&mut self, item: &mut ItemImpl) {
        if item.trait_.is_some() {
            item.attrs.push(parse_quote!(#[diagnostic::do_not_recommend]));
        }
        visit_mut::visit_item_impl_mut(self, item);
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn impls_of_traits_are_hidden() {
        let mut file: syn::File = parse_quote! {
            struct A;
            impl A {}
            const _: () = {
                impl B for A {}
            };
        };
        Hide.visit_file_mut(&mut file);
        let expected = quote! {
            struct A;
            impl A {}
            const _: () = {
                #[diagnostic::do_not_recommend]
                impl B for A {}
            };
        };
        assert_eq!(file.into_token_stream().to_string(), expected.to_string());
    }
}
