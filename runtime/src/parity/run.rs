//! The numbers of a whole run, from what its ranks have observed.

use std::collections::HashMap;

use super::difference::Difference;
use super::observed::{Field, Observed, Record};

/// The numbers of a run: of each field once, in the order of steps, kinds and parameters.
pub(super) struct Run {
    pub(super) fields: Vec<(Field, Vec<f32>)>,
}

impl Run {
    /// Joins the observations of all ranks.
    ///
    /// # Errors
    /// The first field whose numbers differ between ranks that hold it, or that no first rank of a stage has.
    pub(super) fn of_ranks(ranks: Vec<Observed>) -> Result<Run, Difference> {
        // A field that was recorded several times in a step has as many entries, told apart by their number.
        let mut known: HashMap<(Field, usize), usize> = HashMap::new();
        let mut all: Vec<(usize, Record)> = Vec::new();
        for observed in ranks {
            let rank = observed.rank;
            let mut times: HashMap<Field, usize> = HashMap::new();
            for record in observed.records {
                let time = times.entry(record.field.clone()).or_insert(0);
                *time += 1;
                let Some(index) = known.get(&(record.field.clone(), *time)) else {
                    known.insert((record.field.clone(), *time), all.len());
                    all.push((rank, record));
                    continue;
                };
                let (first, same) = &mut all[*index];
                if same.hash != record.hash {
                    return Err(Difference::between_ranks(record.field, [*first, rank]));
                }
                if same.numbers.is_none() {
                    same.numbers = record.numbers;
                }
            }
        }
        all.sort_by_key(|(_, record)| (record.field.step, record.field.kind, record.index));
        let field_of = |(rank, record): (usize, Record)| match record.numbers {
            Some(numbers) => Ok((record.field, numbers)),
            None => Err(Difference::of_some_ranks(record.field, rank)),
        };
        Ok(Run { fields: all.into_iter().map(field_of).collect::<Result<_, _>>()? })
    }

    /// Returns the first field whose bits differ from another run of the same program on one rank.
    pub(super) fn first_other_bits(&self, other: &Run) -> Option<&Field> {
        let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let mut pairs = self.fields.iter().zip(&other.fields);
        let differs = pairs.find(|(one, two)| one.0 != two.0 || bits(&one.1) != bits(&two.1));
        let last = self.fields.get(other.fields.len()).or(self.fields.last());
        match differs {
            Some((field, _)) => Some(&field.0),
            None if self.fields.len() == other.fields.len() => None,
            None => last.map(|(field, _)| field),
        }
    }
}
