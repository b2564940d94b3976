//! What guides and examples tell users to apply is accepted, and they say what they must say.

use std::{fs, path::Path};

use crate::cluster::Cluster;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/waybill lies two below")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The blocks of YAML in a guide that are whole objects.
fn manifests(guide: &str) -> Vec<&str> {
    let blocks = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.contains("kind: ")).collect()
}

/// FILE-45, NAME-18
#[test]
fn manifests_of_guides_and_examples_are_accepted() {
    let Some(cluster) = Cluster::start() else { return };
    let guides = [read("docs/env-files.md"), read("docs/names.md")];
    let mut all: Vec<String> =
        guides.iter().flat_map(|guide| manifests(guide)).map(str::to_owned).collect();
    assert!(all.len() >= 3, "the guides have manifests");
    all.extend(
        ["env-file.yaml", "names.yaml", "pod.yaml"].map(|it| read(&format!("examples/{it}"))),
    );
    for manifest in all {
        // Guides and examples show the same objects.
        let ran =
            cluster.kubectl_with_input("create --dry-run=server --validate=false -f -", &manifest);
        assert_eq!(ran.code, Some(0), "{manifest}\n{ran:#?}");
        assert!(!ran.stderr.contains("Warning"), "{manifest}\n{ran:#?}");
    }
}

/// FILE-45
#[test]
fn the_guide_warns_that_a_volume_is_no_secret_file_45() {
    let guide = read("docs/env-files.md");
    let section = guide.split("## Not a Secret").nth(1).expect("there is a section about it");
    let section = section.split("\n## ").next().unwrap_or_default();
    for word in ["emptyDir", "Secret", "disk", "/proc"] {
        assert!(section.contains(word), "{word} is not in {section}");
    }
}

/// NAME-18
#[test]
fn the_guide_of_names_has_rules_a_policy_and_help_name_18() {
    let guide = read("docs/names.md");
    for part in [
        "[-._a-zA-Z][-._a-zA-Z0-9]*",
        "waybill.dev/env-names: strict",
        "examples/strict-env-names.yaml",
        "## Troubleshooting",
    ] {
        assert!(guide.contains(part), "{part} is not in the guide");
    }
    let policy = read("examples/strict-env-names.yaml");
    for list in ["containers", "initContainers", "ephemeralContainers", "envFrom"] {
        assert!(policy.contains(list), "{list} is not in the policy");
    }
}
