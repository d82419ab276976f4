//! The tables of layers, settings and functions, from the doc comments and the code of the library.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::{env, fs};

use meshwright::prelude::Sizes;
use syn::visit::Visit;
use syn::{
    Attribute, ExprMethodCall, Fields, FnArg, Generics, Ident, ImplItem, Item, ItemImpl,
    ReturnType, Signature,
};

use crate::library_source::{
    Docs, Elementwise, add_names, code, implements_build, is_hidden, is_public, parameters,
    self_type,
};
use crate::{files, read, root};

/// Types whose functions are listed, under headings.
const FUNCTIONS_OF: [(&str, &[&str]); 7] = [
    ("Tensors", &["Tensor"]),
    ("Dims that ranks read together, `x.across()`", &["Across"]),
    ("Partial sums, and results in flight", &["Partial", "InFlight"]),
    ("Token ids and targets", &["Tokens"]),
    ("Weights of losses", &["Weights"]),
    ("Losses, metrics and gradients", &["Loss", "Metric", "Gradients"]),
    ("Routings of tokens to experts", &["TokenRouting"]),
];

/// Structs whose fields are settings of layers: a field of `Sizes` with such a type has settings of its own.
const SETTINGS: [&str; 6] = [
    "Sizes",
    "RopeParameters",
    "AttentionOptions",
    "HeadOptions",
    "RouterOptions",
    "RouterPenalties",
];

/// `BLESS=1` writes the tables.
#[test]
fn the_tables_of_layers_are_those_of_the_library() {
    let sources = Sources::read();
    let tables = sources.layers() + &sources.settings() + &sources.functions();
    let path = root().join("src/layers_table.md");
    let tables = tables.trim_end().to_owned() + "\n";
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &tables).unwrap();
    }
    assert!(read(&path) == tables, "BLESS=1 brings the tables up to date");
}

/// The items of the sources of layers and tensors.
struct Sources {
    items: Vec<Item>,
    /// The names in `nn::layers`.
    layers: Vec<String>,
}

impl Sources {
    fn read() -> Sources {
        let runtime = root().join("../runtime");
        let core = runtime.join("core/src");
        let folders = ["nn", "tensor", "rotary"].map(|name| files(&core.join(name), "rs"));
        let mut paths: Vec<PathBuf> = folders.into_iter().flatten().collect();
        paths.push(runtime.join("backend/src/ops/routing.rs"));
        paths.sort();
        let parse = |path: &PathBuf| syn::parse_file(&read(path)).unwrap().items;
        let is_layers = |item: &Item| match item {
            Item::Mod(module) if module.ident == "layers" => module.content.clone(),
            _ => None,
        };
        let (_, uses) = parse(&core.join("nn/mod.rs")).iter().find_map(is_layers).unwrap();
        let mut layers = Vec::new();
        for item in &uses {
            let Item::Use(used) = item else { panic!("`nn::layers` re-exports only") };
            add_names(&used.tree, &mut layers);
        }
        layers.sort();
        Sources { items: paths.iter().flat_map(parse).collect(), layers }
    }

    /// The layers, with their shapes and initial values, and the types beside them.
    fn layers(&self) -> String {
        let (mut layers, mut others) = (String::new(), String::new());
        for name in &self.layers {
            let (attributes, generics) = self.declaration(name);
            let docs = Docs::of(attributes);
            let code = name.clone() + &parameters(generics);
            let impls: Vec<&ItemImpl> =
                self.impls().filter(|item| self_type(item) == *name).collect();
            if !impls.iter().any(|item| implements_build(item)) {
                others += &format!("| `{code}` | {} |\n", docs.first_sentence);
                continue;
            }
            let shape = docs.shape.unwrap_or_else(|| panic!("`{name}` has no line `Shape: ..`"));
            let mut weights = Weights::default();
            impls.iter().for_each(|item| weights.visit_item_impl(item));
            let described = shape.split('`').skip(1).step_by(2);
            let described = described.filter_map(|code| code.split_once('[')).map(|(name, _)| name);
            let described: BTreeSet<&str> = described.filter(|name| !name.is_empty()).collect();
            let declared: BTreeSet<&str> = weights.0.keys().map(String::as_str).collect();
            assert_eq!(described, declared, "weights in the line `Shape: ..` of `{name}`");
            let mut shape = shape.clone();
            for (name, values) in &weights.0 {
                let (before, rest) = shape.split_once(&format!("`{name}[")).expect("described");
                let (dims, rest) = rest.split_once('`').expect("code ends");
                shape = format!("{before}`{name}[{dims}` {values}{rest}");
            }
            layers += &format!("| `{code}` | {shape} | {} |\n", docs.first_sentence);
        }
        format!(
            "## Layers\n\n| layer | shape, and how weights begin | |\n|---|---|---|\n{layers}\n\
             Types beside them, which are no fields or have no result:\n\n| type | |\n|---|---|\n{others}\n"
        )
    }

    /// The settings of layers in `Sizes`, with their defaults.
    fn settings(&self) -> String {
        let defaults = defaults(&format!("{:#?}", Sizes::new()));
        let mut rows = String::new();
        self.add_settings("Sizes", "", &defaults, &mut rows);
        format!(
            "## Settings of layers\n\n| field of `Sizes` | default | |\n|---|---|---|\n{rows}\n"
        )
    }

    fn add_settings(
        &self,
        name: &str,
        prefix: &str,
        defaults: &BTreeMap<String, String>,
        rows: &mut String,
    ) {
        let is_struct = |item: &&Item| matches!(item, Item::Struct(item) if item.ident == name);
        let Some(Item::Struct(item)) = self.items.iter().find(is_struct) else {
            panic!("no struct `{name}`")
        };
        let Fields::Named(fields) = &item.fields else { panic!("`{name}` has named fields") };
        for field in fields.named.iter().filter(|field| is_public(&field.vis)) {
            let path = format!("{prefix}{}", field.ident.as_ref().unwrap());
            let kind = code(&field.ty);
            if SETTINGS.contains(&kind.as_str()) {
                self.add_settings(&kind, &format!("{path}."), defaults, rows);
                continue;
            }
            let default = defaults.get(&path).unwrap_or_else(|| panic!("no default of `{path}`"));
            let docs = Docs::of(&field.attrs);
            *rows += &format!("| `{path}` | `{default}` | {} |\n", docs.first_sentence);
        }
    }

    /// The public functions of tensors and others.
    fn functions(&self) -> String {
        let mut text = String::new();
        for (heading, types) in FUNCTIONS_OF {
            text += &format!("## {heading}\n\n| function | result | |\n|---|---|---|\n");
            for name in types {
                let mut rows = BTreeMap::new();
                for item in
                    self.impls().filter(|item| item.trait_.is_none() && self_type(item) == *name)
                {
                    for item in &item.items {
                        if let ImplItem::Fn(function) = item
                            && is_public(&function.vis)
                            && !is_hidden(&function.attrs)
                        {
                            let row = function_row(name, &function.sig, &Docs::of(&function.attrs));
                            rows.insert(function.sig.ident.to_string(), row);
                        }
                    }
                }
                if *name == "Tensor" {
                    rows.extend(self.elementwise_functions());
                }
                assert!(!rows.is_empty(), "`{name}` has functions");
                rows.values().for_each(|row| text += row);
            }
            text += "\n";
        }
        text
    }

    /// Rows of the functions that the macro `elementwise` declares, by name.
    fn elementwise_functions(&self) -> Vec<(String, String)> {
        let declared = self.items.iter().find_map(|item| match item {
            Item::Macro(item) if item.mac.path.is_ident("elementwise") => Some(&item.mac),
            _ => None,
        });
        let Elementwise(functions) = declared.unwrap().parse_body().unwrap();
        let row = |(name, docs): (Ident, Docs)| {
            (
                name.to_string(),
                format!("| `x.{name}()` | the same shape | {} |\n", docs.first_sentence),
            )
        };
        functions.into_iter().map(row).collect()
    }

    fn impls(&self) -> impl Iterator<Item = &ItemImpl> {
        self.items.iter().filter_map(|item| match item {
            Item::Impl(item) => Some(item),
            _ => None,
        })
    }

    fn declaration(&self, name: &str) -> (&[Attribute], &Generics) {
        let found = self.items.iter().find_map(|item| match item {
            Item::Struct(item) if item.ident == name => Some((&*item.attrs, &item.generics)),
            Item::Enum(item) if item.ident == name => Some((&*item.attrs, &item.generics)),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("`{name}` of `nn::layers` is declared in no source"))
    }
}

/// The weights that an impl declares by `builder.param` and `builder.table`, with words for their initial values.
#[derive(Default)]
struct Weights(BTreeMap<String, String>);

impl<'a> Visit<'a> for Weights {
    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let mut own = Weights::default();
        syn::visit::visit_item_impl(&mut own, item);
        let all = code(item);
        for (name, value) in own.0 {
            // A variable has one of the values in the function.
            let values = if value.contains("Init::") { &value } else { &all };
            let words = initial_values(values);
            let has_std = !words.contains("normal") || all.contains("init_std");
            assert!(has_std, "`{name}` of `{}` has another standard deviation", self_type(item));
            self.0.insert(name, words);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        if ["param", "untied_param", "table", "buffer"].iter().any(|name| call.method == name) {
            let name = code(&call.args[0]).trim_matches('"').to_owned();
            self.0.insert(name, code(&call.args[1]));
        }
        syn::visit::visit_expr_method_call(self, call);
    }
}

/// Returns words for the variants of `Init` in code.
fn initial_values(code: &str) -> String {
    let variants = code.split("Init::").skip(1);
    let variants = variants.map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap());
    let words: BTreeSet<&str> = variants
        .map(|variant| match variant {
            "Zeros" => "zeros",
            "Ones" => "ones",
            "Constant" => "one minus the offset",
            "Normal" => "normal",
            "NormalExceptRow" => "zeros in the row of padding",
            _ => panic!("no words for the initial values `{variant}`"),
        })
        .collect();
    words.into_iter().collect::<Vec<_>>().join(" or ")
}

fn function_row(of: &str, signature: &Signature, docs: &Docs) -> String {
    let mut arguments = Vec::new();
    let mut receiver = format!("{of}::");
    for argument in &signature.inputs {
        match argument {
            FnArg::Receiver(_) => receiver = format!("{}.", receiver_name(of)),
            FnArg::Typed(argument) => arguments.push(code(&argument.pat)),
        }
    }
    let name = &signature.ident;
    let result = match &signature.output {
        ReturnType::Default => "()".to_owned(),
        ReturnType::Type(_, result) => code(result),
    };
    let result = match &docs.shape {
        Some(shape) => shape.clone(),
        None if of == "Tensor" && receiver == "x." && result == "Tensor<S>" => {
            "the same shape".to_owned()
        }
        None => {
            let is_plain = !result.contains("::") && !result.contains("Summed");
            assert!(is_plain, "`{of}::{name}` has no line `Shape: ..`");
            format!("`{result}`")
        }
    };
    let arguments = arguments.join(", ");
    format!("| `{receiver}{name}({arguments})` | {result} | {} |\n", docs.first_sentence)
}

fn receiver_name(of: &str) -> String {
    match of {
        "Tensor" => "x".to_owned(),
        "InFlight" => "in_flight".to_owned(),
        "Across" => "x.across()".to_owned(),
        "TokenRouting" => "routing".to_owned(),
        _ => of.to_lowercase(),
    }
}

/// Reads the values of fields, by their paths, from a `{:#?}`.
fn defaults(debug: &str) -> BTreeMap<String, String> {
    let mut path: Vec<&str> = Vec::new();
    let mut values = BTreeMap::new();
    for line in debug.lines().skip(1).map(|line| line.trim().trim_end_matches(',')) {
        if line.starts_with('}') {
            path.pop();
        } else if let Some((field, value)) = line.split_once(": ") {
            path.push(field);
            if !value.ends_with(" {") {
                values.insert(path.join("."), value.to_owned());
                path.pop();
            }
        }
    }
    values
}
