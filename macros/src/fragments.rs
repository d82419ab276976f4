//! Handling of `macro_rules!` fragments, such as `$e:expr`, in an item written by another macro.
//!
//! rustc passes a fragment in a group without delimiters, and ignores that group in the output of a macro: `$e * 0.5`
//! with `x + x` for `$e` would become `x + x * 0.5`. So an expression that is an operand gets parentheses here, and
//! all other groups are dissolved.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::quote;
use syn::parse::Parser;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, ExprParen, ImplItemFn, Item, Pat, Type, TypeParen, UnOp, token};

/// Parses an item, with the groups of fragments dissolved.
pub fn parse_item(tokens: TokenStream) -> syn::Result<Item> {
    let tokens = rewrite(&tokens, false, before_parsing).unwrap_or(tokens);
    let mut item = syn::parse2(tokens)?;
    Dissolve.visit_item_mut(&mut item);
    Ok(item)
}

/// Dissolves the groups of fragments in a function that `syn` did not parse as part of its item.
pub fn dissolve(function: &mut ImplItemFn) {
    Dissolve.visit_impl_item_fn_mut(function);
}

/// A fragment among tokens.
struct Fragment<'a> {
    /// True if it is among statements or match arms.
    in_braces: bool,
    before: Option<&'a TokenTree>,
    content: &'a TokenStream,
    after: Option<&'a TokenTree>,
}

/// The replacement of a fragment's group.
#[derive(PartialEq)]
enum Fate {
    Kept,
    Dissolved,
    /// Dissolved, with a semicolon.
    Ended,
    Parenthesized,
}

/// Rewrites every fragment in `tokens`, innermost first; `None` if all are kept. Unchanged groups are reused, as a new
/// group would have only one span.
fn rewrite(
    tokens: &TokenStream,
    in_braces: bool,
    decide: fn(Fragment<'_>) -> Fate,
) -> Option<TokenStream> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut changed = false;
    let mut written = TokenStream::new();
    for (i, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else {
            written.extend([token.clone()]);
            continue;
        };
        let before = i.checked_sub(1).map(|i| &tokens[i]);
        let has_statements = match group.delimiter() {
            Delimiter::Brace => !is_punct(before, "!"),
            Delimiter::None => in_braces,
            _ => false,
        };
        let rewritten = rewrite(&group.stream(), has_statements, decide);
        let content = rewritten.clone().unwrap_or_else(|| group.stream());
        let fate = match group.delimiter() {
            Delimiter::None => {
                decide(Fragment { in_braces, before, content: &content, after: tokens.get(i + 1) })
            }
            _ => Fate::Kept,
        };
        changed |= rewritten.is_some() || fate != Fate::Kept;
        match fate {
            Fate::Kept if rewritten.is_none() => written.extend([token.clone()]),
            Fate::Kept => written.extend([regrouped(group.delimiter(), content, group.span())]),
            Fate::Dissolved => written.extend(content),
            Fate::Ended => written.extend(quote!(#content;)),
            Fate::Parenthesized => {
                // With this span rustc does not report the parentheses as unnecessary.
                let span = Span::mixed_site().located_at(group.span());
                written.extend([regrouped(Delimiter::Parenthesis, content, span)]);
            }
        }
    }
    changed.then_some(written)
}

fn regrouped(delimiter: Delimiter, content: TokenStream, span: Span) -> TokenTree {
    let mut group = Group::new(delimiter, content);
    group.set_span(span);
    TokenTree::Group(group)
}

/// Chooses the replacement of fragments that `syn` would parse differently from rustc: statements without a semicolon,
/// and patterns with an operator before them.
fn before_parsing(Fragment { in_braces, before, content, after }: Fragment<'_>) -> Fate {
    if is_let(content) {
        if in_braces && !is_punct(after, ";") { Fate::Ended } else { Fate::Dissolved }
    } else if in_braces && begins_statement(after) && is_block(content) {
        Fate::Dissolved
    } else if (binds_pattern(before) || is_punct(after, "|")) && is_compound_pattern(content) {
        Fate::Parenthesized
    } else {
        Fate::Kept
    }
}

/// Returns true if a fragment is a `let` statement, which no expression is.
fn is_let(content: &TokenStream) -> bool {
    matches!(content.clone().into_iter().next(), Some(TokenTree::Ident(word)) if word == "let")
}

/// Returns true if a fragment can be a statement or the body of a match arm without a separator after it.
fn is_block(content: &TokenStream) -> bool {
    syn::parse2(content.clone()).is_ok_and(|expr| has_own_end(&expr))
}

/// Returns true if `token` begins a statement or match arm, and cannot continue an expression.
fn begins_statement(token: Option<&TokenTree>) -> bool {
    match token {
        Some(TokenTree::Ident(word)) => word != "as" && word != "else",
        Some(TokenTree::Literal(_)) => true,
        Some(TokenTree::Group(group)) => {
            matches!(group.delimiter(), Delimiter::Brace | Delimiter::None)
        }
        Some(TokenTree::Punct(punct)) => matches!(punct.as_char(), '#' | '\''),
        None => false,
    }
}

/// Returns true if the pattern after `token` must be a single term: `&$p`, `&mut $p`, `x @ $p`, `|$p|`.
fn binds_pattern(token: Option<&TokenTree>) -> bool {
    is_punct(token, "&@|") || matches!(token, Some(TokenTree::Ident(word)) if word == "mut")
}

/// Returns true if a fragment is a pattern such as `A | B` or `0..=9`.
fn is_compound_pattern(content: &TokenStream) -> bool {
    let mut tokens = content.clone().into_iter();
    tokens.any(|token| is_punct(Some(&token), "|."))
        && Pat::parse_multi
            .parse2(content.clone())
            .is_ok_and(|pat| matches!(pat, Pat::Or(_) | Pat::Range(_)))
}

fn is_punct(token: Option<&TokenTree>, any_of: &str) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if any_of.contains(punct.as_char()))
}

/// Dissolves the groups of fragments in syntax trees.
///
/// `syn` inserts parentheses too if a tree needs them. The parentheses inserted here keep the span of the fragment.
struct Dissolve;

impl VisitMut for Dissolve {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        operands(expr).into_iter().for_each(parenthesize);
        while let Expr::Group(group) = expr {
            if !group.attrs.is_empty() {
                parenthesize_group(expr);
                break;
            }
            *expr = take(&mut group.expr);
            operands(expr).into_iter().for_each(parenthesize);
        }
        visit_mut::visit_expr_mut(self, expr);
    }

    fn visit_type_mut(&mut self, ty: &mut Type) {
        match ty {
            Type::Reference(reference) => parenthesize_bounds(&mut reference.elem),
            Type::Ptr(pointer) => parenthesize_bounds(&mut pointer.elem),
            _ => {}
        }
        while let Type::Group(group) = ty {
            *ty = std::mem::replace(&mut group.elem, Type::Verbatim(TokenStream::new()));
        }
        visit_mut::visit_type_mut(self, ty);
    }

    // The tokens of macro calls, and tokens that `syn` does not parse.
    fn visit_token_stream_mut(&mut self, tokens: &mut TokenStream) {
        if let Some(rewritten) = rewrite(tokens, false, in_macro_call) {
            *tokens = rewritten;
        }
    }

    fn visit_attribute_mut(&mut self, _: &mut Attribute) {}
}

/// Returns the operands of an expression.
fn operands(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::Assign(expr) => vec![&mut expr.left, &mut expr.right],
        Expr::Await(expr) => vec![&mut expr.base],
        Expr::Binary(expr) => vec![&mut expr.left, &mut expr.right],
        Expr::Call(expr) => vec![&mut expr.func],
        Expr::Cast(expr) => vec![&mut expr.expr],
        Expr::Field(expr) => vec![&mut expr.base],
        Expr::Index(expr) => vec![&mut expr.expr],
        Expr::MethodCall(expr) => vec![&mut expr.receiver],
        Expr::Range(expr) => {
            expr.start.iter_mut().chain(&mut expr.end).map(|end| &mut **end).collect()
        }
        Expr::RawAddr(expr) => vec![&mut expr.expr],
        Expr::Reference(expr) => vec![&mut expr.expr],
        Expr::Try(expr) => vec![&mut expr.expr],
        Expr::Unary(expr) => vec![&mut expr.expr],
        _ => Vec::new(),
    }
}

fn parenthesize(operand: &mut Expr) {
    let mut inner = &*operand;
    while let Expr::Group(group) = inner {
        inner = &group.expr;
    }
    if !is_term(inner) {
        parenthesize_group(operand);
    }
}

/// Replaces a group by parentheses; other expressions are unchanged.
fn parenthesize_group(expr: &mut Expr) {
    if let Expr::Group(group) = expr {
        *expr = Expr::Paren(ExprParen {
            attrs: std::mem::take(&mut group.attrs),
            paren_token: token::Paren(group.group_token.span),
            expr: Box::new(take(&mut group.expr)),
        });
    }
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Verbatim(TokenStream::new()))
}

/// Adds parentheses to `dyn A + B` after `&`.
fn parenthesize_bounds(ty: &mut Type) {
    let Type::Group(group) = ty else { return };
    let n_bounds = match &*group.elem {
        Type::TraitObject(object) => object.bounds.len(),
        Type::ImplTrait(opaque) => opaque.bounds.len(),
        _ => return,
    };
    if n_bounds > 1 {
        *ty = Type::Paren(TypeParen {
            attrs: Vec::new(),
            paren_token: token::Paren(group.group_token.span),
            elem: group.elem.clone(),
        });
    }
}

/// Returns true if no operator can bind to a part of the expression.
fn is_term(expr: &Expr) -> bool {
    let is_operator = matches!(
        expr,
        Expr::Assign(_)
            | Expr::Binary(_)
            | Expr::Break(_)
            | Expr::Cast(_)
            | Expr::Closure(_)
            | Expr::Let(_)
            | Expr::Range(_)
            | Expr::RawAddr(_)
            | Expr::Reference(_)
            | Expr::Return(_)
            | Expr::Struct(_)
            | Expr::Unary(_)
            | Expr::Verbatim(_)
            | Expr::Yield(_)
    );
    !is_operator && !has_own_end(expr)
}

/// Returns true if an expression ends a statement without a semicolon.
fn has_own_end(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Block(_)
            | Expr::Const(_)
            | Expr::ForLoop(_)
            | Expr::If(_)
            | Expr::Loop(_)
            | Expr::Match(_)
            | Expr::TryBlock(_)
            | Expr::Unsafe(_)
            | Expr::While(_)
    )
}

/// Chooses the replacement of a fragment among the unparsed tokens of a macro call.
///
/// There a fragment is one token tree, also for another `macro_rules!`. Possible paths, types, literals, blocks and
/// attributes are unchanged, as they take no parentheses.
fn in_macro_call(Fragment { content, after, .. }: Fragment<'_>) -> Fate {
    if is_loose(content, after) { Fate::Parenthesized } else { Fate::Kept }
}

/// Returns true if a fragment before `after` can only be an expression of more than one token tree.
fn is_loose(content: &TokenStream, after: Option<&TokenTree>) -> bool {
    let Ok(expr) = syn::parse2::<Expr>(content.clone()) else { return false };
    match &expr {
        Expr::Assign(_) | Expr::Block(_) | Expr::Let(_) | Expr::Verbatim(_) => false,
        Expr::Unary(unary) if matches!((&unary.op, &*unary.expr), (UnOp::Neg(_), Expr::Lit(_))) => {
            is_method_call(after)
        }
        Expr::Await(_) | Expr::Field(_) | Expr::Index(_) | Expr::MethodCall(_) | Expr::Try(_) => {
            true
        }
        other => !is_term(other),
    }
}

/// Returns true if `after` begins `.method()`, `?`, `(..)` or `[..]`.
fn is_method_call(after: Option<&TokenTree>) -> bool {
    match after {
        Some(TokenTree::Punct(punct)) => match punct.as_char() {
            '?' => true,
            '.' => punct.spacing() == proc_macro2::Spacing::Alone,
            _ => false,
        },
        Some(TokenTree::Group(group)) => {
            matches!(group.delimiter(), Delimiter::Parenthesis | Delimiter::Bracket)
        }
        _ => false,
    }
}
