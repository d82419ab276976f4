//! Formatting of tokens, and spans for underlines.

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;

/// Formats tokens with natural spacing: `Linear<Hidden, (Heads, HeadDim)>`.
///
/// Meant for types, paths and attributes; code with braces gets one line per statement.
pub fn shown(tokens: impl ToTokens) -> String {
    let mut text = Text::default();
    text.write(tokens.to_token_stream());
    text.out
}

/// Returns the spans of the first and the last token of `place`.
///
/// On stable Rust spans cannot be joined. But rustc underlines a path or call from its first token to its last; so
/// generated code whose errors belong to `place` begins with the first span and ends with the last.
pub fn ends(place: impl ToTokens) -> (Span, Span) {
    let place = place.to_token_stream();
    let start = place.span();
    let end = place.into_iter().last().map_or(start, |last| match last {
        TokenTree::Group(group) => group.span_close(),
        other => other.span(),
    });
    (start, end)
}

/// Sets the location of tokens to `place`; their name resolution is unchanged.
pub fn relocated(tokens: TokenStream, place: Span) -> TokenStream {
    let move_token = |mut token: TokenTree| {
        token.set_span(token.span().located_at(place));
        token
    };
    tokens.into_iter().map(move_token).collect()
}

/// Returns the tokens of an item before its body, for underlining.
pub fn first_line(item: impl ToTokens) -> TokenStream {
    let is_body = |token: &TokenTree| matches!(token, TokenTree::Group(_));
    item.to_token_stream().into_iter().take_while(|token| !is_body(token)).collect()
}

/// A formatter with roughly rustfmt's spaces and line breaks.
#[derive(Default)]
struct Text {
    out: String,
    /// Depth of braces.
    indent: usize,
    /// Depth of parentheses and brackets within the braces.
    parens: usize,
    /// Depth of `<` within these.
    angles: usize,
    last: Last,
}

/// The kind of the last token, which decides the spacing before the next.
#[derive(Default, PartialEq)]
enum Last {
    #[default]
    Other,
    /// A word; another word needs a space.
    Word,
    /// A keyword, which needs a space after it.
    Keyword,
    /// The `#` of an attribute.
    Hash,
}

impl Text {
    fn write(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(_) | TokenTree::Literal(_) => self.word(&token.to_string()),
                TokenTree::Punct(punct) => {
                    self.punct(punct.as_char(), punct.spacing() == Spacing::Joint);
                }
                TokenTree::Group(group) => {
                    let ends = match tokens.peek() {
                        None => true,
                        Some(TokenTree::Punct(next)) => {
                            matches!(next.as_char(), ',' | ';' | '.' | '?')
                        }
                        Some(_) => false,
                    };
                    self.group(group.delimiter(), group.stream(), !ends);
                }
            }
        }
    }

    fn word(&mut self, word: &str) {
        const KEYWORDS: [&str; 12] = [
            "as", "dyn", "else", "for", "if", "impl", "in", "let", "match", "mut", "return",
            "where",
        ];
        if matches!(self.last, Last::Word | Last::Keyword) {
            self.out.push(' ');
        }
        self.out.push_str(word);
        self.last = if KEYWORDS.contains(&word) { Last::Keyword } else { Last::Word };
    }

    fn punct(&mut self, punct: char, joint: bool) {
        let arrow = punct == '>' && self.out.ends_with(['-', '=']);
        if self.last == Last::Keyword && punct != '<' {
            self.out.push(' ');
        }
        self.last = if punct == '#' { Last::Hash } else { Last::Other };
        match punct {
            ';' | ',' => {
                self.out.push(punct);
                let new_line =
                    self.parens == 0 && self.angles == 0 && (punct == ';' || self.indent > 0);
                if new_line { self.line() } else { self.out.push(' ') }
            }
            '=' | '-' | '+' | '|' if joint || !self.out.ends_with(['=', '-', '+', '!', '|']) => {
                let before = if self.out.ends_with(['(', ' ']) { "" } else { " " };
                let after = if joint { "" } else { " " };
                self.out.push_str(&format!("{before}{punct}{after}"));
            }
            '>' | '=' if arrow || self.out.ends_with('=') => {
                self.out.push_str(&format!("{punct} "))
            }
            ':' if !joint && !self.out.ends_with(':') => self.out.push_str(": "),
            '<' => {
                self.out.push('<');
                self.angles += 1;
            }
            '>' => {
                self.out.push('>');
                self.angles = self.angles.saturating_sub(1);
                self.last = Last::Word;
            }
            _ => self.out.push(punct),
        }
    }

    fn group(&mut self, delimiter: Delimiter, inner: TokenStream, followed: bool) {
        let (open, close) = match delimiter {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::Brace => return self.block(inner, followed),
            Delimiter::None => return self.write(inner),
        };
        let attribute = self.last == Last::Hash;
        if self.last == Last::Keyword {
            self.out.push(' ');
        }
        self.out.push_str(open);
        self.last = Last::Other;
        let angles = std::mem::take(&mut self.angles);
        self.parens += 1;
        self.write(inner);
        self.parens -= 1;
        self.angles = angles;
        self.out.truncate(self.out.trim_end_matches([' ', ',']).len());
        self.out.push_str(close);
        self.last = Last::Word;
        if attribute && followed && self.parens == 0 {
            self.line();
        }
    }

    fn block(&mut self, inner: TokenStream, followed: bool) {
        if !self.out.is_empty() && !self.out.ends_with([' ', '\n', '(']) {
            self.out.push(' ');
        }
        self.out.push('{');
        let (parens, angles) = (std::mem::take(&mut self.parens), std::mem::take(&mut self.angles));
        self.indent += 1;
        self.line();
        self.write(inner);
        self.indent -= 1;
        (self.parens, self.angles) = (parens, angles);
        self.line();
        self.out.push('}');
        if followed {
            self.line();
        }
    }

    /// Begins a new line, unless at the start of one.
    fn line(&mut self) {
        self.out.truncate(self.out.trim_end_matches([' ', '\n']).len());
        self.out.push('\n');
        self.out.push_str(&"    ".repeat(self.indent));
        self.last = Last::Other;
    }
}

/// Writes the text as an `Option` of a string literal.
pub fn option(text: Option<String>) -> TokenStream {
    match text {
        Some(text) => quote::quote!(::core::option::Option::Some(#text)),
        None => quote::quote!(::core::option::Option::None),
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
