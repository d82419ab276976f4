//! Names of the tensors of a folder, without what other programs add to them.

/// Segments of names that wrappers of a module add, such as one that compiles it: anywhere in a name.
const WRAPPERS: [&str; 3] = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];

/// Returns the name in the model of each of the `stored` names: without the segments of modules that wrap it or a part
/// of it, and without a prefix of all of them if each is a name of the model then, by `is_name`.
pub fn names_in_model<'a>(
    stored: impl Iterator<Item = &'a String>,
    is_name: impl Fn(&str) -> bool,
) -> Vec<String> {
    let unwrapped = |name: &String| {
        let segments: Vec<&str> = name.split('.').filter(|part| !WRAPPERS.contains(part)).collect();
        segments.join(".")
    };
    let mut names: Vec<String> = stored.map(unwrapped).collect();
    let cut = |names: &mut Vec<String>, len: usize| {
        names.iter_mut().for_each(|name| drop(name.drain(..len)));
    };
    // Of a module for data parallelism.
    const PARALLEL: &str = "module.";
    while !names.is_empty() && names.iter().all(|name| name.starts_with(PARALLEL)) {
        cut(&mut names, PARALLEL.len());
    }
    let longest = common_prefix(names.iter().map(String::as_str)).map_or(0, str::len);
    let ends = names.first().into_iter().flat_map(|name| name[..longest].match_indices('.'));
    let mut lengths = std::iter::once(0).chain(ends.map(|(dot, _)| dot + 1));
    let fitting = lengths.find(|len| names.iter().all(|name| is_name(&name[*len..])));
    cut(&mut names, fitting.unwrap_or(0));
    names
}

/// Returns the longest prefix of all `names` that ends in a dot; `None` if there is none.
pub fn common_prefix<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let first = names.next()?;
    let common = names.fold(first, |common, name| {
        let len = common.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        &common[..common.floor_char_boundary(len)]
    });
    common.rfind('.').map(|dot| &common[..=dot])
}
