//! The mount table, by which mounts are found that a runtime before us made.

use std::path::PathBuf;

use crate::{
    image::error::{Doing, Result},
    procfs::{Mount, MountTable},
};

/// Where overlays of that source are mounted, the last one first.
pub(super) fn mounted_at(source: &str) -> Result<Vec<PathBuf>> {
    let table = MountTable::read().doing(|| format!("reading {}", MountTable::PATH))?;
    Ok(points(&table, source))
}

fn points(table: &MountTable, source: &str) -> Vec<PathBuf> {
    let of_source =
        |mount: &Mount<'_>| mount.kind == b"overlay" && mount.source == source.as_bytes();
    let mut points: Vec<_> = table.mounts().filter(of_source).map(|mount| mount.point).collect();
    points.reverse();
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_source() {
        let table = b"22 1 0:20 / /proc rw - proc proc rw\n\
            31 1 0:40 / /run/a\\040b rw,relatime shared:5 - overlay waybill:one rw,lowerdir=/x\n\
            32 1 0:41 / /run/c rw - overlay waybill:two rw\n\
            33 1 0:40 / /run/d rw - overlay waybill:one rw\n";
        let table = MountTable::from_mountinfo(table.to_vec());
        let found = points(&table, "waybill:one");
        assert_eq!(found, [PathBuf::from("/run/d"), PathBuf::from("/run/a b")]);
        assert!(points(&table, "waybill:on").is_empty());
    }
}
