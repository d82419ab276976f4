//! Resolution of the path of the `meshwright` crate for expansions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Mutex;

use proc_macro_crate::{Error, FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::parse::ParseStream;
use syn::{Ident, LitStr, Path};

use super::args::{self, Args, Once};
use super::table::AttributeRow;
use super::unquote;
use crate::diag::Ctxt;
use crate::tokens::relocated;

/// The path of the `meshwright` crate.
#[derive(Clone)]
pub enum Runtime {
    /// The path given by `crate =`.
    Given(Path),
    /// A dependency, by name.
    Dependency(String),
    /// The package has no such dependency, so expansions that need the crate are impossible.
    Missing,
}

impl Runtime {
    /// Parses the arguments of `#[model(..)]` and `#[forward(..)]`.
    pub fn parse_args(cx: &Ctxt, attribute: &'static AttributeRow, tokens: TokenStream) -> Self {
        let n_errors = cx.n_errors();
        let mut path = Once::default();
        Args::new(cx, attribute, tokens).each(|args, key, input| {
            let Some(row) = args.row(&key) else { return args::skip(input) };
            args::equals(row, &key, input, "some::path")?;
            let found = crate_path(input)?;
            path.set(args, key, found);
            Ok(())
        });
        match path.value {
            Some(keyed) => Self::Given(keyed.value),
            None if cx.n_errors() > n_errors => Self::of_package(),
            None => Self::of_package_or_error(
                cx,
                &format!("#[{}(crate = facade::meshwright)]", attribute.name),
            ),
        }
    }

    /// Parses the path after `crate =`.
    pub fn parse(input: ParseStream) -> syn::Result<Self> {
        Ok(Self::Given(crate_path(input)?))
    }

    /// Finds the dependency of the package being compiled.
    pub fn of_package() -> Self {
        static NAMES: Mutex<BTreeMap<Option<OsString>, Option<String>>> =
            Mutex::new(BTreeMap::new());
        // rust-analyzer expands the macros of many packages in one process.
        let package = std::env::var_os("CARGO_MANIFEST_DIR");
        let mut names = NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let name = names.entry(package).or_insert_with(name_in_package).clone();
        name.map_or(Self::Missing, Self::Dependency)
    }

    /// Finds the dependency like [`of_package`](Self::of_package). A missing one is reported, with an example of how to
    /// name the crate.
    pub fn of_package_or_error(cx: &Ctxt, example: &str) -> Self {
        let found = Self::of_package();
        if matches!(found, Self::Missing) {
            cx.error(
                Span::call_site(),
                format_args!(
                    "the crate `meshwright` is not a dependency of this package, under any name: add it to \
                     `Cargo.toml`; if another crate re-exports it, set its path: `{example}`"
                ),
            );
        }
        found
    }

    /// The path of the items that expansions may use, with the span `place`.
    pub fn private(&self, place: Span) -> TokenStream {
        match self {
            Self::Given(path) => {
                let path = relocated(path.to_token_stream(), place);
                quote_spanned!(place=> #path::__private)
            }
            Self::Dependency(name) => {
                let name = Ident::new(name, place);
                quote_spanned!(place=> ::#name::__private)
            }
            Self::Missing => quote_spanned!(place=> ::meshwright::__private),
        }
    }
}

/// Returns the name of the crate in `Cargo.toml`, or its default name if the file cannot be read.
fn name_in_package() -> Option<String> {
    let own_name = || Some("meshwright".to_owned());
    // The tests of this package define a module of that name.
    if std::env::var_os("CARGO_PKG_NAME").is_some_and(|name| name == env!("CARGO_PKG_NAME")) {
        return own_name();
    }
    // A library of models needs what is below the trainer only.
    match crate_name("meshwright").or_else(|_| crate_name("meshwright-core")) {
        Ok(FoundCrate::Name(name)) => Some(name),
        Err(Error::CrateNotFound { .. }) => None,
        Ok(FoundCrate::Itself) | Err(_) => own_name(),
    }
}

fn crate_path(input: ParseStream) -> syn::Result<Path> {
    if input.peek(LitStr) {
        let quoted: LitStr = input.parse()?;
        return Err(unquote(&quoted, &format!("crate = {}", quoted.value())));
    }
    input.call(Path::parse_mod_style).map_err(|error| {
        syn::Error::new(error.span(), "`crate` takes the path of the crate: `crate = some::path`")
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use quote::quote;

    use super::*;
    use crate::entry;

    /// Runs in a separate process in the tests below, with the environment of a compiler.
    #[test]
    fn in_another_process() {
        let Some(case) = std::env::var_os("MESHWRIGHT_TEST_CASE") else { return };
        if case == "name" {
            println!("found {:?}.", name_in_package());
            return;
        }
        let item = quote!(
            struct M {
                #[sharded(tp = "col")]
                a: L,
            }
        );
        let block = quote!(impl M { fn forward(&self, x: &X) -> Y { y } });
        for code in [
            entry::dims(quote!(A @ data, B)),
            entry::model(quote!(), item.clone()),
            entry::forward(quote!(), block.clone()),
            entry::dims(quote!(crate = facade; A)),
            entry::model(quote!(crate = facade), item),
            entry::forward(quote!(crate = facade), block),
        ] {
            println!("expanded {code}");
        }
    }

    /// Returns the lines that the process prints after `prefix` for a package with these dependencies.
    fn printed(case: &str, package: &Path, prefix: &str) -> Vec<String> {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "attr::runtime::tests::in_another_process", "--nocapture"])
            .env("MESHWRIGHT_TEST_CASE", case)
            .env("CARGO_MANIFEST_DIR", package)
            .env("CARGO_PKG_NAME", "app")
            .output()
            .expect("this program runs");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned).collect()
    }

    /// A temporary folder, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a temporary folder");
            Self(path)
        }

        fn package(&self, name: &str, manifest: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.join("src")).expect("a folder");
            fs::write(path.join("src/lib.rs"), "").expect("a file");
            let package = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n");
            fs::write(path.join("Cargo.toml"), package + manifest).expect("a file");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn dependency_is_found_in_cargo_toml() {
        let folder = Folder::new("meshwright-dependencies");
        let workspace = "[workspace]\nmembers = [\"*\"]\n[workspace.dependencies]\nmeshwright = \"1\"\n\
             of-workspace = { package = \"meshwright\", version = \"1\" }\n";
        fs::write(folder.0.join("Cargo.toml"), workspace).expect("a file");
        let cases = [
            ("plain", "[dependencies]\nmeshwright = \"1\"", Some("meshwright")),
            (
                "renamed",
                "[dependencies]\nmw = { package = \"meshwright\", path = \"..\" }",
                Some("mw"),
            ),
            ("table", "[dependencies.m-w]\npackage = \"meshwright\"\nversion = \"1\"", Some("m_w")),
            (
                "dev",
                "[dev-dependencies]\nmw = { package = \"meshwright\", version = \"1\" }",
                Some("mw"),
            ),
            ("inherited", "[dependencies]\nmeshwright.workspace = true", Some("meshwright")),
            (
                "inherited-renamed",
                "[dependencies]\nof-workspace.workspace = true",
                Some("of_workspace"),
            ),
            (
                "target",
                "[target.'cfg(unix)'.dependencies]\nmw = { package = \"meshwright\", version = \"1\" }",
                Some("mw"),
            ),
            ("meshwright", "", Some("meshwright")),
            ("library", "[dependencies]\nmeshwright-core = \"1\"", Some("meshwright_core")),
            ("other", "[dependencies]\nserde = \"1\"", None),
            ("only-build", "[build-dependencies]\nmeshwright = \"1\"", None),
            ("broken", "[dependencies", Some("meshwright")),
        ];
        for (name, manifest, expected) in cases {
            let package = folder.package(name, manifest);
            let expected = format!("{:?}.", expected.map(str::to_owned));
            assert_eq!(printed("name", &package, "found "), [expected], "{name}");
            fs::remove_dir_all(&package).expect("a folder of this test");
        }
        let nowhere = printed("name", &folder.0.join("nowhere"), "found ");
        assert_eq!(nowhere, ["Some(\"meshwright\")."]);
    }

    #[test]
    fn missing_dependency_is_one_error() {
        let folder = Folder::new("meshwright-missing");
        let package = folder.package("other", "[dependencies]\nserde = \"1\"");
        let expanded = printed("expansions", &package, "expanded ");
        assert_eq!(expanded.len(), 6);
        let [dims, model, forward, of_facade @ ..] = expanded.as_slice() else { unreachable!() };
        for (code, example) in [
            (dims, "dims! { crate = facade::meshwright; .. }"),
            (model, "#[model(crate = facade::meshwright)]"),
            (forward, "#[forward(crate = facade::meshwright)]"),
        ] {
            assert_eq!(code.matches("compile_error").count(), 1, "{code}");
            assert!(
                code.contains("not a dependency of this package") && code.contains(example),
                "{code}"
            );
            assert!(!code.contains("__private") && !code.contains("sharded"), "{code}");
        }
        for code in of_facade {
            assert!(
                code.contains("facade :: __private") && !code.contains("compile_error"),
                "{code}"
            );
        }
    }
}
