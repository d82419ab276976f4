//! Git LFS pointers: small texts that stand for large files which were not fetched.

/// The problem of a pointer, and the fix.
pub const IS_LFS_POINTER: &str = "it is a Git LFS pointer; fetch the file itself: git lfs pull";

/// Returns true for the content of a pointer
/// (<https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>).
pub fn is_lfs_pointer(content: &[u8]) -> bool {
    content.len() < 1024 && content.starts_with(b"version https://git-lfs.github.com/spec/")
}
