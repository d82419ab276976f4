//! The cells of all candidates.

use std::collections::{BTreeSet, HashMap};

use crate::layout::AxisId;
use crate::train::Task;
use crate::train::config::RunSettings;
use crate::train::plan::OpenedModel;
use meshwright_sim::cluster::SizedCluster;

use super::cell::{Cell, CellKey};
use super::parallel::map_on_cores;
use super::space::SearchedModel;

/// GPU time of a token, over the least one of all cells, beyond which no more ranks along `cp` are tried. Part of the
/// difference may be worth its memory.
const TOO_SLOW: f64 = 2.0;

/// Measured cells, or the reasons against them.
pub type Cells = HashMap<CellKey, std::result::Result<Cell, String>>;

/// Measures cells, those with few ranks along `cp` first. If a cell takes much more GPU time than others, those with
/// more ranks along `cp` are left out: they would take even more, and their dry runs the longest.
pub fn measure_cells<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    model: &SearchedModel,
    keys: Vec<CellKey>,
) -> Cells {
    let cp = |key: &CellKey| key.mesh.degree(AxisId::Cp);
    let degrees: BTreeSet<usize> = keys.iter().map(cp).collect();
    let open = || {
        let config = keys.first()?.config(settings, on, 1).ok()?;
        OpenedModel::<T>::open(&config).ok()
    };
    let mut cells = Cells::new();
    let mut least = f64::INFINITY;
    // Cells with other ranks along `cp` that are too slow.
    let mut too_slow: Vec<CellKey> = Vec::new();
    for degree in degrees {
        let is_open = |key: &&CellKey| {
            cp(key) == degree && !too_slow.iter().any(|slow| slow.without_cp() == key.without_cp())
        };
        let keys: Vec<CellKey> = keys.iter().filter(is_open).copied().collect();
        let measured = map_on_cores(&keys, open, |opened, key| {
            let opened = opened.as_ref().ok_or("the model cannot be opened")?;
            key.measure::<T>(settings, opened, on).map_err(|error| error.to_string())
        });
        let layers = model.outline.layers as f64;
        let gpu_time = |key: &CellKey, cell: &Cell| {
            let gpus = key.mesh.world_size() as f64;
            (layers * cell.layer + cell.ends) * gpus / key.rows as f64
        };
        for (key, cell) in keys.iter().zip(&measured) {
            if let Ok(cell) = cell {
                least = least.min(gpu_time(key, cell));
            }
        }
        for (key, cell) in keys.into_iter().zip(measured) {
            if cell.as_ref().is_ok_and(|cell| gpu_time(&key, cell) > TOO_SLOW * least) {
                too_slow.push(key);
            }
            cells.insert(key, cell);
        }
    }
    cells
}
