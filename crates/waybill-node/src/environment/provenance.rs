//! Who shipped what: for every container that was made, its variables with their origins, and the
//! definitions that lost. Never a value.
//!
//! It is a file in the directory of the pod, so that a restarted node still knows and nobody has to
//! clear it away. It cannot be made again from the spec: the objects that variables came from may have
//! changed since.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;
use tracing::warn;
use waybill_core::{
    env::{
        merge::{Environment, Tier},
        origin::Origin,
    },
    id::PodUid,
};

use crate::{directories::Directories, pod::Pod, server::ProvenanceLookup};

/// The version of the files. Those without one are the same; newer ones are left alone (ADR 0044).
const VERSION: u64 = 1;

/// What every container was made with.
#[derive(Clone, Debug)]
pub(crate) struct Provenance {
    directories: Directories,
}

/// The variables of one container, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerProvenance {
    image_variables: ImageVariables,
    variables: Vec<VariableProvenance>,
}

/// What is in a file.
#[derive(Serialize)]
struct Tagged<'a> {
    version: u64,
    #[serde(flatten)]
    provenance: &'a ContainerProvenance,
}

/// Whether variables of the image are in the list. Not every runtime tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum ImageVariables {
    Known,
    Unknown,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct VariableProvenance {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) definition: Definition,
    /// Whether its value must not be shown: it is from a Secret, an env file or a driver, or made of such.
    pub(crate) sensitive: bool,
    /// Definitions of the same name that lost, the first one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) shadowed: Vec<Definition>,
}

/// Somebody's word on a variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Definition {
    pub(crate) tier: TierView,
    pub(crate) origin: OriginView,
    /// The origin as a line for people.
    pub(crate) from: String,
}

/// [`Tier`], as JSON has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TierView {
    Baseline,
    Caller,
    ApiServer,
    Node,
    Runtime,
}

/// [`Origin`], as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum OriginView {
    ApiServer,
    Caller,
    ConfigMap { name: String, key: String },
    Csi { driver: String, class: String, key: String },
    Field { path: String },
    File { volume: String, path: String, key: String },
    Image,
    Literal,
    Node,
    Resource { resource: String },
    Runtime,
    Secret { name: String, key: String },
    Other,
}

impl Provenance {
    pub(crate) fn new(directories: Directories) -> Self {
        Self { directories }
    }

    /// Notes what a container is made with, in place of what the one before it was made with. A
    /// container does not wait for this, nor fail because of it.
    pub(crate) fn record(&self, pod: &PodUid, container: &str, provenance: &ContainerProvenance) {
        let path = self.directories.environment(pod, container);
        if let Err(error) = write(&path, provenance) {
            warn!(container, %error, "nobody will know where the variables of a container came from");
            // What is there is about another one.
            let _ = fs::remove_file(path);
        }
    }

    fn path(&self, pod: &Pod, container: &str) -> Option<PathBuf> {
        // A name that somebody sends is no part of a path before the pod has it, too.
        let container = pod.container(container)?;
        Some(self.directories.environment(pod.uid(), container.name()))
    }
}

impl ProvenanceLookup for Provenance {
    fn find(&self, pod: &Pod, container: &str) -> Option<Value> {
        let path = self.path(pod, container)?;
        let mut found: Value = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        let version = found.as_object_mut()?.remove("version").unwrap_or_default();
        if version.as_u64().unwrap_or(0) > VERSION {
            warn!(path = %path.display(), %version, "a record of variables is newer than this node and left alone");
            return None;
        }
        Some(found)
    }
}

/// Under another name first: a node that is killed leaves a whole file or none.
fn write(path: &Path, provenance: &ContainerProvenance) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let new = path.with_extension("new");
    let tagged = Tagged { version: VERSION, provenance };
    fs::write(&new, serde_json::to_vec(&tagged)?)?;
    fs::rename(&new, path)
}

impl ContainerProvenance {
    /// `image` are the names of the image's variables, which all others win against; `None` if they
    /// are not known.
    pub(crate) fn new(environment: &Environment, image: Option<&[String]>) -> Self {
        let mut shadowed: HashMap<&[u8], Vec<Definition>> = HashMap::new();
        let mut variables: Vec<VariableProvenance> = Vec::new();
        for name in image.unwrap_or_default() {
            let definition = Definition::new(Tier::Baseline, &Origin::Image);
            if environment.get(name.as_bytes()).is_some() {
                shadowed.insert(name.as_bytes(), vec![definition]);
            } else if !variables.iter().any(|known| known.name == *name) {
                let (name, sensitive, shadowed) = (name.clone(), false, Vec::new());
                variables.push(VariableProvenance { name, definition, sensitive, shadowed });
            }
        }
        for loser in environment.shadowed() {
            let definition = Definition::new(loser.tier(), loser.origin());
            shadowed.entry(loser.name().as_bytes()).or_default().push(definition);
        }
        variables.extend(environment.iter().map(|entry| VariableProvenance {
            name: entry.name().to_string(),
            definition: Definition::new(entry.tier(), entry.origin()),
            sensitive: entry.value().is_secret(),
            shadowed: shadowed.remove(entry.name().as_bytes()).unwrap_or_default(),
        }));
        let image_variables = match image {
            Some(_) => ImageVariables::Known,
            None => ImageVariables::Unknown,
        };
        Self { image_variables, variables }
    }
}

impl Definition {
    fn new(tier: Tier, origin: &Origin) -> Self {
        Self { tier: tier.into(), origin: origin.into(), from: origin.to_string() }
    }
}

impl From<Tier> for TierView {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Baseline => Self::Baseline,
            Tier::Caller => Self::Caller,
            Tier::ApiServer => Self::ApiServer,
            Tier::Node => Self::Node,
            Tier::Runtime => Self::Runtime,
        }
    }
}

impl From<&Origin> for OriginView {
    fn from(origin: &Origin) -> Self {
        let owned = |text: &str| text.to_owned();
        match origin {
            Origin::ApiServer => Self::ApiServer,
            Origin::Caller => Self::Caller,
            Origin::ConfigMap { name, key } => {
                Self::ConfigMap { name: owned(name), key: owned(key) }
            }
            Origin::Csi { driver, class, key } => {
                Self::Csi { driver: owned(driver), class: owned(class), key: owned(key) }
            }
            Origin::Field { path } => Self::Field { path: owned(path) },
            Origin::File { volume, path, key } => {
                Self::File { volume: owned(volume), path: owned(path), key: owned(key) }
            }
            Origin::Image => Self::Image,
            Origin::Literal => Self::Literal,
            Origin::Node => Self::Node,
            Origin::Resource { resource } => Self::Resource { resource: owned(resource) },
            Origin::Runtime => Self::Runtime,
            Origin::Secret { name, key } => Self::Secret { name: owned(name), key: owned(key) },
            // The type may grow; the line for people says what it is.
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use waybill_core::env::{
        merge::EnvVar,
        name::{EnvName, NameRules},
        value::EnvValue,
    };

    use super::*;
    use crate::pod::testing::pod;

    fn environment(variables: &[(&str, Origin)]) -> Environment {
        let mut made = Environment::new();
        for (name, origin) in variables {
            let name = EnvName::parse(name, NameRules::Relaxed).unwrap();
            let value = EnvValue::plain(*b"hunter2").unwrap();
            made.set(Tier::Baseline, EnvVar { name, value, origin: origin.clone() });
        }
        made
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn brief(provenance: &ContainerProvenance) -> Vec<String> {
        let line = |variable: &VariableProvenance| {
            let lost: Vec<_> = variable.shadowed.iter().map(|lost| lost.from.as_str()).collect();
            format!("{}: {} > {}", variable.name, variable.definition.from, lost.join(", "))
        };
        provenance.variables.iter().map(line).collect()
    }

    #[test]
    fn whatever_the_pod_says_wins_against_its_image() {
        let map = Origin::ConfigMap { name: "m".into(), key: "B".into() };
        let environment = environment(&[("B", map), ("C", Origin::Node), ("B", Origin::Literal)]);
        let image = names(&["PATH", "B", "PATH"]);
        let known = ContainerProvenance::new(&environment, Some(&image));
        assert_eq!(
            brief(&known),
            ["PATH: image > ", "B: pod spec > image, ConfigMap m, key B", "C: node > "]
        );
        assert_eq!(known.image_variables, ImageVariables::Known);
    }

    #[test]
    fn an_image_that_nobody_tells_of_is_unknown_and_not_empty() {
        let unknown = ContainerProvenance::new(&environment(&[]), None);
        let none = ContainerProvenance::new(&environment(&[]), Some(&[]));
        let shown = |provenance| serde_json::to_value(provenance).unwrap();
        assert_eq!(shown(unknown), json!({"imageVariables": "unknown", "variables": []}));
        assert_eq!(shown(none), json!({"imageVariables": "known", "variables": []}));
    }

    #[test]
    fn another_node_finds_it_and_a_name_from_outside_is_no_path() {
        let state = tempfile::tempdir().unwrap();
        let directories =
            Directories { state: state.path().to_owned(), logs: state.path().join("logs") };
        let pod = pod(json!({"containers": [{"name": "a", "image": "i"}]}));
        let made = ContainerProvenance::new(&environment(&[("A", Origin::Literal)]), None);
        Provenance::new(directories.clone()).record(pod.uid(), "a", &made);
        let found = Provenance::new(directories.clone()).find(&pod, "a").unwrap();
        assert_eq!(found, serde_json::to_value(&made).unwrap());
        assert!(!found.to_string().contains("hunter2"));
        let outside = directories.pod(pod.uid()).join("outside.json");
        fs::write(outside, "{}").unwrap();
        assert_eq!(Provenance::new(directories).find(&pod, "../outside"), None);
    }

    /// D15
    #[test]
    fn a_file_of_tomorrow_is_none_and_one_of_yesterday_is_read() {
        let state = tempfile::tempdir().unwrap();
        let directories =
            Directories { state: state.path().to_owned(), logs: state.path().join("logs") };
        let pod = pod(json!({"containers": [{"name": "a", "image": "i"}]}));
        let path = directories.environment(pod.uid(), "a");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let find = |text: &str| {
            fs::write(&path, text).unwrap();
            Provenance::new(directories.clone()).find(&pod, "a")
        };
        let plain = json!({"variables": []});
        assert_eq!(find(r#"{"variables":[]}"#), Some(plain.clone()));
        assert_eq!(find(r#"{"version":1,"variables":[]}"#), Some(plain));
        assert_eq!(find(r#"{"version":2,"variables":[]}"#), None);
        assert!(path.exists());
    }

    #[test]
    fn a_broken_file_is_none() {
        let state = tempfile::tempdir().unwrap();
        let directories =
            Directories { state: state.path().to_owned(), logs: state.path().join("logs") };
        let pod = pod(json!({"containers": [{"name": "a", "image": "i"}]}));
        let path = directories.environment(pod.uid(), "a");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "{\"variables\": [").unwrap();
        assert_eq!(Provenance::new(directories).find(&pod, "a"), None);
    }
}
