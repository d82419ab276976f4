//! Files of measurements: JSON, and drawings.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, value_parser};
use serde_json::Value;

use crate::failure::Failure;
use crate::plot::REASON;
use crate::plot::chart::{Abscissa, Curve, Panel, draw_svg};
use crate::plot::output::{check_output, check_replaced, is_drawing, is_measurement, write_whole};

/// The files to write.
pub struct BenchFiles {
    json: Option<PathBuf>,
    plot: Option<PathBuf>,
}

/// Returns the arguments `json`, with its help, and `plot`.
pub fn file_args(help: &'static str) -> [Arg; 2] {
    let file = |name, value| {
        Arg::new(name).long(name).value_name(value).value_parser(value_parser!(PathBuf))
    };
    [
        file("json", "FILE.json").help(help),
        file("plot", "FILE.svg").help("Draw the measurements over their sizes"),
    ]
}

impl BenchFiles {
    pub fn of(matches: &ArgMatches) -> BenchFiles {
        let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
        BenchFiles { json: path("json"), plot: path("plot") }
    }

    /// Checks that the files can be written.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(json) = &self.json {
            check_output("--json", json, ("json", "only JSON is written"), &[])?;
            check_replaced("--json", json, is_measurement)?;
        }
        if let Some(plot) = &self.plot {
            check_output("--plot", plot, ("svg", REASON), &[])?;
            check_replaced("--plot", plot, is_drawing)?;
        }
        Ok(())
    }

    /// Writes the measurements, and returns the lines that name the files. Drawings have values above 0.
    pub fn write(&self, json: &Value, curves: &Curves) -> Result<String, Failure> {
        let mut text = String::new();
        if let Some(path) = &self.json {
            let pretty = serde_json::to_string_pretty(json)
                .map_err(|error| Failure::new(error.to_string(), &error))?;
            write("--json", path, &(pretty + "\n"))?;
            text += &format!("wrote {}\n", path.display());
        }
        if let Some(path) = &self.plot {
            write("--plot", path, &curves.draw())?;
            text += &format!("wrote {}\n", path.display());
        }
        Ok(text)
    }
}

/// Name of a curve, and its values by size in ascending order.
type NamedPoints = (String, Vec<(u64, f64)>);

/// Curves over sizes.
pub struct Curves {
    pub title: String,
    /// Name of the sizes.
    pub sizes: &'static str,
    pub curves: Vec<NamedPoints>,
    pub is_log: bool,
}

impl Curves {
    fn draw(&self) -> String {
        let curve = |(run, (label, points)): (usize, &NamedPoints)| Curve {
            run,
            label: label.clone(),
            points: points.iter().map(|(size, value)| (*size, Some(*value))).collect(),
            has_points: false,
        };
        let curves = self.curves.iter().enumerate().map(curve).collect();
        let across = Abscissa { label: self.sizes, is_log: true };
        draw_svg(&[Panel { metric: &self.title, across, curves }], self.is_log)
    }
}

fn write(flag: &str, path: &Path, text: &str) -> Result<(), Failure> {
    write_whole(path, text).map_err(|error| {
        Failure::new(format!("{flag}: cannot write {}: {error}", path.display()), &error)
    })
}
