//! The file of `--stage-times`.

use std::fs;

use crate::os::move_aside;
use crate::pipeline::Pipeline;
use crate::tensor::Rank;
use crate::train::console::print_line;
use crate::train::plan::Plan;
use crate::train::{Error, Result};

/// Writes the milliseconds of each stage-cut point if `--stage-times` is given: `{"blocks.0": 1.93, "blocks.1": 1.87}`.
/// Earlier times are moved aside. Every rank calls it.
pub fn write_stage_times(rank: &Rank, pipeline: &Pipeline, plan: &Plan) -> Result<()> {
    let (Some(path), Some(planned)) = (&plan.config.stage_times, &plan.pipeline) else {
        return Ok(());
    };
    let times = pipeline.stage_ms();
    if rank.index() > 0 {
        return Ok(());
    }
    let points = planned.stages.chain().cut_points();
    let mut of_points = vec![0.0; points.len()];
    for (stage, ms) in times.into_iter().enumerate() {
        // A stage has one cut point; an end without a layer counts with the layer beside it.
        let point = planned.stages.points_of_stage(stage).start;
        of_points[point.min(points.len() - 1)] += ms;
    }
    let timed = points.iter().zip(of_points);
    let lines = timed.map(|(point, ms)| format!("  {:?}: {ms:.6}", point.path));
    let text = format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n"));
    let (flag, path) = ("--stage-times", path.clone());
    let written = move_aside(&path).and_then(|aside| fs::write(&path, text).map(|()| aside));
    if let Some(aside) = written.map_err(|source| Error::Output { flag, path, source })? {
        print_line(&format!("{flag}: the earlier times are now in {}", aside.display()));
    }
    Ok(())
}
