//! The guide, whose code blocks are compiled and run as documentation tests.
