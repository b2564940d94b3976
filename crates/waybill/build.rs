//! Tells the program which commit it was built from.
//!
//! Debug builds say `unknown`: otherwise each commit would build the program anew. Without git, or outside a
//! repository, releases say so too; packagers set `WAYBILL_COMMIT`.

#![expect(clippy::disallowed_methods, reason = "cargo talks to build scripts by variables")]

use std::{env, process::Command};

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=WAYBILL_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=WAYBILL_PROFILE={}", variable("PROFILE"));
    println!("cargo::rerun-if-env-changed=WAYBILL_COMMIT");
    let given = env::var("WAYBILL_COMMIT").ok();
    let commit = given.or_else(|| (variable("PROFILE") == "release").then(commit).flatten());
    println!("cargo::rustc-env=WAYBILL_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

fn commit() -> Option<String> {
    let head = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={head}");
    println!("cargo::rerun-if-changed=build.rs");
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if changed { format!("{commit}-changed") } else { commit })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
