//! Names that are nearly the same.

/// Returns the known name that is nearest to a misspelled one; `None` if no name is near.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |known: &str| strsim::damerau_levenshtein(name, known);
    let nearest = known.iter().copied().min_by_key(|known| distance(known))?;
    let near = (name.chars().count() / 4).max(1);
    (distance(nearest) <= near).then_some(nearest)
}

/// Returns a hint for an unknown name: the names that begin alike or are nearly the same, and all names.
pub fn hint(name: &str, known: &[&str]) -> String {
    let all = format!("known are {}", known.join(", "));
    let name = name.to_ascii_lowercase();
    let begins_alike =
        known.iter().copied().find(|known| name.len() >= 2 && known.starts_with(&name));
    match nearest(&name, known).or(begins_alike) {
        Some(near) => format!("did you mean `{near}`? {all}"),
        None => all,
    }
}
