//! The arguments of `#[mesh_test(meshes = ["dp=2", "tp=2"])]`.

use proc_macro2::{Span, TokenStream};
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{LitStr, Token, bracketed, token};

use super::Runtime;
use super::args::{self, Args, Once, Shown};
use super::table::{self, DEFAULT_MESHES, MESH_AXES, Value};
use crate::diag::{Ctxt, expected};

/// The parsed arguments.
pub struct MeshTestArgs {
    pub runtime: Runtime,
    /// The meshes that are valid, by default the meshes of the table.
    pub meshes: Vec<LitStr>,
}

impl MeshTestArgs {
    /// Parses the arguments. Invalid ones are reported and ignored.
    pub fn parse(cx: &Ctxt, tokens: TokenStream) -> Self {
        let n_errors = cx.n_errors();
        let (mut runtime, mut meshes) = (Once::default(), Once::default());
        Args::new(cx, &table::MESH_TEST, tokens).each(|args, key, input| {
            let Some(row) = args.row(&key) else { return args::skip(input) };
            if let Value::Meshes = row.value {
                args::equals(row, &key, input, "[\"dp=2\", \"tp=2\"]")?;
                let list = mesh_list(cx, input)?;
                meshes.set(args, key, list);
            } else {
                args::equals(row, &key, input, "some::path")?;
                runtime.set(args, key, Runtime::parse(input)?);
            }
            Ok(())
        });
        let runtime = match runtime.value {
            Some(keyed) => keyed.value,
            None if cx.n_errors() > n_errors => Runtime::of_package(),
            None => Runtime::of_package_or_error(cx, "#[mesh_test(crate = facade::meshwright)]"),
        };
        let default = || DEFAULT_MESHES.map(|mesh| LitStr::new(mesh, Span::call_site())).into();
        let meshes = meshes.value.map_or_else(default, |keyed| keyed.value.0);
        Self { runtime, meshes }
    }
}

/// A list of meshes.
struct Meshes(Vec<LitStr>);

impl Shown for Meshes {
    fn shown(&self) -> String {
        let meshes: Vec<String> = self.0.iter().map(|mesh| format!("{:?}", mesh.value())).collect();
        format!("[{}]", meshes.join(", "))
    }
}

impl Shown for Runtime {
    fn shown(&self) -> String {
        match self {
            Runtime::Given(path) => crate::tokens::shown(path),
            Runtime::Dependency(name) => name.clone(),
            Runtime::Missing => String::new(),
        }
    }
}

/// Parses the list after `meshes =`. An invalid mesh is reported and left out.
fn mesh_list(cx: &Ctxt, input: ParseStream) -> syn::Result<Meshes> {
    if !input.peek(token::Bracket) {
        let message = match input.parse::<LitStr>() {
            Ok(one) => {
                return Err(syn::Error::new(
                    one.span(),
                    format_args!("`meshes` is a list: write `meshes = [{:?}]`", one.value()),
                ));
            }
            Err(_) => "`meshes` is a list of meshes in quotes: `meshes = [\"dp=2\", \"tp=2\"]`",
        };
        return Err(input.error(message));
    }
    let list;
    let bracket = bracketed!(list in input);
    let parsed = Punctuated::<LitStr, Token![,]>::parse_terminated(&list);
    let meshes = parsed.map_err(|error| {
        args::skip_all(&list);
        syn::Error::new(error.span(), "a mesh is text in quotes, such as \"dp=2,tp=2\"")
    })?;
    if meshes.is_empty() {
        cx.error(
            bracket.span.join(),
            "no mesh is named: write for example `meshes = [\"dp=2\", \"tp=2\"]`",
        );
    }
    let is_valid = |mesh: &LitStr| match fault_of(&mesh.value()) {
        Some(fault) => {
            cx.error(mesh.span(), fault);
            false
        }
        None => true,
    };
    Ok(Meshes(meshes.into_iter().filter(is_valid).collect()))
}

/// Returns what is wrong with the text of a mesh, if anything is.
fn fault_of(mesh: &str) -> Option<String> {
    let mut ranks = 1u64;
    let mut given: Vec<&str> = Vec::new();
    for entry in mesh.split(',').map(str::trim) {
        let Some((axis, degree)) = entry.split_once('=') else {
            return Some(match entry {
                "1" => "one rank is compared with itself: name a mesh such as \"dp=2\"".to_owned(),
                _ => format!("`{entry}` is not an axis and its degree: write for example `dp=2`"),
            });
        };
        let (axis, degree) = (axis.trim(), degree.trim());
        if !MESH_AXES.contains(&axis) {
            return Some(format!("unknown mesh axis `{axis}`: {}", expected(axis, &MESH_AXES)));
        }
        if given.contains(&axis) {
            return Some(format!("the axis `{axis}` is given twice: keep one"));
        }
        given.push(axis);
        match degree.parse::<u64>() {
            Ok(degree @ 1..) => ranks = ranks.saturating_mul(degree),
            _ => {
                return Some(format!(
                    "`{axis}={degree}`: the degree is a whole number of at least 1"
                ));
            }
        }
    }
    (ranks == 1)
        .then(|| "one rank is compared with itself: name a mesh such as \"dp=2\"".to_owned())
}
