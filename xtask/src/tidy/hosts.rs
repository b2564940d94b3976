//! No address of a package registry stands in the repository.
//!
//! Packages are named, and each machine's own clients know where to get them; an address that works
//! on one network fails on the next. The lock file passes: cargo writes the address of the index
//! there, which is none of these hosts, and a mirror's address would be a mistake.

use super::Violation;
use crate::repository::TextFile;

/// A host is refused with all that stand below it. The names are cut in two, because they are not to
/// stand in this file either.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("deb.", "debian.org"),
    concat!("npmjs", ".com"),
    concat!("npmjs", ".org"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("security.", "debian.org"),
    // Mirrors inside a company's network.
    "internal",
];

pub(super) fn violations(file: &TextFile) -> Vec<Violation> {
    let advice = |host| format!("drop the address at `{host}`; name the package alone");
    file.lines()
        .flat_map(|(number, line)| hosts(line).map(move |host| (number, host)))
        .filter(|(_, host)| is_registry(host))
        .map(|(number, host)| Violation::new(file, number, "registry address", advice(host)))
        .collect()
}

/// The hosts of the URLs in `line`.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).map(|after| {
        let end = |c: char| !c.is_ascii_alphanumeric() && !"-._~%@:".contains(c);
        let authority = after.split(end).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        host.split(':').next().unwrap_or_default().trim_end_matches('.')
    })
}

fn is_registry(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let below = |registry: &str| host.strip_suffix(registry).is_some_and(|it| it.ends_with('.'));
    REGISTRIES.iter().any(|registry| host == *registry || below(registry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        tests::check(violations, "a.md", text, expected);
    }

    #[test]
    fn the_address_of_a_registry_is_refused() {
        // The addresses are put together here, so that this file passes its own rule.
        for registry in REGISTRIES {
            for host in ["", "static.", "u:p@a.b."].map(|start| format!("{start}{registry}")) {
                check(&format!("a\nsee https://{host}/a.\n"), &["2: registry address"]);
                check(&format!("`sparse+http://{host}:80`\n"), &["1: registry address"]);
                check(&format!("HTTP://{}.\n", host.to_uppercase()), &["1: registry address"]);
            }
        }
    }

    #[test]
    fn names_and_other_addresses_pass() {
        for registry in REGISTRIES {
            check(&format!("see {registry}\n"), &[]);
            check(&format!("https://github.com/a/{registry}-index\n"), &[]);
            check(&format!("https://not{registry} https://{registry}.example\n"), &[]);
        }
    }
}
