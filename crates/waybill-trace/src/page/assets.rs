//! The files of the page. They are part of the program, the same for everybody, and hold nothing about sessions.

/// One file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asset {
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    pub(super) content: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        Asset {
            path: concat!("/", $name),
            kind: SCRIPT,
            content: include_bytes!(concat!("assets/", $name)),
        }
    };
}

/// All of them.
pub(super) const ASSETS: &[Asset] = &[
    Asset {
        path: "/",
        kind: "text/html; charset=utf-8",
        content: include_bytes!("assets/index.html"),
    },
    Asset {
        path: "/page.css",
        kind: "text/css; charset=utf-8",
        content: include_bytes!("assets/page.css"),
    },
    Asset { path: "/icon.svg", kind: "image/svg+xml", content: include_bytes!("assets/icon.svg") },
    script!("api.js"),
    script!("branches.js"),
    script!("brush.js"),
    script!("colours.js"),
    script!("detail.js"),
    script!("filters.js"),
    script!("gate.js"),
    script!("keys.js"),
    script!("lanes.js"),
    script!("list.js"),
    script!("live.js"),
    script!("main.js"),
    script!("overview.js"),
    script!("people.js"),
    script!("settings.js"),
    script!("text.js"),
    script!("time.js"),
    script!("timeline.js"),
    script!("tree.js"),
    script!("view.js"),
    script!("virtual.js"),
];

/// The file at a path.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_file_beside_us_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page/assets");
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = if name == "index.html" { "/".to_owned() } else { format!("/{name}") };
            assert!(find(&path).is_some(), "{name} is in no list");
        }
    }

    /// Nothing of the page comes from elsewhere, and no way leads from text to markup or code.
    #[test]
    fn no_file_names_another_host_or_makes_markup_of_text() {
        for asset in ASSETS {
            let text = str::from_utf8(asset.content).unwrap();
            let others = text.replace("http://www.w3.org/2000/svg", "");
            for word in [
                "http:",
                "https:",
                "//cdn",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "srcdoc",
                "<style",
                " style=",
                "onclick=\"",
                "javascript:",
                "DOMParser",
                "createContextualFragment",
                "setHTMLUnsafe",
            ] {
                assert!(!others.contains(word), "{} has {word}", asset.path);
            }
        }
    }
}
