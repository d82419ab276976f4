//! `#[sharded(..)]`.

use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Attribute, Ident, Lit, LitStr, Path};

use super::args::{self, Args, Given, Keyed, Once, Shown};
use super::fold::Fold;
use super::table::{self, StyleRow, Value};
use super::unquote;
use crate::diag::{Ctxt, expected, nearest};
use crate::tokens::shown;

/// `#[sharded(tp = "row", scatter = Seq, fsdp)]`.
pub struct Sharded {
    /// The splits of the layer over mesh axes, each over another one.
    pub cuts: Vec<Cut>,
    /// The flag that makes the field an FSDP unit.
    pub fsdp: Option<Ident>,
}

/// `tp = "row", scatter = Seq`.
pub struct Cut {
    /// The runtime type of the axis.
    pub axis: &'static str,
    /// The style, with the axis as its key.
    pub style: Keyed<&'static StyleRow>,
    /// The dim along which the sum is reduce-scattered.
    pub scatter: Option<Keyed<Path>>,
    /// Further axes, over which experts are split.
    pub fold: Option<Keyed<Fold>>,
}

impl Sharded {
    /// Parses all `sharded` attributes of one item as one; `None` if they have no arguments.
    pub fn parse(cx: &Ctxt, attrs: &[&Attribute]) -> Option<Self> {
        let n_errors = cx.n_errors();
        let [mut tp, mut cp, mut ep] = [(); 3].map(|()| Once::default());
        let mut fold = Once::default();
        let mut scatter = Once::default();
        let mut fsdp = Once::default();
        for attr in attrs {
            let Some(args) = Args::of(cx, &table::SHARDED, attr, "tp = \"col\"") else { continue };
            args.each(|args, key, input| {
                let Some(row) = args.row(&key) else { return args::skip(input) };
                match row.value {
                    Value::Style { axis, styles } => {
                        let example = format!("{:?}", styles[0].name);
                        args::equals(row, &key, input, &example)?;
                        if let Some(found) = style_of(cx, &key, styles, input)? {
                            let cut = match axis {
                                "Cp" => &mut cp,
                                "Ep" => &mut ep,
                                _ => &mut tp,
                            };
                            cut.set(args, key, (axis, found));
                        }
                    }
                    Value::Flag => {
                        args::alone(row, &key, input)?;
                        fsdp.set(args, key, Given);
                    }
                    Value::Axes => {
                        args::equals(row, &key, input, "[tp]")?;
                        let found = Fold::parse(cx, input)?;
                        fold.set(args, key, found);
                    }
                    _ => {
                        args::equals(row, &key, input, "Seq")?;
                        let found = dim(&key, input)?;
                        scatter.set(args, key, found);
                    }
                }
                Ok(())
            });
        }
        let fsdp = fsdp.value.map(|given| given.key);
        let is_named =
            fsdp.is_some() || cp.value.is_some() || ep.value.is_some() || fold.value.is_some();
        let is_cut = tp.value.is_some() || cx.n_errors() > n_errors;
        if !is_cut
            && is_named
            && let Some(scatter) = &scatter.value
        {
            let reason = match cp.value.as_ref().or(ep.value.as_ref()) {
                Some(given) => {
                    let (axis, style) = (&given.key, given.value.1.name);
                    format!(
                        "`{axis} = \"{style}\"` leaves no sums to reduce: remove `scatter`, which belongs to `tp \
                         = \"row\"` and `tp = \"vocab\"`"
                    )
                }
                None => {
                    "this layer is not sharded: set its style, as in `tp = \"row\"`, or remove \
                         `scatter`"
                        .to_owned()
                }
            };
            let message =
                format_args!("`scatter` selects the reduction of a sharded layer, but {reason}");
            cx.error(scatter.key.span(), message);
        }
        if ep.value.is_none()
            && cx.n_errors() == n_errors
            && let Some(fold) = &fold.value
        {
            cx.error(
                fold.key.span(),
                format_args!(
                    "`fold` splits experts over further axes, but this field has no experts that are split: write \
                     `ep = \"experts\", fold = {}`",
                    fold.value.shown()
                ),
            );
        }
        if !is_cut && !is_named {
            cx.error_at(
                attrs[0],
                "`#[sharded]` needs a style: `#[sharded(tp = \"col\")]`, `\"row\"` or `\"vocab\"`, of an attention \
                 `cp = \"ring\"`, of experts `ep = \"experts\"`; or that it is a unit: `#[sharded(fsdp)]`",
            );
        }
        let cut = |given: Keyed<(&'static str, &'static StyleRow)>,
                   scatter: Option<Keyed<Path>>| {
            let Keyed { key, value: (axis, style) } = given;
            // After a misspelled word, the combination is not reported as well.
            let scatter = scatter.filter(|_| style.sums || cx.n_errors() == n_errors);
            Cut { axis, style: Keyed { key, value: style }, scatter, fold: None }
        };
        let tp = tp.value.map(|given| cut(given, scatter.value));
        let cp = cp.value.map(|given| cut(given, None));
        let ep = ep.value.map(|given| Cut { fold: fold.value, ..cut(given, None) });
        let cuts: Vec<Cut> = tp.into_iter().chain(cp).chain(ep).collect();
        (!cuts.is_empty() || fsdp.is_some()).then_some(Self { cuts, fsdp })
    }

    /// Formats the arguments: `tp = "row", scatter = Seq, fsdp`.
    pub fn shown(&self) -> String {
        let cuts = self.cuts.iter().map(Cut::shown);
        let fsdp = self.fsdp.as_ref().map(Ident::to_string);
        cuts.chain(fsdp).collect::<Vec<_>>().join(", ")
    }
}

impl Cut {
    /// Formats the arguments: `tp = "row", scatter = Seq`.
    pub fn shown(&self) -> String {
        let (axis, style) = (&self.style.key, self.style.value.name);
        let scatter = self.scatter.as_ref().map(|dim| format!(", scatter = {}", shown(&dim.value)));
        let fold = self.fold.as_ref().map(|axes| format!(", fold = {}", axes.value.shown()));
        format!("{axis} = \"{style}\"{}{}", scatter.unwrap_or_default(), fold.unwrap_or_default())
    }
}

/// Parses the style after `tp =`. An unknown one is reported, and replaced by its nearest neighbor.
fn style_of(
    cx: &Ctxt,
    axis: &Ident,
    styles: &'static [StyleRow],
    input: ParseStream,
) -> syn::Result<Option<&'static StyleRow>> {
    let named = |word: &str| styles.iter().find(|style| style.name == word);
    let (word, span) = match input.parse::<Lit>() {
        Ok(Lit::Str(quoted)) => (quoted.value(), quoted.span()),
        Ok(other) => (shown(&other), other.span()),
        Err(error) => {
            let bare = input.call(Ident::parse_any).map_err(|_| {
                let example = styles[0].name;
                let message = format!("`{axis}` takes a style in quotes: `{axis} = \"{example}\"`");
                syn::Error::new(error.span(), message)
            })?;
            let word = bare.to_string();
            if let Some(style) = nearest(&word, styles.iter().map(|style| style.name)) {
                cx.error(bare.span(), format_args!("quote the style: `{axis} = \"{style}\"`"));
                return Ok(named(style));
            }
            (word, bare.span())
        }
    };
    if let Some(style) = named(&word) {
        return Ok(Some(style));
    }
    if let Some(other) = axis_of_style(&word) {
        let message =
            format_args!("`{word}` is a style of `{other}`: write `{other} = \"{word}\"`");
        cx.error(span, message);
        return Ok(None);
    }
    let names: Vec<&str> = styles.iter().map(|style| style.name).collect();
    let expected = expected(&word, &names);
    cx.error(span, format_args!("unknown style `{word}` for axis `{axis}`: {expected}"));
    Ok(nearest(&word, names).and_then(named))
}

/// Returns the axis that has this style.
fn axis_of_style(word: &str) -> Option<&'static str> {
    let has = |row: &&table::KeyRow| match row.value {
        Value::Style { styles, .. } => styles.iter().any(|style| style.name == word),
        _ => false,
    };
    table::SHARDED.keys.iter().find(has).map(|row| row.name)
}

fn dim(key: &Ident, input: ParseStream) -> syn::Result<Path> {
    if input.peek(LitStr) {
        let quoted: LitStr = input.parse()?;
        return Err(unquote(&quoted, &format!("{key} = {}", quoted.value())));
    }
    input.parse().map_err(|error| {
        let message =
            format_args!("`{key}` takes a dim declared with `dims!`: `{key} = Seq`").to_string();
        syn::Error::new(error.span(), message)
    })
}

impl Shown for Path {
    fn shown(&self) -> String {
        shown(self)
    }
}

impl Shown for (&'static str, &'static StyleRow) {
    fn shown(&self) -> String {
        format!("{:?}", self.1.name)
    }
}
