//! `--prometheus`: the latest metrics in the text format of Prometheus, for the textfile collector of a node exporter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::os::ClaimedFile;

use super::metrics::StepMetrics;
use super::own_metrics::TRAINER_KEYS;
use super::report_file::MetricsError;

const FLAG: &str = "--prometheus";

/// The first line of a file.
const START: &str = "# Metrics of a run of Meshwright\n";

/// Time between two versions of a file.
const EVERY: Duration = Duration::from_secs(10);

/// A file that is replaced as a whole, so that a reader never sees a part of it.
#[derive(Debug)]
pub struct PrometheusFile {
    path: PathBuf,
    /// The present version, which is locked.
    held: Option<ClaimedFile>,
    version: Option<File>,
    /// The label of all series, which a node exporter reads together with those of other files.
    run: String,
    /// The latest value of each series, by name and labels.
    series: BTreeMap<(String, String), f64>,
    written: Option<Instant>,
    is_stale: bool,
    has_failed: bool,
}

impl PrometheusFile {
    /// Checks that a run can replace the file at `path`, and changes nothing.
    ///
    /// # Errors
    /// A file of another program, one to which another run writes, a folder or device, and one that cannot be read.
    pub fn claim(path: PathBuf) -> Result<PrometheusFile, MetricsError> {
        let run = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // The target of a link is replaced, and not the link.
        let target = if path.is_symlink() { path.canonicalize().ok() } else { None };
        let path = target.unwrap_or(path);
        let is_special = fs::metadata(&path).is_ok_and(|data| !data.is_file() && !data.is_dir());
        let claimed = if is_special {
            Err(io::Error::other("it is no file, and cannot be replaced by one"))
        } else {
            ClaimedFile::claim(&path, check_start)
        };
        let held = Some(claimed.map_err(MetricsError::of(FLAG, "replace", &path))?);
        Ok(PrometheusFile {
            path,
            held,
            version: None,
            run,
            series: BTreeMap::new(),
            written: None,
            is_stale: true,
            has_failed: false,
        })
    }

    /// Writes a first version without metrics.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn begin(mut self) -> Result<PrometheusFile, MetricsError> {
        self.replace()?;
        // The first step is not to wait.
        self.written = None;
        Ok(self)
    }

    /// Takes the metrics of a step, and writes them if the last version is old enough; nothing, after a failure.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write_step(&mut self, step: &StepMetrics) -> Result<(), MetricsError> {
        if self.has_failed {
            return Ok(());
        }
        if let Ok(Value::Object(fields)) = serde_json::to_value(step) {
            for (key, value) in fields {
                self.add(&key, &value);
            }
        }
        self.is_stale = true;
        let is_due = self.written.is_none_or(|written| written.elapsed() >= EVERY);
        if is_due { self.replace() } else { Ok(()) }
    }

    /// Writes the metrics of the last step.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(&mut self) -> Result<(), MetricsError> {
        if self.is_stale && !self.has_failed { self.replace() } else { Ok(()) }
    }

    /// Adds a number, or the numbers of the parts of a metric.
    fn add(&mut self, key: &str, value: &Value) {
        let run = label("run", &self.run);
        let mut set = |name: String, labels: String, value: &Value| {
            // JSON has no number for one that is not finite.
            self.series.insert((name, labels), value.as_f64().unwrap_or(f64::NAN));
        };
        let of_source = |prefix: &str| key.strip_prefix(prefix).map(|name| label("source", name));
        if let Value::Object(parts) = value {
            let name = if key == "comm_bytes" { "axes" } else { "category" };
            for (part, value) in parts {
                set(key.to_owned(), format!("{run},{}", label(name, part)), value);
            }
        } else if TRAINER_KEYS.contains(&key) {
            set(key.to_owned(), run, value);
        } else if let Some(source) = of_source("loss.") {
            set("source_loss".to_owned(), format!("{run},{source}"), value);
        } else if let Some(source) = of_source("epoch.") {
            set("source_epoch".to_owned(), format!("{run},{source}"), value);
        } else {
            set("own".to_owned(), format!("{run},{}", label("name", key)), value);
        }
    }

    /// Writes a version under another name first, and gives it the name of the file.
    fn replace(&mut self) -> Result<(), MetricsError> {
        let partial = self.partial();
        let written = File::create(&partial).and_then(|mut file| {
            // Another run cannot claim it. A file system without locks has none.
            let _ = file.try_lock();
            file.write_all(self.text().as_bytes())?;
            fs::rename(&partial, &self.path)?;
            Ok(file)
        });
        match written {
            Ok(file) => {
                (self.version, self.held) = (Some(file), None);
                (self.written, self.is_stale) = (Some(Instant::now()), false);
                Ok(())
            }
            Err(error) => {
                self.has_failed = true;
                let _ = fs::remove_file(&partial);
                Err(MetricsError::of(FLAG, "write", &self.path)(error))
            }
        }
    }

    /// Returns a name beside the file that no node exporter reads.
    fn partial(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.{}.partial", std::process::id()))
    }

    fn text(&self) -> String {
        let mut text = START.to_owned();
        let mut last = "";
        for ((name, labels), value) in &self.series {
            if name != last {
                let _ = writeln!(text, "# TYPE meshwright_{name} gauge");
                last = name;
            }
            // Infinite numbers have another form than in Rust, and are not in metrics.
            let _ = writeln!(text, "meshwright_{name}{{{labels}}} {value}");
        }
        text
    }
}

/// Returns a label with its value.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// Checks that a run has written a file.
fn check_start(file: &File) -> io::Result<()> {
    let mut start = Vec::new();
    file.take(START.len() as u64).read_to_end(&mut start)?;
    if start == START.as_bytes() {
        return Ok(());
    }
    let problem = "it was written by another program, and would be lost; name another file, or remove this one";
    Err(io::Error::other(problem))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn begin(path: &Path) -> PrometheusFile {
        PrometheusFile::claim(path.to_owned()).unwrap().begin().unwrap()
    }

    #[test]
    fn series_have_names_labels_and_the_latest_values() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a \"run\".prom");
        let mut file = begin(&path);
        assert_eq!(fs::read_to_string(&path).unwrap(), START);
        let values = serde_json::json!({
            "step": 3, "loss": 2.5, "grad_norm": null, "peak_bytes": {"total": 7, "gradients": 5},
            "comm_bytes": {"dp x tp": 9}, "loss.web": 1.5, "layer.0/norm": 0.25,
        });
        for (key, value) in values.as_object().unwrap() {
            file.add(key, value);
        }
        file.add("loss", &serde_json::json!(2.25));
        file.finish().unwrap();
        file.replace().unwrap();
        let run = "run=\"a \\\"run\\\"\"";
        let expected = format!(
            "{START}# TYPE meshwright_comm_bytes gauge\nmeshwright_comm_bytes{{{run},axes=\"dp x tp\"}} 9\n\
             # TYPE meshwright_grad_norm gauge\nmeshwright_grad_norm{{{run}}} NaN\n\
             # TYPE meshwright_loss gauge\nmeshwright_loss{{{run}}} 2.25\n\
             # TYPE meshwright_own gauge\nmeshwright_own{{{run},name=\"layer.0/norm\"}} 0.25\n\
             # TYPE meshwright_peak_bytes gauge\n\
             meshwright_peak_bytes{{{run},category=\"gradients\"}} 5\n\
             meshwright_peak_bytes{{{run},category=\"total\"}} 7\n\
             # TYPE meshwright_source_loss gauge\nmeshwright_source_loss{{{run},source=\"web\"}} 1.5\n\
             # TYPE meshwright_step gauge\nmeshwright_step{{{run}}} 3\n"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_has_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.prom");
        let claim = || PrometheusFile::claim(path.clone());
        let mut file = begin(&path);
        file.replace().unwrap();
        let text = claim().unwrap_err().to_string();
        assert!(text.contains("a.prom: another run writes to it"), "{text}");
        drop(file);
        drop(claim().unwrap().begin().unwrap());
        fs::write(&path, "node_load1 0.5\n").unwrap();
        let text = claim().unwrap_err().to_string();
        assert!(text.contains("a.prom: it was written by another program"), "{text}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        claim().unwrap_err();
    }
}
