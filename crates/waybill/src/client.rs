//! What the commands that talk to an API server share: which one, as whom, and in which namespace.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use waybill_client::{Options, Place, Requests, Resource, Resources, connect};

/// Where `waybill up` writes its kubeconfig unless it is told otherwise.
const LOCAL: &str = "/var/lib/waybill/kubeconfig";

#[derive(clap::Args)]
pub(crate) struct ClientArgs {
    /// The kubeconfig; by default $KUBECONFIG, ~/.kube/config or that of `waybill up`.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context in it, if not its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The namespace, if not that of the context.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
}

/// A connection to an API server.
pub(crate) struct Cluster {
    pub(crate) requests: Requests,
    /// The namespace that is meant when none is named.
    pub(crate) namespace: String,
    /// Whether the user named it.
    pub(crate) named: bool,
}

impl ClientArgs {
    pub(crate) async fn connect(self) -> Result<Cluster> {
        let kubeconfig = match self.kubeconfig {
            Some(path) => path,
            None => found_kubeconfig()?,
        };
        let named = self.namespace.is_some();
        let options = Options { kubeconfig, context: self.context, namespace: self.namespace };
        let session = connect(&options).await?;
        let requests = Requests::new(session.client);
        Ok(Cluster { requests, namespace: session.namespace, named })
    }
}

impl Cluster {
    pub(crate) fn place(&self) -> Place {
        Place::Namespace(self.namespace.clone())
    }

    /// Where an object of a manifest goes.
    pub(crate) fn place_of(&self, own: Option<&str>) -> Result<Place> {
        match own {
            Some(own) if self.named && own != self.namespace => bail!(
                "the object is in namespace {own}, and --namespace says {}; leave one of them away",
                self.namespace
            ),
            Some(own) => Ok(Place::Namespace(own.to_owned())),
            None => Ok(self.place()),
        }
    }
}

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

fn found_kubeconfig() -> Result<PathBuf> {
    let candidates = candidates();
    if let Some(found) = candidates.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    let looked: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
    bail!(
        "there is no kubeconfig (looked for {}); start a cluster with `waybill up`, or name one with \
         --kubeconfig",
        looked.join(", ")
    )
}

#[expect(clippy::disallowed_methods, reason = "this is where the binary reads its environment")]
fn candidates() -> Vec<PathBuf> {
    // Of a list, the first file that is there; kubectl would merge them.
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let named: Vec<_> = env::split_paths(&named).filter(|it| *it != PathBuf::new()).collect();
    if !named.is_empty() {
        return named;
    }
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
    home.into_iter().chain([PathBuf::from(LOCAL)]).collect()
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
}
