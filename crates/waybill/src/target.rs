//! What users name on the command line: types, names, pods.

use anyhow::{Context, Result, bail};
use waybill_client::{Resource, Resources};

/// What the user calls `word`.
pub(crate) fn resource<'a>(resources: &'a Resources, word: &str) -> Result<&'a Resource> {
    resources.named(word).with_context(|| {
        let mut names: Vec<&str> = resources.names().collect();
        names.sort_unstable();
        names.dedup();
        format!("the server has no resource `{word}`; it has {}", names.join(", "))
    })
}

/// A type and names, as `pods a b`, or as `pod/a cm/b`.
pub(crate) fn targets(words: &[String]) -> Result<Vec<(String, Option<String>)>> {
    let Some((first, rest)) = words.split_first() else {
        bail!("name what you mean, as `pods`, `pod NAME` or `pod/NAME`");
    };
    if words.iter().any(|word| word.contains('/')) {
        let split = |word: &String| match word.split_once('/') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() => {
                Ok((kind.to_owned(), Some(name.to_owned())))
            }
            _ => bail!("`{word}` is not TYPE/NAME, as the others are"),
        };
        return words.iter().map(split).collect();
    }
    if rest.is_empty() {
        return Ok(first.split(',').map(|kind| (kind.to_owned(), None)).collect());
    }
    Ok(rest.iter().map(|name| (first.clone(), Some(name.clone()))).collect())
}

/// The name of a pod, as NAME or pod/NAME.
pub(crate) fn parse_pod(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("pod/").or_else(|| text.strip_prefix("pods/")).unwrap_or(text);
    if name.is_empty() || name.contains('/') {
        return Err("expected the name of a pod, as NAME or pod/NAME".to_owned());
    }
    Ok(name.to_owned())
}

/// Pods are the same everywhere, so nobody has to be asked.
pub(crate) fn pods() -> Resource {
    Resource {
        version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        plural: "pods".to_owned(),
        singular: "pod".to_owned(),
        namespaced: true,
        ..Resource::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], expected: &[(&str, Option<&str>)]) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let found = targets(&words).unwrap();
        let found: Vec<_> =
            found.iter().map(|(kind, name)| (kind.as_str(), name.as_deref())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn targets_are_named_as_kubectl_takes_them() {
        check(&["pods"], &[("pods", None)]);
        check(&["pods,cm"], &[("pods", None), ("cm", None)]);
        check(&["pod", "a", "b"], &[("pod", Some("a")), ("pod", Some("b"))]);
        check(&["pod/a", "cm/b"], &[("pod", Some("a")), ("cm", Some("b"))]);
        assert!(targets(&[]).is_err());
        assert!(targets(&["pod/a".to_owned(), "b".to_owned()]).is_err());
        assert!(targets(&["pod/".to_owned()]).is_err());
    }

    #[test]
    fn pods_may_be_written_as_kubectl_prints_them() {
        assert_eq!(parse_pod("pod/web").as_deref(), Ok("web"));
        assert_eq!(parse_pod("web").as_deref(), Ok("web"));
        assert!(parse_pod("pod/").is_err());
        assert!(parse_pod("deployment/web").is_err());
    }
}
