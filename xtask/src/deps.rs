//! `cargo xtask deps`: the dependencies between our crates are those of the table, and no others.
//!
//! The table in `ARCHITECTURE.md` is the rule; cargo's metadata is the fact.

mod edges;
mod purity;
mod table;

use anyhow::{Result, bail};

use crate::{
    markdown::ARCHITECTURE,
    metadata::{self, Package},
    repository::Repository,
};

pub(crate) fn run(repository: &Repository) -> Result<()> {
    let rows = table::parse(&repository.read(ARCHITECTURE)?)?;
    let packages = metadata::packages(repository)?;
    let pure = purity::check(repository)?;

    let faults: Vec<_> = edges::faults(&rows, &packages).into_iter().chain(pure.faults).collect();
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        bail!("deps: {} to mend, listed above", faults.len());
    }
    println!(
        "deps: {} crates and {} edges between them, all in the table; waybill-core stands on {} \
         crates, all pure",
        packages.len(),
        packages.iter().map(|package| ours(package, &packages).count()).sum::<usize>(),
        pure.closure,
    );
    Ok(())
}

/// The dependencies of `package` on our own crates.
fn ours<'a>(
    package: &'a Package,
    packages: &'a [Package],
) -> impl Iterator<Item = &'a metadata::Dependency> {
    let is_ours = |name: &str| packages.iter().any(|package| package.name == name);
    package.dependencies.iter().filter(move |dependency| is_ours(&dependency.name))
}
