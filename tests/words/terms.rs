//! Retired terms, with the terms to use instead.

/// A retired term and its replacement.
///
/// Words match case-insensitively between characters that are not letters, so identifiers such as `my_optimiser` match
/// too. A space matches `_` and `-` as well; `*` at the end matches any ending. A term with an upper-case letter is
/// case-sensitive.
pub const RETIRED: &[(&str, &str)] = &[
    // GPUs and devices.
    ("card", "`GPU`"),
    ("cards", "`GPUs`"),
    ("processor", "`CPU`"),
    ("processors", "`CPUs`"),
    ("maker's", "`vendor`"),
    ("the host's time", "`host overhead` or `launch overhead`"),
    ("recorded step", "`CUDA graph`"),
    ("recorded steps", "`CUDA graphs`"),
    ("Moment", "`event`"),
    ("trial", "`autotuning`"),
    // Autograd, parallelism and communication.
    ("what gelu is taken of", "`pre-activation`"),
    ("addend", "`partial sum` or `term`"),
    ("addends", "`partial sums` or `terms`"),
    ("stretch", "`shard` or `flat slice`"),
    ("gathered ahead", "`prefetched`"),
    ("look before", "`prefetch`"),
    ("undo", "`backward`"),
    ("undone", "`backward`"),
    ("zero level", "`ZeRO stage`"),
    ("zero levels", "`ZeRO stages`"),
    ("every level", "`every ZeRO stage`"),
    ("seat", "`group rank`"),
    ("meeting", "`rendezvous`"),
    ("meetings", "`rendezvous`"),
    ("attendance", "`rendezvous`"),
    ("roster", "`process group`"),
    ("own thread", "`main thread`"),
    ("element wise", "`elementwise`"),
    // Sentences.
    ("once more", "`again`, or a verb with `re-`: recompute, retry"),
    ("anew", "`again`, or a verb with `re-`: recompute, retry"),
    ("at once", "`immediately`, `together` or `in one launch`"),
    ("in vain", "`wasted` or `without effect`"),
    ("nobody", "the component's name, or a passive verb"),
    ("somebody", "the component's name"),
    ("whoever", "the component's name"),
    ("is told", "the component's name with `receives`"),
    ("are told", "the component's name with `receive`"),
    ("author's own", "`user-defined`"),
    ("one's own", "`user-defined`"),
    ("give back", "`return`, `free` or `trim`"),
    ("gives back", "`returns`, `frees` or `trims`"),
    ("given back", "`returned`, `freed` or `trimmed`"),
    ("where there is", "`if there is`"),
    // American spelling.
    ("initialis*", "`initializ-`"),
    ("optimis*", "`optimiz-`"),
    ("normalis*", "`normaliz-`"),
    ("tokenis*", "`tokeniz-`"),
    ("orthogonalis*", "`orthogonaliz-`"),
    ("utilis*", "`utiliz-`"),
    ("serialis*", "`serializ-`"),
    ("synchronis*", "`synchroniz-`"),
    ("specialis*", "`specializ-`"),
    ("vectoris*", "`vectoriz-`"),
    ("recognis*", "`recogniz-`"),
    ("finalis*", "`finaliz-`"),
    ("organis*", "`organiz-`"),
    ("minimis*", "`minimiz-`"),
    ("maximis*", "`maximiz-`"),
    ("parallelise", "`parallelize`"),
    ("parallelised", "`parallelized`"),
    ("generalis*", "`generaliz-`"),
    ("summaris*", "`summariz-`"),
    ("analyse", "`analyze`"),
    ("analysed", "`analyzed`"),
    ("centre*", "`center-`"),
    ("catalogue*", "`catalog-`"),
    ("towards", "`toward`"),
    ("afterwards", "`afterward` or `later`"),
    ("relabelled", "`relabeled`"),
    ("neighbour*", "`neighbor-`"),
    ("honour*", "`honor-` or `respect`"),
    ("behaviour*", "`behavior-`"),
    ("favour*", "`favor-`"),
    ("colour*", "`color-`"),
    ("labelled", "`labeled`"),
    ("modelled", "`modeled`"),
    ("misspelt", "`misspelled`"),
    ("learnt", "`learned`"),
];

/// A line of text, prepared for the search of many terms.
pub struct Line {
    exact: String,
    lower_case: String,
}

impl Line {
    pub fn new(text: &str) -> Line {
        let exact = text.replace(['_', '-'], " ");
        Line { lower_case: exact.to_ascii_lowercase(), exact }
    }

    /// Returns true if the line contains `term`.
    pub fn has_term(&self, term: &str) -> bool {
        let is_case_sensitive = term.starts_with(|first: char| first.is_ascii_uppercase());
        let line = if is_case_sensitive { &self.exact } else { &self.lower_case };
        let (term, is_prefix) = match term.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (term, false),
        };
        line.match_indices(term).any(|(start, found)| {
            let before = line[..start].chars().next_back();
            let after = line[start + found.len()..].chars().next();
            let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
            !is_letter(before) && (is_prefix || !is_letter(after))
        })
    }
}
