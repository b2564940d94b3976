//! Compares the edges that cargo knows with the table.

use super::{ours, table::Row};
use crate::{
    markdown::ARCHITECTURE,
    metadata::{DependencyKind, Package},
};

/// Boots roles in process for the tests of any crate, so every crate may use it there.
const TESTKIT: &str = "waybill-testkit";

/// Everything in which the workspace and the table differ, as lines that say what to do.
pub(super) fn faults(rows: &[Row], packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .flat_map(|package| match rows.iter().find(|row| row.name == package.name) {
            Some(row) => package_faults(row, rows, package, packages),
            None => vec![format!(
                "{ARCHITECTURE}: crate {} has no row under `## Crates`; add one, with a decision \
                 record",
                package.name
            )],
        })
        .chain(rows.iter().filter_map(|row| absence(row, packages)))
        .collect()
}

fn package_faults(row: &Row, rows: &[Row], package: &Package, packages: &[Package]) -> Vec<String> {
    let planned = row.planned.then(|| {
        format!("{ARCHITECTURE}:{}: crate {} exists; drop its *(planned)*", row.line, row.name)
    });
    let forbidden = ours(package, packages).filter_map(|dependency| {
        let name = &dependency.name;
        let (kind, allowed) = match dependency.kind {
            DependencyKind::Build => ("build-", row.may.contains(name)),
            DependencyKind::Dev => ("dev-", name == TESTKIT || at_or_below(row, rows, name)),
            DependencyKind::Normal => ("", row.may.contains(name)),
        };
        (!allowed).then(|| {
            format!(
                "{}: {kind}dependency on {name} is not allowed: {}; drop it, or change the row \
                 with a decision record",
                package.name,
                row.rule()
            )
        })
    });
    planned.into_iter().chain(forbidden).collect()
}

/// Whether `name` is the crate of `row`, or one that it may depend on through any number of steps.
/// Rows name rows above them only, so this ends.
fn at_or_below(row: &Row, rows: &[Row], name: &str) -> bool {
    let below = || rows.iter().filter(|other| row.may.contains(&other.name));
    row.name == name || below().any(|other| at_or_below(other, rows, name))
}

fn absence(row: &Row, packages: &[Package]) -> Option<String> {
    let exists = packages.iter().any(|package| package.name == row.name);
    (!exists && !row.planned).then(|| {
        format!(
            "{ARCHITECTURE}:{}: crate {} is not in the workspace; mark it *(planned)* or drop its \
             row",
            row.line, row.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{deps::table, metadata::Dependency};

    const NORMAL: DependencyKind = DependencyKind::Normal;

    const TABLE: &str = "## Crates\n| Crate | One line | May depend on |\n|---|---|---|\n\
        | `core` | c | nothing of ours |\n\
        | `api` | a | `core` |\n\
        | `stream` | s | `api` |\n\
        | `late` *(planned)* | l | `core` |\n\
        | `waybill-testkit` *(dev only)* | t | everything above |\n";

    fn package(name: &str, uses: &[(&str, DependencyKind)]) -> Package {
        let dependency =
            |&(name, kind): &(&str, DependencyKind)| Dependency { name: name.into(), kind };
        Package {
            name: name.into(),
            has_benches: false,
            has_features: false,
            dependencies: uses.iter().map(dependency).collect(),
        }
    }

    /// Checks the faults of a workspace in which `changed` stands in place of the crate of its name.
    #[track_caller]
    fn check(changed: Package, expected: &[&str]) {
        let mut packages: Vec<_> = ["core", "api", "stream", "waybill-testkit"]
            .into_iter()
            .filter(|name| *name != changed.name)
            .map(|name| package(name, &[]))
            .collect();
        packages.push(changed);
        let faults = faults(&table::parse(TABLE).unwrap(), &packages);
        assert_eq!(faults.len(), expected.len(), "{faults:#?}");
        for (fault, start) in faults.iter().zip(expected) {
            assert!(fault.starts_with(start), "{fault}");
        }
    }

    #[test]
    fn an_edge_of_the_table_is_allowed() {
        check(package("api", &[("core", NORMAL), ("serde", NORMAL)]), &[]);
        check(package("waybill-testkit", &[("stream", NORMAL), ("core", NORMAL)]), &[]);
    }

    #[test]
    fn another_edge_is_refused_with_the_line_that_forbids_it() {
        check(
            package("api", &[("stream", NORMAL)]),
            &["api: dependency on stream is not allowed: ARCHITECTURE.md:5 allows core; drop it"],
        );
        check(
            package("core", &[("api", DependencyKind::Build)]),
            &["core: build-dependency on api is not allowed: ARCHITECTURE.md:4 allows nothing of"],
        );
        // What a row allows is not inherited by the rows that allow it.
        check(package("stream", &[("core", NORMAL)]), &["stream: dependency on core"]);
    }

    #[test]
    fn tests_may_use_the_testkit_and_what_is_at_or_below() {
        let dev = DependencyKind::Dev;
        check(package("core", &[("waybill-testkit", dev)]), &[]);
        check(package("stream", &[("core", dev), ("stream", dev)]), &[]);
        check(package("api", &[("stream", dev)]), &["api: dev-dependency on stream"]);
        check(package("api", &[("waybill-testkit", NORMAL)]), &["api: dependency on waybill-t"]);
    }

    #[test]
    fn the_table_lists_exactly_the_crates_there_are() {
        check(package("new", &[]), &["ARCHITECTURE.md: crate new has no row"]);
        check(package("late", &[]), &["ARCHITECTURE.md:7: crate late exists"]);
        let faults = faults(&table::parse(TABLE).unwrap(), &[]);
        assert_eq!(faults.len(), 4, "{faults:#?}");
        assert!(faults.iter().all(|fault| fault.contains("is not in the workspace")));
    }
}
