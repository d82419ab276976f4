//! Arrangement of ranks.
