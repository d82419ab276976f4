//! Tokens as text, and text positions for tokens.

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;

/// Writes tokens the way a person would: `Linear<Hidden, (Heads, HeadDim)>`.
///
/// Good for types, paths and attributes; code with braces gets a line for each statement.
pub fn shown(tokens: impl ToTokens) -> String {
    let mut text = Text::default();
    text.write(tokens.to_token_stream());
    text.out
}

/// Where `place` begins and ends.
///
/// On stable Rust a span cannot be joined with another. But rustc underlines a path or call from its first
/// token to its last; so generated code that should fail at `place` begins with the one and ends with the
/// other.
pub fn ends(place: impl ToTokens) -> (Span, Span) {
    let place = place.to_token_stream();
    let start = place.span();
    let end = place.into_iter().last().map_or(start, |last| match last {
        TokenTree::Group(group) => group.span_close(),
        other => other.span(),
    });
    (start, end)
}

/// Moves tokens to `place`; what they refer to stays.
pub fn relocated(tokens: TokenStream, place: Span) -> TokenStream {
    let move_token = |mut token: TokenTree| {
        token.set_span(token.span().located_at(place));
        token
    };
    tokens.into_iter().map(move_token).collect()
}

/// An item up to its body, to be underlined.
pub fn first_line(item: impl ToTokens) -> TokenStream {
    let is_body = |token: &TokenTree| matches!(token, TokenTree::Group(_));
    item.to_token_stream().into_iter().take_while(|token| !is_body(token)).collect()
}

#[derive(Default)]
struct Text {
    out: String,
    indent: usize,
    in_parens: usize,
    /// The last token was a word, so that another word needs a space before it.
    after_word: bool,
}

impl Text {
    fn write(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(_) | TokenTree::Literal(_) => self.word(&token.to_string()),
                TokenTree::Punct(punct) => {
                    let joint = punct.spacing() == Spacing::Joint;
                    self.punct(punct.as_char(), joint);
                }
                TokenTree::Group(group) => {
                    let followed = tokens.peek().is_some();
                    self.group(group.delimiter(), group.stream(), followed);
                }
            }
        }
    }

    fn word(&mut self, word: &str) {
        if self.after_word {
            self.out.push(' ');
        }
        self.out.push_str(word);
        self.after_word = true;
    }

    fn punct(&mut self, punct: char, joint: bool) {
        self.after_word = false;
        let continues = self.out.ends_with(['-', '=', '+', ':', '|', '&', '!', '<', '>']);
        match punct {
            ';' if self.in_parens > 0 => self.out.push_str("; "),
            ';' => {
                self.out.push(';');
                self.line();
            }
            ',' => self.out.push_str(", "),
            '=' | '-' | '+' if !continues => {
                self.out.push(' ');
                self.out.push(punct);
                if !joint {
                    self.out.push(' ');
                }
            }
            '>' | '=' if self.out.ends_with(['-', '=']) => {
                self.out.push(punct);
                self.out.push(' ');
            }
            ':' if !joint && !self.out.ends_with(':') => self.out.push_str(": "),
            '>' => {
                self.out.push('>');
                self.after_word = true;
            }
            _ => self.out.push(punct),
        }
        if self.out.ends_with(' ') {
            self.after_word = false;
        }
    }

    fn group(&mut self, delimiter: Delimiter, inner: TokenStream, followed: bool) {
        let (open, close) = match delimiter {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::Brace => return self.block(inner, followed),
            Delimiter::None => ("", ""),
        };
        self.out.push_str(open);
        self.after_word = false;
        self.in_parens += 1;
        self.write(inner);
        self.in_parens -= 1;
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push_str(close);
        self.after_word = true;
    }

    fn block(&mut self, inner: TokenStream, followed: bool) {
        if !self.out.is_empty() && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
        self.out.push('{');
        self.after_word = false;
        self.indent += 1;
        self.line();
        let in_parens = std::mem::take(&mut self.in_parens);
        self.write(inner);
        self.in_parens = in_parens;
        self.indent -= 1;
        self.line();
        self.out.push('}');
        if followed {
            self.line();
        }
    }

    /// Begins a new line, once.
    fn line(&mut self) {
        self.out.truncate(self.out.trim_end_matches([' ', '\n']).len());
        self.out.push('\n');
        self.out.push_str(&"    ".repeat(self.indent));
        self.after_word = false;
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn types_read_as_written() {
        for (tokens, text) in [
            (quote!(Linear<Hidden, (Heads, HeadDim)>), "Linear<Hidden, (Heads, HeadDim)>"),
            (quote!(crate::nn::Stack<Block, 4>), "crate::nn::Stack<Block, 4>"),
            (quote!(Box<dyn Fn(A) -> B + Send>), "Box<dyn Fn(A) -> B + Send>"),
            (quote!([f32; N]), "[f32; N]"),
            (quote!(<T as Shard<Col<Tp>>>::Sharded), "<T as Shard<Col<Tp>>>::Sharded"),
            (quote!(#[sharded(tp = "col")]), "#[sharded(tp = \"col\")]"),
        ] {
            assert_eq!(shown(tokens), text);
        }
    }
}
