//! Configuration of NCCL communicators.

use std::ffi::c_int;
use std::ptr;

use cudarc::nccl::sys::ncclConfig_t;

use super::api::SplitResources;

/// The magic number of a configuration.
const MAGIC: u32 = 0xcafe_beef;
/// The NCCL version that defines the fields.
const CONFIG_VERSION: u32 = 22_800;
/// The value of a field that is left to the library.
const UNDEFINED: c_int = c_int::MIN;

/// Returns a configuration with nonblocking calls. `splits` is about the communicators that are split from one with
/// this configuration.
pub fn config(splits: SplitResources) -> ncclConfig_t {
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: MAGIC,
        version: CONFIG_VERSION,
        blocking: 0,
        cgaClusterSize: UNDEFINED,
        minCTAs: UNDEFINED,
        maxCTAs: UNDEFINED,
        netName: ptr::null(),
        splitShare: c_int::from(splits == SplitResources::Shared),
        trafficClass: UNDEFINED,
        commName: ptr::null(),
        collnetEnable: UNDEFINED,
        CTAPolicy: UNDEFINED,
        shrinkShare: UNDEFINED,
        nvlsCTAs: UNDEFINED,
        nChannelsPerNetPeer: UNDEFINED,
        nvlinkCentricSched: UNDEFINED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library reads as many bytes as the configuration states, and the fields of the version that it states.
    #[test]
    fn config_has_the_layout_of_its_version() {
        let config = config(SplitResources::Shared);
        assert_eq!((config.size, config.magic, config.version), (80, 0xcafe_beef, 22_800));
        assert_eq!((config.blocking, config.splitShare), (0, 1));
        assert_eq!([config.minCTAs, config.nvlinkCentricSched], [c_int::MIN; 2]);
        assert!(config.netName.is_null() && config.commName.is_null());
        assert_eq!(super::config(SplitResources::Separate).splitShare, 0);
    }
}
