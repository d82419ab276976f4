//! Collectives with a root.

use meshwright_backend::{View, ViewMut};
use meshwright_comm::{Communicator, Site};

use super::{CaseResult, tokens, uneven};

pub fn from_every_root(group: &Communicator) -> CaseResult {
    let (me, size, site) = (group.rank(), group.size(), Site::new("x"));
    for root in 0..size {
        for base in [0, 2, 4001] {
            let counts = uneven(size, base);
            let (total, start) = (counts.iter().sum(), counts[..me].iter().sum::<usize>());
            let (all, is_root) = (tokens(root, total), me == root);
            let mut copy = tokens(me, total);
            group.broadcast(&site, root, ViewMut::from(&mut copy[..]))?;
            assert_eq!(copy, all);

            let mut part = vec![0; counts[me]];
            let src = is_root.then(|| View::from(&all[..]));
            group.scatter(&site, root, src, ViewMut::from(&mut part[..]), &counts)?;
            assert_eq!(part, all[start..start + counts[me]]);

            let mut back = vec![0; if is_root { total } else { 0 }];
            let dst = if is_root { Some(ViewMut::from(&mut back[..])) } else { None };
            group.gather(&site, root, View::from(&part[..]), dst, &counts)?;
            assert_eq!(back, if is_root { &all[..] } else { &[] });
            group.barrier(&site)?;
        }
    }
    Ok(())
}
