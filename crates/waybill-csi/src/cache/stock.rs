//! What a cache holds, and for which namespaces.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tokio::time::Instant;
use waybill_core::secret::SecretBytes;

use super::{ENTRY_BYTES, Shelf, map_bytes, share::gives_way};
use crate::driver::Query;

/// Values on their shelves, at most `limit` bytes of them.
///
/// A value counts for the namespace that asked for it, whoever else finds it: so much of the memory is theirs.
pub(super) struct Stock {
    limit: usize,
    shelves: HashMap<Arc<Shelf>, HashMap<Arc<Query>, Entry>>,
    holders: HashMap<Arc<str>, Holder>,
    bytes: usize,
    next_number: u64,
}

struct Entry {
    value: SecretBytes,
    holder: Arc<str>,
    end: End,
}

/// When an entry is over; the number tells apart those that are over together.
type End = (Instant, u64);

/// Where an entry lies.
type Place = (Arc<Shelf>, Arc<Query>);

/// What counts for one namespace.
#[derive(Default)]
struct Holder {
    bytes: usize,
    entries: BTreeMap<End, Place>,
    /// How many of the entries are on each shelf.
    shelves: HashMap<Arc<Shelf>, usize>,
}

impl Stock {
    pub(super) fn new(limit: usize) -> Self {
        let (shelves, holders) = Default::default();
        Self { limit, shelves, holders, bytes: 0, next_number: 0 }
    }

    /// Puts a value on a shelf until `ends`. If there is no room, whoever holds most loses what is over first;
    /// a value that has no room even so is not kept.
    pub(super) fn put(
        &mut self,
        namespace: &str,
        shelf: &Shelf,
        query: &Query,
        value: &SecretBytes,
        ends: Instant,
    ) {
        self.remove(shelf, query);
        if !self.make_room(namespace, shelf, entry_bytes(query, value)) {
            return;
        }
        let (shelf, query) = (self.shared(shelf), Arc::new(query.clone()));
        let holder = self.holders.keys().find(|holder| ***holder == *namespace).cloned();
        let holder = holder.unwrap_or_else(|| namespace.into());
        let end = (ends, self.next_number);
        self.next_number += 1;
        let of_holder = self.holders.entry(Arc::clone(&holder)).or_default();
        let bytes = of_holder.add(end, &shelf, &query, value);
        self.bytes += bytes;
        let value = SecretBytes::copy_of(value.expose());
        self.shelves.entry(shelf).or_default().insert(query, Entry { value, holder, end });
    }

    /// Wipes what is over.
    pub(super) fn remove_old(&mut self, now: Instant) {
        while let Some((shelf, query)) =
            self.first_to_end().filter(|(end, _)| end.0 <= now).map(|it| it.1)
        {
            self.remove(&shelf, &query);
        }
    }

    /// Wipes shelves that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&Shelf) -> bool) {
        let gone: Vec<Place> = self
            .shelves
            .iter()
            .filter(|(shelf, _)| !keep(shelf))
            .flat_map(|(shelf, entries)| entries.keys().map(|query| (shelf.clone(), query.clone())))
            .collect();
        gone.iter().for_each(|(shelf, query)| self.remove(shelf, query));
    }

    pub(super) fn find(&self, shelf: &Shelf, query: &Query, now: Instant) -> Option<&SecretBytes> {
        let entry = self.shelves.get(shelf)?.get(query)?;
        (entry.end.0 > now).then_some(&entry.value)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the first value is over.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.first_to_end().map(|((ends, _), _)| ends)
    }

    fn first_to_end(&self) -> Option<(End, Place)> {
        let firsts = self.holders.values().filter_map(|holder| holder.entries.first_key_value());
        firsts.min_by_key(|(end, _)| **end).map(|(end, place)| (*end, place.clone()))
    }

    /// Whether there is room for `entry` bytes on `shelf`, after others gave way.
    fn make_room(&mut self, namespace: &str, shelf: &Shelf, entry: usize) -> bool {
        loop {
            let own = self.holders.get(namespace);
            let has_shelf = own.is_some_and(|holder| holder.shelves.contains_key(shelf));
            let more = entry + if has_shelf { 0 } else { shelf.bytes() };
            if self.bytes + more <= self.limit {
                return true;
            }
            let held = self.holders.iter().map(|(holder, of_it)| (&**holder, of_it.bytes));
            let victim = gives_way(held, namespace, own.map_or(0, |holder| holder.bytes) + more);
            let victim = self.holders.get(victim);
            let first = victim.and_then(|holder| holder.entries.first_key_value());
            // The newcomer alone would hold most, and has nothing to give away for it.
            let Some((shelf, query)) = first.map(|(_, place)| place.clone()) else { return false };
            self.remove(&shelf, &query);
        }
    }

    fn remove(&mut self, shelf: &Shelf, query: &Query) {
        let Some((shelf, mut entries)) = self.shelves.remove_entry(shelf) else { return };
        if let Some((query, entry)) = entries.remove_entry(query)
            && let Some(holder) = self.holders.get_mut(&entry.holder)
        {
            self.bytes -= holder.take(entry.end, &shelf, &query, &entry.value);
            if holder.entries.is_empty() {
                self.holders.remove(&entry.holder);
            }
        }
        if !entries.is_empty() {
            self.shelves.insert(shelf, entries);
        }
    }

    /// The shelf as it is kept already, so that there is one copy of it.
    fn shared(&self, shelf: &Shelf) -> Arc<Shelf> {
        let known = self.shelves.get_key_value(shelf).map(|(known, _)| Arc::clone(known));
        known.unwrap_or_else(|| Arc::new(shelf.clone()))
    }
}

impl Holder {
    /// Counts an entry; how many bytes more it is.
    fn add(
        &mut self,
        end: End,
        shelf: &Arc<Shelf>,
        query: &Arc<Query>,
        value: &SecretBytes,
    ) -> usize {
        let on_shelf = self.shelves.entry(Arc::clone(shelf)).or_insert(0);
        let of_shelf = if *on_shelf == 0 { shelf.bytes() } else { 0 };
        *on_shelf += 1;
        self.entries.insert(end, (Arc::clone(shelf), Arc::clone(query)));
        let bytes = of_shelf + entry_bytes(query, value);
        self.bytes += bytes;
        bytes
    }

    /// Counts it no more; how many bytes less it is.
    fn take(&mut self, end: End, shelf: &Shelf, query: &Query, value: &SecretBytes) -> usize {
        self.entries.remove(&end);
        let mut bytes = entry_bytes(query, value);
        if let Some(on_shelf) = self.shelves.get_mut(shelf) {
            *on_shelf -= 1;
            if *on_shelf == 0 {
                self.shelves.remove(shelf);
                bytes += shelf.bytes();
            }
        }
        self.bytes -= bytes;
        bytes
    }
}

fn entry_bytes(query: &Query, value: &SecretBytes) -> usize {
    ENTRY_BYTES + query.key.len() + map_bytes(&query.parameters) + value.len()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::driver::{Call, PodIdentity, Sharing};

    const NAMESPACES: [&str; 4] = ["bank", "shop", "till", "yard"];

    fn shelf(namespace: &str, sharing: Sharing) -> Shelf {
        let pod = PodIdentity {
            namespace: namespace.into(),
            service_account: "a".into(),
            name: "p".into(),
            uid: namespace.into(),
            node: "n".into(),
        };
        let call = Call { class: "c".into(), parameters: [].into(), pod, tokens: [].into() };
        Shelf::of(&call, sharing)
    }

    fn query(key: u8) -> Query {
        Query { key: key.to_string(), parameters: [].into() }
    }

    fn counted(stock: &Stock) -> HashMap<Arc<str>, usize> {
        let mut all = HashMap::new();
        for (shelf, entries) in &stock.shelves {
            let mut holders = HashMap::new();
            for (query, entry) in entries {
                let of_shelf =
                    if holders.insert(&entry.holder, ()).is_none() { shelf.bytes() } else { 0 };
                *all.entry(Arc::clone(&entry.holder)).or_insert(0) +=
                    of_shelf + entry_bytes(query, &entry.value);
            }
        }
        all
    }

    proptest! {
        /// CSI-48: whatever the others do, a namespace has its share.
        #[test]
        fn a_namespace_loses_nothing_of_its_share_to_others_csi_48(
            puts in prop::collection::vec((0..4_usize, any::<bool>(), 0..40_u8, 0..3_000_usize, 1..100_u64), 1..80),
        ) {
            let start = Instant::now();
            let mut stock = Stock::new(12_000);
            for (who, is_shared, key, length, ends) in puts {
                let sharing = if is_shared { Sharing::Class } else { Sharing::Identity };
                let (shelf, query) = (shelf(NAMESPACES[who], sharing), query(key));
                // Values that are read again for somebody else count for them from then on.
                stock.remove(&shelf, &query);
                let before = counted(&stock);
                let holders = before.len() + usize::from(!before.contains_key(NAMESPACES[who]));
                let value = SecretBytes::copy_of(&vec![0; length]);
                stock.put(NAMESPACES[who], &shelf, &query, &value, start + Duration::from_secs(ends));
                let after = counted(&stock);
                prop_assert!(stock.bytes() <= 12_000);
                prop_assert_eq!(stock.bytes(), after.values().sum::<usize>());
                for (namespace, bytes) in &stock.holders {
                    prop_assert_eq!(after.get(namespace), Some(&bytes.bytes));
                }
                for (namespace, bytes) in before {
                    if *namespace != *NAMESPACES[who] && bytes <= 12_000 / holders {
                        prop_assert_eq!(after.get(&namespace), Some(&bytes), "{}", namespace);
                    }
                }
            }
            stock.remove_old(start + Duration::from_secs(100));
            prop_assert!(stock.bytes() == 0 && stock.shelves.is_empty() && stock.holders.is_empty());
        }
    }
}
