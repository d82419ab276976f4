//! `fold = [cp, tp]`: further axes over which experts are split.

use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Ident, Token, bracketed, token};

use super::args::Shown;
use crate::diag::{Ctxt, expected};

/// Axes that experts can be folded over, from the outermost to the innermost, by name and runtime type.
const AXES: [(&str, &str); 2] = [("cp", "Cp"), ("tp", "Tp")];

/// The axes of `fold`.
#[derive(Default)]
pub struct Fold(Vec<Ident>);

impl Fold {
    /// Parses the list after `fold =`. Unknown and repeated axes are reported, and left out.
    pub fn parse(cx: &Ctxt, input: ParseStream) -> syn::Result<Fold> {
        let mut axes: Vec<Ident> = Vec::new();
        if !input.peek(token::Bracket) {
            return Err(input.error("`fold` takes axes in brackets: `fold = [tp]`"));
        }
        let list;
        bracketed!(list in input);
        while !list.is_empty() {
            let axis = list.call(Ident::parse_any)?;
            let word = axis.to_string();
            if axes.contains(&axis) {
                cx.error(axis.span(), format_args!("`{word}` is given twice in `fold`: keep one"));
            } else if AXES.iter().any(|(name, _)| *name == word) {
                axes.push(axis);
            } else {
                let expected = expected(&word, &AXES.map(|(name, _)| name));
                cx.error(
                    axis.span(),
                    format_args!("experts cannot be folded over `{word}`: {expected}"),
                );
            }
            list.parse::<Option<Token![,]>>()?;
        }
        Ok(Fold(axes))
    }

    /// Returns the runtime types of the axes, from the outermost to the innermost.
    pub fn runtime_axes(&self) -> impl Iterator<Item = &'static str> {
        let is_given = |name: &str| self.0.iter().any(|axis| axis == name);
        AXES.into_iter().filter(move |(name, _)| is_given(name)).map(|(_, runtime)| runtime)
    }
}

impl Shown for Fold {
    fn shown(&self) -> String {
        let names: Vec<String> = self.0.iter().map(Ident::to_string).collect();
        format!("[{}]", names.join(", "))
    }
}
