//! Slots of a process, stored in parts that copies of the process share. A slot is an index with a
//! definition, and holds the records of its instances.

use std::sync::Arc;

use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

use super::Slot;
use schemas::key::Place;

/// Maximum number of slots in a part.
const MAX_PART_LEN: usize = 32;

/// Slots of a process with their records, in order. Most processes have a single slot.
///
/// Two copies share every part that is unchanged in both. A decision about one of ten thousand slots
/// therefore copies at most 32 slots.
#[derive(Clone, Debug)]
pub struct Slots(Parts);

#[derive(Clone, Debug)]
enum Parts {
    /// At most [`MAX_PART_LEN`] slots in a single part.
    Few(SmallVec<[Slot; 1]>),
    /// One or more parts, each with at least one slot.
    Many(Vec<Arc<Vec<Slot>>>),
}

/// Location of a slot: the number of its part, and its index within the part.
type Location = (usize, usize);

impl Slots {
    /// Creates an empty collection.
    #[must_use]
    pub fn new() -> Self {
        Self(Parts::Few(SmallVec::new()))
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Parts::Few(slots) => slots.len(),
            Parts::Many(parts) => parts.iter().map(|part| part.len()).sum(),
        }
    }

    /// Returns `true` if the collection is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Parts::Few(slots) => slots.is_empty(),
            Parts::Many(_) => false,
        }
    }

    /// Returns an iterator over all slots, in order.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Slot> + Clone {
        self.from((0, 0))
    }

    /// Returns the slots at an instance index.
    pub fn at(&self, index: u32) -> impl Iterator<Item = &Slot> + Clone {
        let first = self.first_location(|place| place.index >= index);
        self.from(first).take_while(move |slot| slot.place.index == index)
    }

    /// Returns the records of a slot.
    #[must_use]
    pub fn get(&self, place: &Place) -> Option<&Slot> {
        let (part, at) = self.find(place).ok()?;
        self.part(part).get(at)
    }

    /// Returns the records of a slot for modification.
    pub fn get_mut(&mut self, place: &Place) -> Option<&mut Slot> {
        let at = self.find(place).ok()?;
        Some(self.slot_mut(at))
    }

    /// Changes the records of a slot. Creates the slot with `make` if it is missing. Removes the slot if it
    /// has no record after the change. Returns `true` if the slot exists after the change.
    pub(super) fn change(
        &mut self,
        place: &Place,
        make: impl FnOnce() -> Slot,
        change: impl FnOnce(&mut Slot),
    ) -> bool {
        let at = self.find(place).unwrap_or_else(|at| self.insert(at, make()));
        let slot = self.slot_mut(at);
        change(slot);
        let stays = slot.actual.is_some() || slot.evacuating.is_some();
        if !stays {
            self.remove(at);
        }
        stays
    }

    /// Reserves memory for exactly this number of additional slots. Only slots that fit into the first part
    /// are counted.
    pub(super) fn reserve(&mut self, more: usize) {
        match &mut self.0 {
            Parts::Few(slots) => slots.reserve_exact(more.min(MAX_PART_LEN - slots.len())),
            Parts::Many(_) => {}
        }
    }

    fn parts(&self) -> usize {
        match &self.0 {
            Parts::Few(_) => 1,
            Parts::Many(parts) => parts.len(),
        }
    }

    fn part(&self, number: usize) -> &[Slot] {
        match &self.0 {
            Parts::Few(slots) => slots,
            Parts::Many(parts) => &parts[number],
        }
    }

    fn from(&self, (part, at): Location) -> impl DoubleEndedIterator<Item = &Slot> + Clone {
        let rest = (part + 1..self.parts()).flat_map(|number| self.part(number));
        self.part(part)[at..].iter().chain(rest)
    }

    /// Returns the location of the first slot for which `is_after` is true. `is_after` must be true for all
    /// later slots as well.
    fn first_location(&self, is_after: impl Fn(&Place) -> bool) -> Location {
        let part = match &self.0 {
            Parts::Few(_) => 0,
            Parts::Many(parts) => {
                let is_before =
                    |part: &Arc<Vec<Slot>>| !part.last().is_some_and(|slot| is_after(&slot.place));
                parts.partition_point(is_before).min(parts.len() - 1)
            }
        };
        (part, self.part(part).partition_point(|slot| !is_after(&slot.place)))
    }

    /// Returns the location of a slot. If the slot does not exist, the error is the location for its
    /// insertion.
    fn find(&self, place: &Place) -> Result<Location, Location> {
        let (part, at) = self.first_location(|other| other >= place);
        let is_there = self.part(part).get(at).is_some_and(|slot| slot.place == *place);
        if is_there { Ok((part, at)) } else { Err((part, at)) }
    }

    fn slot_mut(&mut self, (part, at): Location) -> &mut Slot {
        match &mut self.0 {
            Parts::Few(slots) => &mut slots[at],
            Parts::Many(parts) => &mut Arc::make_mut(&mut parts[part])[at],
        }
    }

    /// Inserts a slot and returns its location.
    fn insert(&mut self, (part, at): Location, slot: Slot) -> Location {
        match &mut self.0 {
            Parts::Few(slots) if slots.len() < MAX_PART_LEN => {
                slots.insert(at, slot);
                (part, at)
            }
            Parts::Few(slots) => {
                self.0 = Parts::Many(vec![Arc::new(std::mem::take(slots).into_vec())]);
                self.insert((part, at), slot)
            }
            Parts::Many(parts) if parts[part].len() < MAX_PART_LEN => {
                Arc::make_mut(&mut parts[part]).insert(at, slot);
                (part, at)
            }
            // With insertions in order, every full part has the maximum number of slots.
            Parts::Many(parts) if at == MAX_PART_LEN => {
                parts.insert(part + 1, Arc::new(vec![slot]));
                (part + 1, 0)
            }
            Parts::Many(parts) => {
                let second = Arc::make_mut(&mut parts[part]).split_off(MAX_PART_LEN / 2);
                parts.insert(part + 1, Arc::new(second));
                let belongs =
                    if at <= MAX_PART_LEN / 2 { (part, at) } else { (part + 1, at - MAX_PART_LEN / 2) };
                self.insert(belongs, slot)
            }
        }
    }

    fn remove(&mut self, (part, at): Location) {
        match &mut self.0 {
            Parts::Few(slots) => drop(slots.remove(at)),
            Parts::Many(parts) if parts[part].len() > 1 => drop(Arc::make_mut(&mut parts[part]).remove(at)),
            Parts::Many(parts) if parts.len() > 1 => drop(parts.remove(part)),
            Parts::Many(_) => *self = Self::new(),
        }
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Slots {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Slots {}

impl Serialize for Slots {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = serializer.serialize_seq(Some(self.len()))?;
        self.iter().try_for_each(|slot| all.serialize_element(slot))?;
        all.end()
    }
}

impl<'de> Deserialize<'de> for Slots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Vec::<Slot>::deserialize(deserializer)?;
        let mut slots = Self::new();
        slots.reserve(stored.len());
        for slot in stored {
            let last = slots.parts() - 1;
            slots.insert((last, slots.part(last).len()), slot);
        }
        Ok(slots)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::actual::{Actual, State};
    use schemas::Timestamp;
    use schemas::cause::Cause;
    use schemas::names::{DecisionId, DefinitionId};

    fn place(index: u32, is_next: bool) -> Place {
        Place::new(index, DefinitionId::new(if is_next { "next" } else { "first" }).unwrap())
    }

    /// Returns a slot with an instance of this crash count. If `is` is `None`, the slot has no instance.
    fn slot(place: &Place, is: Option<u32>) -> Slot {
        let actual = is.map(|crash_count| Actual {
            state: State::Unclaimed { placement_error: None },
            since: Timestamp(0),
            crash_count,
            crash_reason: "".into(),
            crashed_instance: None,
            stop: None,
            counted: None,
        });
        let cause = Cause { decision: DecisionId(Uuid::nil()), correlation: DecisionId(Uuid::nil()) };
        Slot { place: place.clone(), actual, evacuating: None, changed_at: Timestamp(0), version: 0, cause }
    }

    /// Generates insertions in order, followed by random changes.
    fn changes() -> impl Strategy<Value = Vec<(Place, Option<u32>)>> {
        let any_place = (0..150_u32, any::<bool>()).prop_map(|(index, is_next)| place(index, is_next));
        let some = vec((any_place, proptest::option::weighted(0.6, any::<u32>())), 0..300);
        (0..150_u32, some).prop_map(|(ordered, some)| {
            (0..ordered).map(|index| (place(index, false), Some(0))).chain(some).collect()
        })
    }

    fn apply_changes(slots: &mut Slots, changes: &[(Place, Option<u32>)]) {
        for (place, is) in changes {
            slots.change(place, || slot(place, None), |there| *there = slot(place, *is));
        }
    }

    /// Returns `true` if no part is empty or too large, and if all slots are in order.
    fn is_well_formed(slots: &Slots) -> bool {
        let all = || (0..slots.parts()).map(|part| slots.part(part).len());
        let is_filled = slots.parts() == 1 || all().all(|count| count > 0);
        let is_sorted = slots.iter().is_sorted_by(|one, next| one.place < next.place);
        is_filled
            && is_sorted
            && all().all(|count| count <= MAX_PART_LEN)
            && all().sum::<usize>() == slots.len()
    }

    proptest! {
        #[test]
        fn slots_behave_like_a_map_and_copies_are_independent(before in changes(), after in changes()) {
            let mut slots = Slots::new();
            slots.reserve(before.len());
            apply_changes(&mut slots, &before);
            let (copy, told) = (slots.clone(), format!("{slots:?}"));
            apply_changes(&mut slots, &after);
            prop_assert!(is_well_formed(&slots) && is_well_formed(&copy));
            prop_assert_eq!(format!("{copy:?}"), told);
            let mut known = BTreeMap::new();
            for (place, is) in before.iter().chain(&after) {
                match is {
                    Some(_) => drop(known.insert(place.clone(), slot(place, *is))),
                    None => drop(known.remove(place)),
                }
            }
            prop_assert!(slots.iter().eq(known.values()), "{slots:?} is not {known:?}");
            prop_assert_eq!(slots.is_empty(), known.is_empty());
            for index in 0..150 {
                let [first, next] = [place(index, false), place(index, true)];
                prop_assert!(slots.at(index).eq(known.range(first.clone()..=next.clone()).map(|(_, slot)| slot)));
                prop_assert_eq!((slots.get(&first), slots.get(&next)), (known.get(&first), known.get(&next)));
                prop_assert_eq!(slots.get_mut(&next).cloned(), known.get(&next).cloned());
            }
            let stored = postcard::to_stdvec(&slots).unwrap();
            let read: Slots = postcard::from_bytes(&stored).unwrap();
            prop_assert!(is_well_formed(&read) && read == slots);
            let list: Vec<&Slot> = slots.iter().collect();
            prop_assert_eq!(stored, postcard::to_stdvec(&list).unwrap(), "slots are serialized like a list");
        }
    }
}
