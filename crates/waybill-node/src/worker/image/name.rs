//! The names of images, as far as the node has to understand them: `[registry/]path[:tag][@digest]`.

/// Where images come from whose name does not say it.
const DEFAULT_REGISTRY: &str = "docker.io";

struct Parts<'n> {
    registry: Option<&'n str>,
    path: &'n str,
    tag: Option<&'n str>,
    digest: Option<&'n str>,
}

fn split(name: &str) -> Parts<'_> {
    let (name, digest) = match name.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (name, None),
    };
    let (name, tag) = match name.rsplit_once(':') {
        // A colon before the last slash is that of a port.
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
    match name.split_once('/') {
        Some((first, path)) if is_registry(first) => {
            Parts { registry: Some(first), path, tag, digest }
        }
        _ => Parts { registry: None, path: name, tag, digest },
    }
}

/// Whether somebody could have an image of that name.
pub(super) fn is_valid(name: &str) -> bool {
    let parts = split(name);
    let registry_is_good = parts.registry.is_none_or(|registry| {
        let (host, port) = registry.split_once(':').unwrap_or((registry, "1"));
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        !host.is_empty()
            && host.chars().all(is_host)
            && !port.is_empty()
            && port.chars().all(|c| c.is_ascii_digit())
    });
    registry_is_good
        && parts.path.split('/').all(is_component)
        && parts.tag.is_none_or(is_tag)
        && parts.digest.is_none_or(is_digest)
}

/// Lower-case letters and digits, with single separators between them: `.`, `_`, `__` or dashes.
fn is_component(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators: Vec<&str> =
        text.split(inner).filter(|separator| !separator.is_empty()).collect();
    let ends_are_good = text.starts_with(inner) && text.ends_with(inner);
    ends_are_good
        && separators
            .iter()
            .all(|it| matches!(*it, "." | "_" | "__") || it.chars().all(|c| c == '-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128
        && text.starts_with(is_word)
        && text.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        !algorithm.is_empty() && hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
    })
}

/// Whether the name means whatever is newest.
pub(super) fn is_latest(name: &str) -> bool {
    let parts = split(name);
    parts.digest.is_none() && matches!(parts.tag, None | Some("latest"))
}

/// The registry that an image comes from.
pub(super) fn registry(name: &str) -> &str {
    split(name).registry.unwrap_or(DEFAULT_REGISTRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_told_from_bad_ones() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for name in ["a", "a/b", "a:1", "r.io/a_b/c-d:v1.0", "r:5000/a", "localhost/a--b", &digest]
        {
            assert!(is_valid(name), "{name}");
        }
        for name in ["", "A", "a//b", "a:", "a/", "/a", "a b", "a:b c", "a@sha256:1", "-a", "a..b"]
        {
            assert!(!is_valid(name), "{name}");
        }
    }

    #[test]
    fn a_name_without_tag_means_the_newest() {
        for (name, expected) in
            [("a", true), ("a:latest", true), ("r:5000/a", true), ("a:1", false)]
        {
            assert_eq!(is_latest(name), expected, "{name}");
        }
        assert!(!is_latest(&format!("a@sha256:{}", "0".repeat(64))));
    }

    #[test]
    fn the_registry_is_what_stands_before_the_path() {
        for (name, expected) in
            [("a", "docker.io"), ("a/b", "docker.io"), ("r.io/a", "r.io"), ("r:5000/a:1", "r:5000")]
        {
            assert_eq!(registry(name), expected);
        }
    }
}
