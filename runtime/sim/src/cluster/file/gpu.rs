//! The table `gpu`, and its keys.

use std::collections::BTreeMap;

use meshwright_backend::{DType, KernelOp};

use super::super::{AttentionCurve, Figure, Gpu, MatmulCurve, PassRates, SharingFactors};
use super::quantity::{COUNT, FACTOR, FRACTION, GIGA, MICRO, PLAIN, TERA};
use super::table_format::{TableFormat, name};

/// The table `gpu`.
pub fn gpu<T: TableFormat>(table: &mut T, given: Option<&Gpu>) -> Result<Gpu, T::Error> {
    Ok(Gpu {
        name: name(table, given.map(|gpu| gpu.name.as_str()))?,
        units: table.count("units", given.map(|gpu| gpu.units))?,
        tile: tile(table, given.map(|gpu| gpu.tile))?,
        memory: table.figure("memory_gb", GIGA, given.map(|gpu| &gpu.memory))?,
        memory_bandwidth: table.figure(
            "memory_bandwidth_gb_s",
            GIGA,
            given.map(|gpu| &gpu.memory_bandwidth),
        )?,
        host_bandwidth: table.figure(
            "host_bandwidth_gb_s",
            GIGA,
            given.map(|gpu| &gpu.host_bandwidth),
        )?,
        peak: peak(table, given)?,
        launch: table.table("launch", |table| {
            let [kernel, of_graph] = pair(given.map(|gpu| &gpu.launch));
            Ok([
                table.figure("kernel_us", MICRO, kernel)?,
                table.figure("graph_kernel_us", MICRO, of_graph)?,
            ])
        })?,
        matmul: table.table("matmul", |table| matmul(table, given.map(|gpu| &gpu.matmul)))?,
        passes: table.table("passes", |table| passes(table, given.map(|gpu| &gpu.passes)))?,
        attention_fraction: table.table("attention_fraction", |table| {
            let [forward, backward] = pair(given.map(|gpu| &gpu.attention_fraction));
            Ok([
                table.figure("forward", FRACTION, forward)?,
                table.figure("backward", FRACTION, backward)?,
            ])
        })?,
        attention: attention(table, given.map(|gpu| &gpu.attention[..]))?,
        sharing: sharing(table, given.map(|gpu| &gpu.sharing[..]))?,
    })
}

fn tile<T: TableFormat>(table: &mut T, given: Option<[usize; 2]>) -> Result<[usize; 2], T::Error> {
    let given = given.map(|tile| tile.map(|size| size as f64).to_vec());
    let sizes = table.numbers("tile", COUNT, given)?;
    table.check("tile", sizes.len() == 2, || "must have two sizes, such as [128, 256]".into())?;
    Ok([sizes[0] as usize, sizes[1] as usize])
}

fn peak<T: TableFormat>(
    table: &mut T,
    given: Option<&Gpu>,
) -> Result<Vec<(DType, Figure)>, T::Error> {
    let key = "peak_tflop_s";
    let mut peak = Vec::new();
    table.table(key, |table| {
        for dtype in [DType::Bf16, DType::F32] {
            let given = given.and_then(|gpu| gpu.peak_of(dtype).ok());
            if let Some(figure) = table.optional_figure(dtype.name(), TERA, given)? {
                peak.push((dtype, figure));
            }
        }
        Ok(())
    })?;
    table.check(key, !peak.is_empty(), || "is empty: it must have bf16, f32 or both".into())?;
    Ok(peak)
}

fn matmul<T: TableFormat>(
    table: &mut T,
    given: Option<&MatmulCurve>,
) -> Result<MatmulCurve, T::Error> {
    Ok(MatmulCurve {
        efficiency: table.figure("efficiency", FRACTION, given.map(|curve| &curve.efficiency))?,
        wave_exponent: table.figure(
            "wave_exponent",
            PLAIN,
            given.map(|curve| &curve.wave_exponent),
        )?,
        half_k: table.figure("half_k", PLAIN, given.map(|curve| &curve.half_k))?,
        start: table.figure("start_us", MICRO, given.map(|curve| &curve.start))?,
    })
}

fn passes<T: TableFormat>(table: &mut T, given: Option<&PassRates>) -> Result<PassRates, T::Error> {
    Ok(PassRates {
        start: table.figure("start_us", MICRO, given.map(|rates| &rates.start))?,
        others: table.figure("others", FRACTION, given.map(|rates| &rates.others))?,
        of: pass_fractions(table, given)?,
    })
}

fn pass_fractions<T: TableFormat>(
    table: &mut T,
    given: Option<&PassRates>,
) -> Result<BTreeMap<KernelOp, Figure>, T::Error> {
    let mut fractions = BTreeMap::new();
    for op in KernelOp::ALL.iter().filter(|op| !op.is_matmul() && !op.is_attention()) {
        let given = given.and_then(|rates| rates.of.get(op));
        if let Some(figure) = table.optional_figure(op.name(), FRACTION, given)? {
            fractions.insert(*op, figure);
        }
    }
    Ok(fractions)
}

fn attention<T: TableFormat>(
    table: &mut T,
    given: Option<&[AttentionCurve]>,
) -> Result<Vec<AttentionCurve>, T::Error> {
    let mut curves: Vec<(usize, bool, DType)> = Vec::new();
    table.tables("attention", given, |table, given| {
        let head_dim = table.count("head_dim", given.map(|curve| curve.head_dim))?;
        let pass = given.map(|curve| if curve.is_backward { "backward" } else { "forward" });
        let pass = table.text("pass", pass)?;
        table.check("pass", ["forward", "backward"].contains(&pass.as_str()), || {
            format!("is `{pass}`: use `forward` or `backward`")
        })?;
        // Published curves are those of bf16.
        let given_dtype = given.map(|curve| curve.dtype).filter(|dtype| *dtype != DType::Bf16);
        let dtype = table.optional_text("dtype", given_dtype.map(DType::name))?;
        let dtype = dtype.as_deref().unwrap_or("bf16");
        table.check("dtype", ["bf16", "f32"].contains(&dtype), || {
            format!("is `{dtype}`: use `bf16` or `f32`")
        })?;
        let dtype = if dtype == "f32" { DType::F32 } else { DType::Bf16 };
        let origin = table.origin(given.map(|curve| &curve.origin))?;
        let lengths =
            given.map(|curve| curve.rates.iter().map(|(length, _)| *length as f64).collect());
        let lengths = table.numbers("lengths", COUNT, lengths)?;
        let rates = given.map(|curve| curve.rates.iter().map(|(_, rate)| *rate).collect());
        let rates = table.numbers("tflop_s", TERA, rates)?;
        table.check(
            "lengths",
            !lengths.is_empty() && lengths.is_sorted_by(|a, b| a < b),
            || "must be growing lengths, such as [512, 1024]".into(),
        )?;
        table.check("tflop_s", rates.len() == lengths.len(), || {
            format!("has {} rates for {} lengths", rates.len(), lengths.len())
        })?;
        let curve = (head_dim, pass == "backward", dtype);
        table.check("head_dim", !curves.contains(&curve), || {
            format!(
                "is {head_dim}, for which there is another table of the {pass} pass: remove one"
            )
        })?;
        curves.push(curve);
        let rates = lengths.iter().map(|length| *length as usize).zip(rates).collect();
        Ok(AttentionCurve { head_dim, dtype, is_backward: curve.1, rates, origin })
    })
}

fn sharing<T: TableFormat>(
    table: &mut T,
    given: Option<&[SharingFactors]>,
) -> Result<Vec<SharingFactors>, T::Error> {
    let mut most = 0;
    table.tables("sharing", given, |table, given| {
        let ranks = table.count("ranks", given.map(|factors| factors.ranks))?;
        table.check("ranks", ranks > most, || {
            format!("is {ranks}, after {most}: sort the tables by growing numbers of ranks")
        })?;
        most = ranks;
        Ok(SharingFactors {
            ranks,
            compute: table.figure("compute", FACTOR, given.map(|factors| &factors.compute))?,
            memory: table.figure("memory", FACTOR, given.map(|factors| &factors.memory))?,
        })
    })
}

fn pair<V>(given: Option<&[V; 2]>) -> [Option<&V>; 2] {
    given.map_or([None, None], |[first, second]| [Some(first), Some(second)])
}
