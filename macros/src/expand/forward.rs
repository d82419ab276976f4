//! Expansion of `#[forward]`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Block, Expr, ExprAsync, ExprClosure, ExprReturn, FnArg, Ident, ImplItem, ImplItemFn,
    Item, ItemImpl, Path, Stmt, Type, parse_quote, parse_quote_spanned,
};

use crate::attr::Runtime;
use crate::forward::{Forward, Types};
use crate::tokens::{ends, relocated, shown};

/// Writes the impl block with its methods named in traces, and the `Layer` impl that calls its `forward`.
///
/// ```text
/// #[deny(unused_must_use)]
/// impl Mlp {
///     fn forward(&self, x: &impl ForwardInput<Stream>) -> Stream {
///         let x: &Stream = ForwardInput::<Stream>::as_declared(x);
///         let _scope = scope("Mlp::forward");
///         check_output::<Stream>(..)
///     }
/// }
/// impl<X: ForwardInput<Stream>> Layer<X> for Mlp { type Out = Stream; fn forward(..) { Self::forward(self, input) } }
/// impl Module for Mlp { type In = Stream; }
/// impl<X: StageInput<Stream>> PipelineStage<X> for Mlp { type Output = Stream; .. }
/// ```
pub fn expand(forward: &Forward, types: &Types) -> TokenStream {
    let mut item = forward.item.clone();
    let ty = model_name(&item.self_ty);
    for (i, inner) in item.items.iter_mut().enumerate() {
        let ImplItem::Fn(function) = inner else { continue };
        if i == forward.index && !forward.has_body {
            run_stages(&forward.runtime, types, function);
        } else if i == forward.index {
            check_input(&forward.runtime, types, function);
            check_results(&forward.runtime, types, function);
        }
        name_in_traces(&forward.runtime, &ty, function);
    }
    item.attrs.push(parse_quote!(#[deny(unused_must_use)]));
    let module = module_impl(forward, types, quote!(Self::forward(self, input)));
    let staged = (!forward.has_body).then(|| staged_forward_impl(forward, types));
    quote!(#item #module #staged)
}

/// Writes the fallback of an invalid block: the block itself and, if its types are known, a `Layer` impl that avoids
/// errors at its uses.
pub fn fallback(forward: &Forward) -> TokenStream {
    let generic = !forward.function.sig.generics.params.is_empty();
    if matches!(forward.runtime, Runtime::Missing) {
        return without_bodies(forward.item.clone());
    }
    let item = &forward.item;
    let module = forward.types.as_ref().filter(|_| !generic).map(|types| {
        module_impl(
            forward,
            types,
            quote!({
                let _ = input;
                ::core::unreachable!()
            }),
        )
    });
    quote!(#item #module)
}

/// Removes the bodies from the block of a model that cannot be built, as the items that they call do not exist either.
fn without_bodies(mut item: ItemImpl) -> TokenStream {
    for inner in &mut item.items {
        if let ImplItem::Fn(function) = inner {
            function.block = parse_quote!({ ::core::unreachable!() });
        }
    }
    quote!(#[allow(unused_variables)] #item)
}

/// Replaces `x: &In` by a generic argument with the bound `ForwardInput`, whose diagnostics explain a mismatch.
fn check_input(runtime: &Runtime, types: &Types, function: &mut ImplItemFn) {
    let input = &types.input;
    let (start, end) = ends(input);
    let private = runtime.private(start);
    let (pat, attrs) = (&types.param.pat, &types.param.attrs);
    let name = Ident::new("input", Span::mixed_site());
    let bound = quote_spanned!(end=> #private::ForwardInput<#input>);
    let param: FnArg = parse_quote!(#name: &impl #bound);
    for arg in &mut function.sig.inputs {
        if matches!(arg, FnArg::Typed(_)) {
            *arg = param.clone();
        }
    }
    let bind: Stmt = parse_quote_spanned! {end=>
        #(#attrs)*
        let #pat: &#input = #private::ForwardInput::<#input>::as_declared(#name);
    };
    function.block.stmts.insert(0, bind);
}

/// Writes the body of a `forward` without one.
///
/// ```text
/// fn forward(&self, input: &impl ForwardInput<Ids>) -> Stream {
///     forward_stages::<Self>(self, ForwardInput::<Ids>::as_declared(input))
/// }
/// ```
fn run_stages(runtime: &Runtime, types: &Types, function: &mut ImplItemFn) {
    check_input(runtime, types, function);
    let private = runtime.private(function.sig.ident.span());
    let input_type = &types.input;
    let input = Ident::new("input", Span::mixed_site());
    function.block = parse_quote_spanned! {function.sig.ident.span()=> {
        #private::forward_stages::<Self>(self, #private::ForwardInput::<#input_type>::as_declared(#input))
    }};
}

/// Writes the impl that marks a `forward` without a body. It has the span of `forward`, where missing stages are an
/// error.
///
/// ```text
/// impl StagedForward for Llama { type Input = Ids; type Output = Stream; }
/// ```
fn staged_forward_impl(forward: &Forward, types: &Types) -> TokenStream {
    let Forward { item, function, .. } = forward;
    let ItemImpl { generics, self_ty, .. } = item;
    let Types { input, output, .. } = types;
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let cfgs = conditions(&item.attrs).chain(conditions(&function.attrs));
    let place = function.sig.ident.span();
    let private = forward.runtime.private(place);
    let self_ty = relocated(quote!(#self_ty), place);
    quote_spanned! {place=>
        #(#cfgs)*
        #[automatically_derived]
        impl #impl_generics #private::StagedForward for #self_ty #where_clause {
            type Input = #input;
            type Output = #output;
        }
    }
}

/// Passes every result through `check_output`, whose bound has diagnostics for partial sums and pending collectives.
fn check_results(runtime: &Runtime, types: &Types, function: &mut ImplItemFn) {
    let mut results = Results { out: &types.output, runtime };
    results.visit_block_mut(&mut function.block);
    results.tail_of(&mut function.block);
}

/// Inserts the scope that names a method in traces.
///
/// ```text
/// let _scope = scope("Mlp::forward");
/// ```
fn name_in_traces(runtime: &Runtime, ty: &str, function: &mut ImplItemFn) {
    let sig = &function.sig;
    if sig.receiver().is_none() || sig.constness.is_some() || sig.asyncness.is_some() {
        return;
    }
    let name = format!("{ty}::{}", sig.ident);
    let guard = Ident::new("_scope", Span::mixed_site());
    let private = runtime.private(Span::call_site());
    let scope: Stmt = parse_quote!(let #guard = #private::scope(#name););
    function.block.stmts.insert(0, scope);
}

fn module_impl(forward: &Forward, types: &Types, body: TokenStream) -> TokenStream {
    let Forward { item, runtime, .. } = forward;
    let Types { input, output, .. } = types;
    let ItemImpl { generics, self_ty, .. } = item;
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let cfgs = conditions(&item.attrs).chain(conditions(&forward.function.attrs));
    let cfgs: Vec<&Attribute> = cfgs.collect();
    let private = runtime.private(Span::call_site());
    let module = quote!(#private::Module);
    let visit_stages = (!forward.has_body).then(|| {
        quote! {
            fn visit_stages<V: #private::StageVisitor>(
                &self,
                visitor: &mut V,
                input: #private::StageValue<V, <Self as #module>::In>,
            ) -> ::core::option::Option<#private::StageValue<V, #output>> {
                #private::visit_model(self, visitor, input)
            }
        }
    });
    // A type parameter has the scope of the user's types, so its name is unusual.
    let received = Ident::new("__Received", Span::mixed_site());
    let receiving = |bound: TokenStream| {
        let mut generics = generics.clone();
        generics.params.push(parse_quote!(#received: #bound));
        generics
    };
    let layer_generics = receiving(quote!(#private::ForwardInput<#input>));
    let (layer_generics, _, _) = layer_generics.split_for_impl();
    let stage_generics = receiving(quote!(#private::StageInput<#input>));
    let (stage_generics, _, _) = stage_generics.split_for_impl();
    quote! {
        #(#cfgs)*
        #[automatically_derived]
        impl #stage_generics #private::PipelineStage<#received> for #self_ty #where_clause {
            type Output = #output;
            fn run(&self, _: ::core::ops::Range<usize>, input: #received) -> #output {
                #private::run_module(self, input)
            }
        }
        #(#cfgs)*
        #[automatically_derived]
        impl #layer_generics #private::Layer<#received> for #self_ty #where_clause {
            type Out = #output;
            fn forward(&self, input: &#received) -> #output { #body }
        }
        #(#cfgs)*
        #[automatically_derived]
        impl #impl_generics #module for #self_ty #where_clause {
            type In = #input;
            #visit_stages
        }
    }
}

fn conditions(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
}

/// Returns `Mlp` for `crate::nn::Mlp<Hidden>`.
fn model_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => {
            path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()
        }
        other => shown(other),
    }
}

/// Wraps the expressions that give a function's result.
struct Results<'a> {
    out: &'a Type,
    runtime: &'a Runtime,
}

impl Results<'_> {
    /// Wraps the value of a block: that of its last statement, and of one before statements under `cfg`.
    ///
    /// A macro call in braces is left alone, as it may expand to statements.
    fn tail_of(&self, block: &mut Block) {
        for stmt in block.stmts.iter_mut().rev() {
            let Stmt::Expr(tail, None) = stmt else { break };
            let is_conditional = conditions(block_attributes(tail)).next().is_some();
            self.result(tail);
            if !is_conditional {
                break;
            }
        }
    }

    /// Wraps `expr`, or each of its branches, so that the message underlines the branch.
    fn result(&self, expr: &mut Expr) {
        match expr {
            Expr::If(choice) => {
                self.tail_of(&mut choice.then_branch);
                if let Some((_, otherwise)) = &mut choice.else_branch {
                    self.result(otherwise);
                }
            }
            Expr::Match(choice) => {
                choice.arms.iter_mut().for_each(|arm| self.result(&mut arm.body))
            }
            Expr::Block(inner) if inner.label.is_none() => self.tail_of(&mut inner.block),
            Expr::Unsafe(inner) => self.tail_of(&mut inner.block),
            Expr::Paren(inner) => self.result(&mut inner.expr),
            Expr::Tuple(tuple) => match self.out {
                Type::Tuple(out) if out.elems.len() == tuple.elems.len() => {
                    for (element, out) in tuple.elems.iter_mut().zip(&out.elems) {
                        Results { out, runtime: self.runtime }.result(element);
                    }
                }
                _ => self.wrap(expr),
            },
            Expr::Macro(call) if diverges(&call.mac.path) => {}
            Expr::Call(call) if ends_process(&call.func) => {}
            // These have no value to check.
            Expr::Return(_)
            | Expr::Break(_)
            | Expr::Continue(_)
            | Expr::Loop(_)
            | Expr::While(_)
            | Expr::ForLoop(_)
            | Expr::Assign(_) => {}
            _ => self.wrap(expr),
        }
    }

    fn wrap(&self, expr: &mut Expr) {
        let (start, end) = ends(&*expr);
        let (out, private) = (self.out, self.runtime.private(start));
        let call = quote_spanned!(end=> #private::check_output::<#out>);
        *expr = Expr::Verbatim(quote!(#call(#expr)));
    }
}

impl VisitMut for Results<'_> {
    fn visit_expr_return_mut(&mut self, found: &mut ExprReturn) {
        visit_mut::visit_expr_return_mut(self, found);
        if let Some(expr) = &mut found.expr {
            self.result(expr);
        }
    }

    // A `return` in these leaves them, not `forward`.
    fn visit_expr_closure_mut(&mut self, _: &mut ExprClosure) {}
    fn visit_expr_async_mut(&mut self, _: &mut ExprAsync) {}
    fn visit_item_mut(&mut self, _: &mut Item) {}
}

/// Returns true for macros that never return a value.
fn diverges(path: &Path) -> bool {
    const DIVERGING: [&str; 5] = ["todo", "unimplemented", "unreachable", "panic", "compile_error"];
    path.segments.last().is_some_and(|last| DIVERGING.iter().any(|name| last.ident == name))
}

/// Returns true for `std::process::exit` and `abort`, which never return a value.
fn ends_process(function: &Expr) -> bool {
    let Expr::Path(function) = function else { return false };
    let names: Vec<String> =
        function.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    matches!(names.as_slice(), [.., module, name] if module == "process" && (name == "exit" || name == "abort"))
}

/// Returns the attributes of an expression that ends a statement without a semicolon.
fn block_attributes(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Block(expr) => &expr.attrs,
        Expr::If(expr) => &expr.attrs,
        Expr::Match(expr) => &expr.attrs,
        Expr::Unsafe(expr) => &expr.attrs,
        _ => &[],
    }
}
