//! Every mistake the macros find by themselves: the words underlined, and the message.

use proc_macro2::TokenStream;

use crate::diag::Ctxt;
use crate::entry;

type Macro = fn(&Ctxt, TokenStream) -> TokenStream;
/// A name for the case, the item, and for every error what it underlines and says.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

fn check(expand: Macro, cases: &[Case]) {
    for (name, source, wanted) in cases {
        let cx = Ctxt::new();
        let code = expand(&cx, source.parse().expect("a case is made of tokens"));
        let found: Vec<(String, String)> = cx
            .take()
            .iter()
            .map(|error| (error.span().source_text().unwrap_or_default(), error.to_string()))
            .collect();
        let wanted: Vec<_> =
            wanted.iter().map(|(at, says)| (at.to_string(), says.to_string())).collect();
        assert_eq!(found, wanted, "case `{name}`");
        let code = syn::parse2::<syn::File>(code);
        assert!(code.is_ok(), "case `{name}` does not leave valid Rust: {:?}", code.err());
    }
}

fn model(cx: &Ctxt, item: TokenStream) -> TokenStream {
    entry::model_code(cx, TokenStream::new(), item)
}

fn forward(cx: &Ctxt, item: TokenStream) -> TokenStream {
    entry::forward_code(cx, TokenStream::new(), item)
}

fn dims(cx: &Ctxt, list: TokenStream) -> TokenStream {
    crate::dims::dims(cx, list)
}

#[test]
fn in_dims() {
    check(
        dims,
        &[
            (
                "unknown axis",
                "Batch @ daat, Hidden",
                &[(
                    "daat",
                    "unknown mesh axis `daat` for the dim `Batch`: expected `data`, `dp`, `fsdp`, `ep`, `cp`, `tp` or \
             `pp`; did you mean `data`?",
                )],
            ),
            (
                "upper-case axis",
                "Batch @ Data",
                &[(
                    "Data",
                    "unknown mesh axis `Data` for the dim `Batch`: expected `data`, `dp`, `fsdp`, `ep`, `cp`, `tp` or \
             `pp`; did you mean `data`?",
                )],
            ),
            (
                "no axis",
                "Batch @, Hidden",
                &[(
                    ",",
                    "`Batch @` needs a mesh axis: `data`, `dp`, `fsdp`, `ep`, `cp`, `tp` or `pp`",
                )],
            ),
            (
                "twice",
                "Seq @ cp, Seq",
                &[("Seq", "the dim `Seq` is declared twice; the first is `Seq @ cp`: keep one")],
            ),
            (
                "lower case",
                "kv_heads",
                &[("kv_heads", "a dim is a type: call it `KvHeads` instead of `kv_heads`")],
            ),
            (
                "no comma",
                "Seq Hidden, Ffn",
                &[("Hidden", "expected `,` or `@ axis` after the dim `Seq`")],
            ),
            (
                "no name",
                "Seq, 7",
                &[("7", "expected the name of a dim, such as `Hidden` or `Batch @ data`")],
            ),
            ("chosen by cfg", "#[cfg(unix)] Seq @ cp, #[cfg(not(unix))] Seq", &[]),
            (
                "all at once",
                "Batch @ dat, hidden, Ffn Ffn2, Batch",
                &[
                    (
                        "dat",
                        "unknown mesh axis `dat` for the dim `Batch`: expected `data`, `dp`, `fsdp`, `ep`, `cp`, `tp` \
                 or `pp`; did you mean `data`?",
                    ),
                    ("hidden", "a dim is a type: call it `Hidden` instead of `hidden`"),
                    ("Ffn2", "expected `,` or `@ axis` after the dim `Ffn`"),
                    ("Batch", "the dim `Batch` is declared twice; the first is `Batch`: keep one"),
                ],
            ),
        ],
    );
}

#[test]
fn in_model() {
    check(
        model,
        &[
            (
                "unknown style",
                r#"struct M { #[sharded(tp = "colum")] a: L }"#,
                &[(
                    r#""colum""#,
                    "unknown style `colum` for axis `tp`: expected `col`, `row` or `vocab`; did you mean `col`?",
                )],
            ),
            (
                "style far from any",
                r#"struct M { #[sharded(tp = "ring")] a: L }"#,
                &[(
                    r#""ring""#,
                    "unknown style `ring` for axis `tp`: expected `col`, `row` or `vocab`",
                )],
            ),
            (
                "style that is no string",
                "struct M { #[sharded(tp = 3)] a: L }",
                &[("3", "unknown style `3` for axis `tp`: expected `col`, `row` or `vocab`")],
            ),
            (
                "style without quotes",
                "struct M { #[sharded(tp = col)] a: L }",
                &[("col", r#"quote the style: `tp = "col"`"#)],
            ),
            (
                "unknown axis",
                r#"struct M { #[sharded(tpp = "col")] a: L }"#,
                &[(
                    "tpp",
                    "unknown axis or option `tpp` in `#[sharded(..)]`: expected `tp` or `scatter`; did you mean `tp`?",
                )],
            ),
            (
                "axis of a later version",
                r#"struct M { #[sharded(cp = "ring")] a: L, #[sharded(ep = "experts")] b: L, #[sharded(fsdp)] c: L }"#,
                &[
                    (
                        "cp",
                        "`cp` (context-parallel attention) comes in a later version; in this one `#[sharded]` takes `tp` or `scatter`",
                    ),
                    (
                        "ep",
                        "`ep` (expert parallelism) comes in a later version; in this one `#[sharded]` takes `tp` or `scatter`",
                    ),
                    (
                        "fsdp",
                        "`fsdp` (sharding parameters over the data ranks) comes in a later version; in this one `#[sharded]` takes `tp` or `scatter`",
                    ),
                ],
            ),
            (
                "axis that is set elsewhere",
                r#"struct M { #[sharded(dp = "col")] a: L, #[sharded(pp = 2)] b: L }"#,
                &[
                    (
                        "dp",
                        "`dp` is not for `#[sharded]`: data parallelism needs no attribute: set `--mesh dp=N`",
                    ),
                    (
                        "pp",
                        "`pp` is not for `#[sharded]`: pipeline stages are cut by their own attribute, which is not in this version yet",
                    ),
                ],
            ),
            (
                "no value",
                r#"struct M { #[sharded(tp)] a: L, #[sharded(tp = )] b: L, #[sharded(tp = "row", scatter)] c: L }"#,
                &[
                    ("tp", r#"`tp` needs a value: `tp = "col"`"#),
                    ("tp", r#"`tp` needs a value: `tp = "col"`"#),
                    ("scatter", "`scatter` needs a value: `scatter = Seq`"),
                ],
            ),
            (
                "no key",
                r#"struct M { #[sharded("col")] a: L }"#,
                &[(r#""col""#, r#"`"col"` stands here without a key: write `key = "col"`"#)],
            ),
            (
                "no arguments",
                r#"struct M { #[sharded] a: L, #[sharded()] b: L, #[sharded = "col"] c: L }"#,
                &[
                    ("#[sharded]", r#"write `#[sharded(tp = "col")]`"#),
                    (
                        "#[sharded()]",
                        r#"`#[sharded]` has to say how the layer is cut: `#[sharded(tp = "col")]`, `"row"` or `"vocab"`"#,
                    ),
                    (r#"#[sharded = "col"]"#, r#"write `#[sharded(tp = "col")]`"#),
                ],
            ),
            (
                "no style",
                "struct M { #[sharded(scatter = Seq)] a: L }",
                &[(
                    "#[sharded(scatter = Seq)]",
                    r#"`#[sharded]` has to say how the layer is cut: `#[sharded(tp = "col")]`, `"row"` or `"vocab"`"#,
                )],
            ),
            (
                "no comma",
                r#"struct M { #[sharded(tp = "row" scatter = Seq)] a: L }"#,
                &[("scatter", "expected `,`")],
            ),
            (
                "scatter without a sum",
                r#"struct M { #[sharded(tp = "col", scatter = Seq)] a: L }"#,
                &[(
                    "scatter",
                    "`scatter` goes with `row` or `vocab`, which end in a sum; a `col` layer leaves its output split: remove `scatter` from `a`",
                )],
            ),
            (
                "quoted dim",
                r#"struct M { #[sharded(tp = "row", scatter = "Seq")] a: L }"#,
                &[(r#""Seq""#, "write it without quotes: `scatter = Seq`")],
            ),
            (
                "dim that is no path",
                r#"struct M { #[sharded(tp = "row", scatter = 1)] a: L }"#,
                &[("1", "`scatter` takes a dim declared with `dims!`: `scatter = Seq`")],
            ),
            (
                "scatter misspelled",
                r#"struct M { #[sharded(tp = "row", scater = Seq)] a: L }"#,
                &[(
                    "scater",
                    "unknown axis or option `scater` in `#[sharded(..)]`: expected `tp` or `scatter`; did you mean `scatter`?",
                )],
            ),
            (
                "attribute twice",
                r#"struct M { #[sharded(tp = "col")] #[sharded(tp = "row")] a: L }"#,
                &[(
                    r#"#[sharded(tp = "row")]"#,
                    r#"`#[sharded]` is given twice on `a`; the first is `#[sharded(tp = "col")]`: keep one"#,
                )],
            ),
            (
                "axis twice",
                r#"struct M { #[sharded(tp = "col", tp = "row")] a: L }"#,
                &[(
                    "tp",
                    r#"`tp` is given twice in `#[sharded(..)]`; the first is `tp = "col"`: keep one"#,
                )],
            ),
            (
                "scatter twice",
                r#"struct M { #[sharded(tp = "row", scatter = Seq, scatter = Batch)] a: L }"#,
                &[(
                    "scatter",
                    "`scatter` is given twice in `#[sharded(..)]`; the first is `scatter = Seq`: keep one",
                )],
            ),
            (
                "misspelled attributes",
                r#"struct M { #[shared(tp = "col")] a: L, #[tyed(a.w)] b: L, #[recompte] c: L, #[pipeline] d: L }"#,
                &[
                    ("shared", "unknown attribute `shared`; did you mean `sharded`?"),
                    ("tyed", "unknown attribute `tyed`; did you mean `tied`?"),
                    (
                        "recompte",
                        "unknown attribute `recompte`; did you mean `recompute` (comes in a later version)?",
                    ),
                    (
                        "pipeline",
                        "unknown attribute `pipeline`; did you mean `pipeline_stage` (comes in a later version)?",
                    ),
                ],
            ),
            (
                "attribute with a path",
                r#"struct M { #[meshwright::sharded(tp = "col")] a: L }"#,
                &[(
                    "meshwright::sharded",
                    "inside `#[model]` write `#[sharded(..)]`, without a path",
                )],
            ),
            (
                "attributes of others",
                "struct M { /** doc */ #[serde(skip)] #[cfg(unix)] #[deprecated] #[other::tool(x)] #[allow(unused)] a: L }",
                &[],
            ),
            (
                "attributes of later versions",
                "struct M { #[recompute(every = 2)] a: L, #[pipeline_stage] b: L }",
                &[
                    (
                        "#[recompute(every = 2)]",
                        "`#[recompute]` (recomputing activations in the backward pass) comes in a later version: remove it for now",
                    ),
                    (
                        "#[pipeline_stage]",
                        "`#[pipeline_stage]` (cutting the model into pipeline stages) comes in a later version: remove it for now",
                    ),
                ],
            ),
            (
                "attributes of fields on the struct",
                r#"#[sharded(tp = "col")] #[pipeline_stage] struct M { a: L }"#,
                &[
                    (
                        r#"#[sharded(tp = "col")]"#,
                        r#"`#[sharded(tp = "col")]` goes on a field, not on the struct"#,
                    ),
                    (
                        "#[pipeline_stage]",
                        "`#[pipeline_stage]` (cutting the model into pipeline stages) comes in a later version: remove it for now",
                    ),
                ],
            ),
            (
                "attribute in cfg_attr",
                r#"struct M { #[cfg_attr(unix, sharded(tp = "col"))] a: L }"#,
                &[(
                    r#"#[cfg_attr(unix, sharded(tp = "col"))]"#,
                    "`sharded` in `cfg_attr` is not seen by `#[model]`: write the field `a` twice, once for each `#[cfg(..)]`",
                )],
            ),
            (
                "tie to nothing",
                r#"struct M { #[tied] a: L, #[tied()] b: L, #[tied(when = "k")] c: L }"#,
                &[
                    ("#[tied]", "write `#[tied(embed.tokens)]`"),
                    (
                        "#[tied()]",
                        "`#[tied]` has to say which weight is shared: `#[tied(embed.tokens)]`, a path of fields from this struct on",
                    ),
                    (
                        r#"#[tied(when = "k")]"#,
                        "`#[tied]` has to say which weight is shared: `#[tied(embed.tokens)]`, a path of fields from this struct on",
                    ),
                ],
            ),
            (
                "tie to an unknown field",
                "struct M { embed: E, #[tied(embd.tokens)] head: L }",
                &[("embd", "no field `embd` before `head`; did you mean `embed`?")],
            ),
            (
                "tie to a field far from any",
                "struct M { a: E, embed: E, #[tied(xyz)] head: L }",
                &[("xyz", "no field `xyz` before `head`: expected `a` or `embed`")],
            ),
            (
                "tie of the first field",
                "struct M { #[tied(embed)] head: L }",
                &[("embed", "no field `embed` before `head`, which is the first field")],
            ),
            (
                "tie to a later field",
                "struct M { #[tied(embed.tokens)] head: L, embed: E }",
                &[(
                    "embed",
                    "`head` is tied to `embed`, which is declared after it: declare `embed` first, or put `#[tied(head..)]` on `embed` instead",
                )],
            ),
            (
                "tie to itself",
                "struct M { #[tied(head)] head: L }",
                &[(
                    "head",
                    "`head` cannot be tied to itself: name the earlier field whose weight it shares",
                )],
            ),
            (
                "tie to a tied field",
                "struct M { a: E, #[tied(a.w)] b: L, #[tied(b)] c: L }",
                &[("b", "`b` is tied to `a.w` itself: tie `c` to `a.w` too")],
            ),
            (
                "tie written as a Rust path",
                "struct M { a: E, #[tied(a::w)] b: L }",
                &[(":", "separate the fields of a tied path by dots: `embed.tokens`")],
            ),
            (
                "tie to an index",
                "struct M { a: E, #[tied(a.0)] b: L }",
                &[("0", "a tied path is made of field names: `embed.tokens`")],
            ),
            (
                "tie to two weights",
                "struct M { a: E, #[tied(a.w, a.v)] b: L }",
                &[("a", "`#[tied]` names one weight; this is the second path")],
            ),
            (
                "tie with an unknown key",
                r#"struct M { a: E, #[tied(a.w, wen = "k")] b: L }"#,
                &[(
                    "wen",
                    "unknown option `wen` in `#[tied(..)]`: expected `when`; did you mean `when`?",
                )],
            ),
            (
                "tie with a bad condition",
                r#"struct M { a: E, #[tied(a.w, when = tie)] b: L, #[tied(a.w, when = "")] c: L }"#,
                &[
                    (
                        "tie",
                        r#"`when` takes a key of the configuration in quotes: `when = "tie_word_embeddings"`"#,
                    ),
                    (
                        r#""""#,
                        r#"`when` takes a key of the configuration in quotes: `when = "tie_word_embeddings"`"#,
                    ),
                ],
            ),
            (
                "condition twice",
                r#"struct M { a: E, #[tied(a.w, when = "k", when = "l")] b: L }"#,
                &[(
                    "when",
                    r#"`when` is given twice in `#[tied(..)]`; the first is `when = "k"`: keep one"#,
                )],
            ),
            (
                "lifetime",
                "struct M<'a, T> { a: &'a T }",
                &[(
                    "'a",
                    "a model owns its parameters: remove the lifetime `'a`, and own what it borrows",
                )],
            ),
            (
                "enum",
                r#"enum M { A { #[sharded(tp = "col")] a: L } }"#,
                &[(
                    "M",
                    "a model is a struct, whose fields exist on every rank; write one struct for each variant, and give the model that chooses a type parameter for it",
                )],
            ),
            (
                "union",
                "union M { a: u32 }",
                &[(
                    "M",
                    "a model is a struct with named fields; the fields of a union cannot be built one by one",
                )],
            ),
            (
                "tuple struct",
                r#"struct M(L, #[sharded(tp = "col")] L);"#,
                &[(
                    r#"(L, #[sharded(tp = "col")] L)"#,
                    "a model's fields need names, which become the names of its parameters in messages and checkpoints: write `struct M { first: .., second: .. }`",
                )],
            ),
            (
                "unit struct",
                "struct M;",
                &[("M", "a model without parameters still has braces: write `struct M {}`")],
            ),
            (
                "function",
                "fn model() {}",
                &[("fn model", "`#[model]` goes on a struct with named fields")],
            ),
            (
                "impl block",
                "impl M { fn f() {} }",
                &[("impl", "`#[model]` goes on the struct; on the impl block write `#[forward]`")],
            ),
            (
                "five at once",
                r#"struct M {
        embed: E,
        #[sharded(tp = "colum")] a: L,
        #[sharded(tpp = "col")] b: L,
        #[sharded(tp = "col", scatter = Seq)] c: L,
        #[shared(tp = "row")] d: L,
        #[tied(embd.tokens)] e: L,
    }"#,
                &[
                    (
                        r#""colum""#,
                        "unknown style `colum` for axis `tp`: expected `col`, `row` or `vocab`; did you mean `col`?",
                    ),
                    (
                        "tpp",
                        "unknown axis or option `tpp` in `#[sharded(..)]`: expected `tp` or `scatter`; did you mean `tp`?",
                    ),
                    ("shared", "unknown attribute `shared`; did you mean `sharded`?"),
                    (
                        "scatter",
                        "`scatter` goes with `row` or `vocab`, which end in a sum; a `col` layer leaves its output split: remove `scatter` from `c`",
                    ),
                    ("embd", "no field `embd` before `e`; did you mean `embed`?"),
                ],
            ),
            (
                "five in one attribute",
                r#"struct M { #[sharded(tp = "colum", tp = "row", scater = Seq, "x", cp = "ring")] a: L }"#,
                &[
                    (
                        r#""colum""#,
                        "unknown style `colum` for axis `tp`: expected `col`, `row` or `vocab`; did you mean `col`?",
                    ),
                    (
                        "tp",
                        r#"`tp` is given twice in `#[sharded(..)]`; the first is `tp = "col"`: keep one"#,
                    ),
                    (
                        "scater",
                        "unknown axis or option `scater` in `#[sharded(..)]`: expected `tp` or `scatter`; did you mean `scatter`?",
                    ),
                    (r#""x""#, r#"`"x"` stands here without a key: write `key = "x"`"#),
                    (
                        "cp",
                        "`cp` (context-parallel attention) comes in a later version; in this one `#[sharded]` takes `tp` or `scatter`",
                    ),
                ],
            ),
        ],
    );
}
#[test]
fn in_forward() {
    check(
        forward,
        &[
            (
                "no forward",
                "impl M { fn other(&self) {} }",
                &[(
                    "M",
                    "`#[forward]` needs a forward function in this block: `fn forward(&self, x: &In) -> Out`",
                )],
            ),
            (
                "forward misspelled",
                "impl M { fn foward(&self, x: &X) -> Y { y } }",
                &[(
                    "foward",
                    "this block has no `fn forward`; did you mean `forward` instead of `foward`?",
                )],
            ),
            (
                "two forwards",
                "impl M { fn forward(&self, x: &X) -> Y { y } fn forward(&self, x: &X) -> Z { z } }",
                &[(
                    "forward",
                    "this block has a `forward` already: a model has one, so give this function another name",
                )],
            ),
            (
                "receiver by value",
                "impl M { fn forward(self, x: &X) -> Y { y } }",
                &[("self", "`forward` runs again and again on one model: write `&self`")],
            ),
            (
                "receiver exclusive",
                "impl M { fn forward(&mut self, x: &X) -> Y { y } }",
                &[(
                    "&mut self",
                    "`forward` runs on a shared model: write `&self` (the optimizer changes parameters, not `forward`)",
                )],
            ),
            (
                "receiver typed",
                "impl M { fn forward(self: &Self, x: &X) -> Y { y } }",
                &[("self: &Self", "write `&self`, in just this form")],
            ),
            (
                "receiver with a lifetime",
                "impl M { fn forward(&'static self, x: &X) -> Y { y } }",
                &[("&'static self", "write `&self`, in just this form")],
            ),
            (
                "no receiver",
                "impl M { fn forward(x: &X) -> Y { y } }",
                &[("forward", "`forward` needs `&self` as its first parameter")],
            ),
            (
                "no input",
                "impl M { fn forward(&self) -> Y { y } }",
                &[(
                    "forward",
                    "`forward` takes one input by reference: `fn forward(&self, x: &In) -> Out`",
                )],
            ),
            (
                "two inputs",
                "impl M { fn forward(&self, x: &X, mask: &Mask<B>) -> Y { y } }",
                &[(
                    "mask: &Mask<B>",
                    "`forward` takes one input; put several in a tuple: `(x, mask): &(X, Mask<B>)`",
                )],
            ),
            (
                "input by value",
                "impl M { fn forward(&self, x: Tensor<(B, S)>) -> Y { y } }",
                &[(
                    "Tensor<(B, S)>",
                    "`forward` takes its input by shared reference: write `x: &Tensor<(B, S)>`",
                )],
            ),
            (
                "input exclusive",
                "impl M { fn forward(&self, x: &mut X) -> Y { y } }",
                &[("&mut X", "`forward` takes its input by shared reference: write `x: &X`")],
            ),
            (
                "borrow inside the input",
                "impl M { fn forward(&self, (a, b): &(A, &B)) -> Y { y } fn g(&self) -> &A { &self.a } }",
                &[("&", "behind its one `&`, the input of `forward` is owned: remove this borrow")],
            ),
            (
                "no output",
                "impl M { fn forward(&self, x: &X) { } }",
                &[(
                    "forward",
                    "`forward` has to say what it returns: `fn forward(&self, x: &In) -> Out`",
                )],
            ),
            (
                "borrowed output",
                "impl M { fn forward(&self, x: &X) -> &Y { y } }",
                &[(
                    "&",
                    "`forward` returns what it made: return an owned value, without `&` and lifetimes",
                )],
            ),
            (
                "output with a lifetime",
                "impl M { fn forward(&self, x: &X) -> Y<'_> { y } }",
                &[(
                    "'_",
                    "`forward` returns what it made: return an owned value, without `&` and lifetimes",
                )],
            ),
            (
                "impl trait",
                "impl M { fn forward(&self, x: &impl T) -> impl U { y } }",
                &[
                    (
                        "impl T",
                        "`forward` names its input and output types: write the type instead of `impl ..`",
                    ),
                    (
                        "impl U",
                        "`forward` names its input and output types: write the type instead of `impl ..`",
                    ),
                ],
            ),
            (
                "function qualifiers",
                r#"impl M { const async unsafe extern "C" fn forward(&self, x: &X) -> Y { y } }"#,
                &[
                    (
                        "async",
                        "`forward` cannot be `async`: start collectives with their async forms and `.wait()` where needed",
                    ),
                    (
                        "const",
                        "`forward` cannot be `const`: it runs on tensors, which exist at run time only",
                    ),
                    (
                        "unsafe",
                        "`forward` cannot be `unsafe`: the trainer calls it; put the unsafe block inside",
                    ),
                    ("extern", "`forward` cannot be `extern`: it is called from Rust only"),
                ],
            ),
            (
                "generic",
                "impl M { fn forward<T: U>(&self, x: &T) -> Y { y } }",
                &[(
                    "T: U",
                    "`forward` cannot be generic: make it a parameter of the model and of this impl block",
                )],
            ),
            (
                "generic over a lifetime",
                "impl M { fn forward<'a>(&'a self, x: &'a X) -> Y { y } }",
                &[("'a", "`forward` cannot be generic: remove the lifetimes")],
            ),
            (
                "where clause",
                "impl M { fn forward(&self, x: &X) -> Y where X: T { y } }",
                &[(
                    "where X: T",
                    "`forward` cannot have a `where` clause: put it on the impl block",
                )],
            ),
            (
                "trait impl",
                "impl Module for M<T> { fn forward(&self, x: &X) -> Y { y } }",
                &[(
                    "Module",
                    "`#[forward]` writes the `Module` impl itself: put it on `impl M<T> { .. }`",
                )],
            ),
            (
                "struct",
                "struct M { a: L }",
                &[(
                    "struct M",
                    "`#[forward]` goes on an impl block that holds the forward function: `#[forward] impl Mlp { fn forward(&self, x: &In) -> Out { .. } }`",
                )],
            ),
            (
                "five at once",
                "impl M { async fn forward<T>(&mut self, x: X, y: &Y) { } }",
                &[
                    (
                        "&mut self",
                        "`forward` runs on a shared model: write `&self` (the optimizer changes parameters, not `forward`)",
                    ),
                    (
                        "y: &Y",
                        "`forward` takes one input; put several in a tuple: `(x, y): &(X, Y)`",
                    ),
                    (
                        "forward",
                        "`forward` has to say what it returns: `fn forward(&self, x: &In) -> Out`",
                    ),
                    (
                        "async",
                        "`forward` cannot be `async`: start collectives with their async forms and `.wait()` where needed",
                    ),
                    (
                        "T",
                        "`forward` cannot be generic: make it a parameter of the model and of this impl block",
                    ),
                ],
            ),
        ],
    );
}
