//! Gathers of texts, as the 32-bit elements of other collectives: ranks may be processes.

use super::Communicator;
use crate::{Blocks, CommError, Site};

impl Communicator {
    /// Gathers the text of every rank, in the order of group ranks.
    #[doc(hidden)]
    pub fn all_gather_texts(&self, site: &Site, own: &str) -> Result<Vec<String>, CommError> {
        let own_len = [own.len() as u32];
        let mut lens = vec![0u32; self.size()];
        let one_each = Blocks::even(1, 1, self.size());
        self.all_gather(site, own_len[..].into(), lens.as_mut_slice().into(), &one_each)?;
        let words = |bytes: u32| bytes.div_ceil(4) as usize;
        let mut own_words = vec![0u32; words(own_len[0])];
        bytemuck::cast_slice_mut(&mut own_words)[..own.len()].copy_from_slice(own.as_bytes());
        let blocks = Blocks::new(1, lens.iter().map(|len| words(*len)).collect::<Vec<_>>());
        let mut all = vec![0u32; blocks.total()];
        if !all.is_empty() {
            self.all_gather(site, own_words.as_slice().into(), all.as_mut_slice().into(), &blocks)?;
        }
        let mut rest = all.as_slice();
        let texts = lens.iter().map(|len| {
            let (text, others) = rest.split_at(words(*len));
            rest = others;
            let bytes = &bytemuck::cast_slice::<u32, u8>(text)[..*len as usize];
            String::from_utf8_lossy(bytes).into_owned()
        });
        Ok(texts.collect())
    }
}
