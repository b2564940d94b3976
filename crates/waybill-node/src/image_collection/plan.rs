//! Which images may go, in which order, and how much is to be freed: no call, no disk, no clock.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use waybill_proto::cri::Image;

use super::{ImageLimits, is_used};

/// What is known of a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) capacity: u64,
    pub(super) available: u64,
}

impl Space {
    /// How many bytes are to be freed, if too many are used.
    pub(super) fn to_free(self, limits: ImageLimits) -> Option<u64> {
        // A file system that cannot count is not full.
        let free_percent = self.available.saturating_mul(100).checked_div(self.capacity)?;
        if 100_u64.saturating_sub(free_percent) < limits.high_percent.into() {
            return None;
        }
        let low = u64::from(limits.low_percent).min(100);
        let wanted_free = self.capacity / 100 * (100 - low);
        Some(wanted_free.saturating_sub(self.available)).filter(|bytes| *bytes > 0)
    }
}

/// A disk that stays full is told of this often.
const TELL: SignedDuration = SignedDuration::from_mins(5);

/// What has been seen of the images of the runtime.
#[derive(Debug, Default)]
pub(super) struct Known {
    images: BTreeMap<String, Record>,
    told: Option<Timestamp>,
}

#[derive(Debug)]
struct Record {
    size: u64,
    pinned: bool,
    first_seen: Timestamp,
    /// When it was last seen in use, if ever.
    last_used: Option<Timestamp>,
    in_use: bool,
}

impl Known {
    /// Takes note of what there is now; `used` are names of images that containers have.
    pub(super) fn update(&mut self, images: &[Image], used: &[String], now: Timestamp) {
        self.images.retain(|id, _| images.iter().any(|image| image.id == *id));
        for image in images {
            let record = self.images.entry(image.id.clone()).or_insert(Record {
                size: 0,
                pinned: false,
                first_seen: now,
                last_used: None,
                in_use: false,
            });
            record.size = image.size;
            record.pinned = image.pinned;
            record.in_use = is_used(image, used);
            if record.in_use {
                record.last_used = Some(now);
            }
        }
    }

    /// Images that may go with their sizes, the longest unused first, and of those the ones that have
    /// been here longest.
    pub(super) fn removable(&self, least_age: Duration, now: Timestamp) -> Vec<(String, u64)> {
        let least_age = SignedDuration::try_from(least_age).unwrap_or(SignedDuration::MAX);
        let mut found: Vec<_> = self
            .images
            .iter()
            .filter(|(_, record)| !record.pinned && !record.in_use)
            .filter(|(_, record)| now.duration_since(record.first_seen) >= least_age)
            .collect();
        found.sort_by_key(|(_, record)| (record.last_used, record.first_seen));
        found.into_iter().map(|(id, record)| (id.clone(), record.size)).collect()
    }

    pub(super) fn forget(&mut self, id: &str) {
        self.images.remove(id);
    }

    /// Whether nobody was told for some time that there is not enough to remove.
    pub(super) fn is_worth_telling(&mut self, now: Timestamp) -> bool {
        if self.told.is_some_and(|told| now.duration_since(told) < TELL) {
            return false;
        }
        self.told = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ImageLimits =
        ImageLimits { high_percent: 85, low_percent: 80, least_age: Duration::from_secs(120) };

    #[test]
    fn space_is_freed_from_the_high_mark_to_the_low_one() {
        let check = |available, expected| {
            let space = Space { capacity: 1000, available };
            assert_eq!(space.to_free(LIMITS), expected, "{available}");
        };
        check(1000, None);
        // Percents are whole ones, and what is free is rounded down.
        check(160, None);
        check(159, Some(41));
        check(150, Some(50));
        check(0, Some(200));
        assert_eq!(Space { capacity: 0, available: 0 }.to_free(LIMITS), None);
    }

    fn image(id: &str) -> Image {
        Image { id: id.to_owned(), size: 7, ..Image::default() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn removable(known: &Known, second: i64) -> Vec<String> {
        known.removable(LIMITS.least_age, at(second)).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn the_longest_unused_goes_first_and_one_in_use_never() {
        let mut known = Known::default();
        let images = ["a", "b", "c"].map(image);
        let used = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
        known.update(&images, &used(&["a", "b"]), at(0));
        known.update(&images, &used(&["a"]), at(10));
        assert_eq!(removable(&known, 500), ["c", "b"]);
        known.update(&images, &[], at(20));
        assert_eq!(removable(&known, 500), ["c", "b", "a"]);
    }

    #[test]
    fn a_full_disk_is_told_of_now_and_then() {
        let mut known = Known::default();
        let told: Vec<_> = [0, 30, 299, 300, 301].map(|it| known.is_worth_telling(at(it))).into();
        assert_eq!(told, [true, false, false, true, false]);
    }

    #[test]
    fn what_has_only_just_come_stays() {
        let mut known = Known::default();
        known.update(&[image("a")], &[], at(0));
        known.update(&[image("a"), image("b")], &[], at(100));
        assert!(removable(&known, 119).is_empty());
        assert_eq!(removable(&known, 120), ["a"]);
        assert_eq!(removable(&known, 220), ["a", "b"]);
        // One that went and came again has come again.
        known.update(&[image("b")], &[], at(300));
        known.update(&[image("a"), image("b")], &[], at(310));
        assert_eq!(removable(&known, 320), ["b"]);
    }

    #[test]
    fn what_is_pinned_stays_and_images_are_used_by_any_of_their_names() {
        let mut known = Known::default();
        let pinned = Image { pinned: true, ..image("a") };
        let named = Image {
            repo_tags: vec!["x:1".to_owned()],
            repo_digests: vec!["x@sha256:1".to_owned()],
            ..image("b")
        };
        for used in ["x:1", "x@sha256:1", "b"] {
            known.update(&[pinned.clone(), named.clone()], &[used.to_owned()], at(0));
            assert!(removable(&known, 500).is_empty(), "{used}");
        }
    }
}
