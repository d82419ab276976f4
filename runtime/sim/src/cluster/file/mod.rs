//! TOML files that describe a GPU (`[gpu]`), a cluster (`[cluster]`), or both.
//!
//! `gpu` and `cluster` describe the tables, both for the reader and for the writer.

mod cluster;
mod document;
mod gpu;
mod quantity;
mod reader;
mod table_format;
mod writer;

use std::sync::Arc;

use self::document::Document;
use self::table_format::TableFormat;
use self::writer::Writer;
use super::{Cluster, ClusterError, Gpu};

/// Reads the GPU of a file; `None` if it describes none.
pub fn read_gpu(file: &str, text: &str) -> Result<Option<Gpu>, ClusterError> {
    let document = Document::parse(file, text)?;
    document.table("gpu")?.map(|table| table.read(|table| gpu::gpu(table, None))).transpose()
}

/// Reads the cluster of a file; `None` if it describes none. Its GPU is `own_gpu`, which the file describes, unless it
/// names another one, which `find_gpu` returns.
pub fn read_cluster(
    file: &str,
    text: &str,
    own_gpu: Option<Arc<Gpu>>,
    find_gpu: &dyn Fn(&str) -> Result<Arc<Gpu>, ClusterError>,
) -> Result<Option<Cluster>, ClusterError> {
    let document = Document::parse(file, text)?;
    let Some(table) = document.table("cluster")? else { return Ok(None) };
    let cluster = table.read(|table| {
        let gpu = match (table.optional_text("gpu", None)?, own_gpu) {
            (Some(name), Some(own)) if own.name == name => own,
            (Some(name), _) => {
                find_gpu(&name).map_err(|error| table.fault("gpu", &format!("names an {error}")))?
            }
            (None, Some(own)) => own,
            (None, None) => {
                let message =
                    "is missing: name a GPU, such as gpu = \"h100-sxm\", or add a table [gpu]";
                return Err(table.fault("gpu", message));
            }
        };
        cluster::cluster(table, gpu, None)
    })?;
    Ok(Some(cluster))
}

impl Gpu {
    /// Returns the GPU as a TOML file, which [`Catalog::add_file`](super::Catalog::add_file) reads.
    pub fn to_toml(&self) -> String {
        write(self, None)
    }
}

impl Cluster {
    /// Returns the cluster and its GPU as a TOML file, which [`Catalog::add_file`](super::Catalog::add_file) reads.
    pub fn to_toml(&self) -> String {
        write(&self.gpu, Some(self))
    }
}

fn write(gpu: &Gpu, cluster: Option<&Cluster>) -> String {
    let mut writer = Writer::default();
    let Ok(_) = writer.table("gpu", |table| gpu::gpu(table, Some(gpu)));
    if let Some(given) = cluster {
        let Ok(_) = writer
            .table("cluster", |table| cluster::cluster(table, given.gpu.clone(), Some(given)));
    }
    writer.into_text()
}
