//! Who gives way when a cache, or whatever else namespaces share, is full.

/// The namespace that gives way when `newcomer`, which would hold `its_bytes` then, finds no room: the one that
/// holds most, and `newcomer` rather than another that holds as much.
///
/// Of `n` namespaces one that holds no more than the `n`th part of the cache never gives way to another: where
/// there is no room, some other holds more than that.
pub(crate) fn gives_way<'a>(
    held: impl IntoIterator<Item = (&'a str, usize)>,
    newcomer: &'a str,
    its_bytes: usize,
) -> &'a str {
    let others = held.into_iter().filter(|(namespace, _)| *namespace != newcomer);
    let largest = others.max_by_key(|(namespace, bytes)| (*bytes, *namespace));
    largest.filter(|(_, bytes)| *bytes > its_bytes).map_or(newcomer, |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CSI-48
    #[test]
    fn whoever_holds_most_gives_way_csi_48() {
        let held = [("bank", 30), ("shop", 60), ("till", 10)];
        assert_eq!(gives_way(held, "till", 15), "shop");
        assert_eq!(gives_way(held, "new", 5), "shop");
        assert_eq!(gives_way(held, "shop", 65), "shop");
        assert_eq!(gives_way(held, "bank", 60), "bank", "it would hold as much");
        assert_eq!(gives_way(held, "bank", 61), "bank");
        assert_eq!(gives_way([], "new", 1), "new");
    }
}
