//! A model without parameters has braces.

use meshwright::prelude::*;

dims! { Hidden }

#[model]
struct Identity;

fn main() {}
