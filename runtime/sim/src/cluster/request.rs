//! Requests for a number of GPUs of a cluster: `h100-dgxx64`.

use std::sync::Arc;

use super::{Catalog, Cluster, ClusterError, MAX_GPUS};

/// A number of GPUs of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct SizedCluster {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// GPUs in use: up to one node, or whole nodes.
    pub gpus: usize,
}

impl SizedCluster {
    /// Parses `CLUSTERxN`: the digits after the last `x` are the number of GPUs, and the text before is a name or a
    /// file, as [`Catalog::cluster`] takes it.
    ///
    /// # Errors
    /// Unknown clusters, faulty files, and numbers of GPUs that the cluster does not have.
    pub fn parse(request: &str, catalog: &Catalog) -> Result<SizedCluster, ClusterError> {
        let size = |message| ClusterError::Size { request: request.into(), message };
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let Some((name, digits)) = request.rsplit_once('x').filter(|(_, digits)| is_number(digits))
        else {
            let unknown = catalog.cluster(request).err();
            if let (Some(unknown), Some((name, digits))) = (unknown, request.rsplit_once('x')) {
                if name.is_empty() || catalog.cluster(name).is_err() {
                    return Err(unknown);
                }
                return Err(size(format!(
                    "`{digits}` is no number of GPUs: write {name}x64 for 64 of them"
                )));
            }
            catalog.cluster(request)?;
            return Err(size(format!(
                "the number of GPUs is missing: write {request}x64 for 64 of them"
            )));
        };
        let cluster = catalog.cluster(name)?;
        // A number that does not fit is above all limits.
        let gpus = digits.parse().unwrap_or(usize::MAX);
        cluster.check_size(gpus).map_err(size)?;
        Ok(SizedCluster { cluster, gpus })
    }

    /// Limits the memory of each rank to `bytes`.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: f64) -> SizedCluster {
        let gpu = &self.cluster.gpu;
        let bytes = if gpu.is_shared() { bytes * self.gpus as f64 } else { bytes };
        if bytes < gpu.memory.value {
            let cluster = Arc::make_mut(&mut self.cluster);
            Arc::make_mut(&mut cluster.gpu).memory.value = bytes;
        }
        self
    }

    /// Returns `gpus` GPUs of `cluster`.
    ///
    /// # Errors
    /// [`ClusterError::Size`] if the cluster does not have so many.
    pub fn of(cluster: &Arc<Cluster>, gpus: usize) -> Result<SizedCluster, ClusterError> {
        let request = || format!("{gpus} of {}", cluster.name);
        let size = |message| ClusterError::Size { request: request(), message };
        cluster.check_size(gpus).map_err(size)?;
        Ok(SizedCluster { cluster: Arc::clone(cluster), gpus })
    }
}

impl Cluster {
    /// Refuses numbers of GPUs that the cluster does not have, with a message that states possible ones.
    ///
    /// # Errors
    /// No GPU, more than the cluster has, and several nodes that are not whole.
    pub fn check_size(&self, gpus: usize) -> Result<(), String> {
        let node = self.node();
        let most = self.gpus.unwrap_or(MAX_GPUS);
        if gpus == 0 {
            return Err("a run needs at least 1 GPU".into());
        }
        if gpus > most {
            return Err(match self.gpus {
                Some(most) => format!("the cluster `{}` has {most} GPUs", self.name),
                None => format!("at most {most} GPUs can be simulated"),
            });
        }
        if gpus > node && !gpus.is_multiple_of(node) {
            let below = gpus / node * node;
            let above = below + node;
            let near =
                if above <= most { format!("{below} or {above}") } else { below.to_string() };
            return Err(format!(
                "nodes of {node} GPUs do not divide {gpus}: use {near}, or up to {node} in one node"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(request: &str) -> Result<(String, usize), String> {
        let sized =
            SizedCluster::parse(request, &Catalog::new()).map_err(|error| error.to_string())?;
        Ok((sized.cluster.name.clone(), sized.gpus))
    }

    #[test]
    fn the_last_x_begins_the_number() {
        for (request, name, gpus) in [
            ("h100-dgxx64", "h100-dgx", 64),
            ("h100x8", "h100-dgx", 8),
            ("H100x3", "h100-dgx", 3),
            ("mi300xx16", "mi300x", 16),
            ("mi300x16", "mi300x", 16),
            ("llama3x16384", "llama3", 16384),
            ("tpu-v5px24", "tpu-v5p", 24),
            ("gb200x144", "gb200-nvl72", 144),
        ] {
            assert_eq!(parse(request), Ok((name.into(), gpus)));
        }
    }

    #[test]
    fn wrong_numbers_are_refused() {
        for (request, message) in [
            ("h100x0", "h100x0: a run needs at least 1 GPU"),
            (
                "h100x17",
                "h100x17: nodes of 8 GPUs do not divide 17: use 16 or 24, or up to 8 in one node",
            ),
            ("h100x1000000000", "h100x1000000000: at most 10000000 GPUs can be simulated"),
            ("h100x99999999999999999999999", "at most 10000000 GPUs"),
            ("llama3x24577", "llama3x24577: the cluster `llama3` has 24576 GPUs"),
            ("h100", "h100: the number of GPUs is missing: write h100x64"),
            ("mi300x", "mi300x: the number of GPUs is missing: write mi300xx64"),
            ("h100x16k", "h100x16k: `16k` is no number of GPUs: write h100x64"),
            ("h100x-1", "h100x-1: `-1` is no number of GPUs"),
            ("x8", "unknown cluster ``"),
            ("h10x8", "unknown cluster `h10`; did you mean `h100`? known are"),
            ("nonex8", "unknown cluster `none`; known are a100-40gb, a100-dgx"),
            ("./none.tomlx8", "./none.toml: No such file"),
        ] {
            let error = parse(request).unwrap_err();
            assert!(error.contains(message), "{request}: {error}");
        }
    }
}
