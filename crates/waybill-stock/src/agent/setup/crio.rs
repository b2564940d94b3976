//! CRI-O: a file of our own in its folder of drop-ins.

use toml_edit::{DocumentMut, Table, TableLike};

use super::{
    HostFiles, Restart, SetupError, SetupPlan, Wanted, find_program,
    table::{self, Place, Program},
};

const MAIN: &str = "/etc/crio/crio.conf";
const FOLDER: &str = "/etc/crio/crio.conf.d";
const DROP_IN: &str = "99-waybill.conf";

/// Where CRI-O brings its own copies of runtimes.
const BUNDLED: &[&str] = &["/usr/libexec/crio", "/usr/lib/cri-o-runc/sbin"];

const PROGRAM: Program =
    Program { place: Place::Table("runtime_path"), defaults: &[("runtime_type", "oci")] };

pub(super) fn plan(
    version: (u64, u64),
    wanted: Wanted,
    files: &dyn HostFiles,
) -> Result<SetupPlan, SetupError> {
    let sources = sources(files)?;
    let text = |path: &[&str], key: &str| {
        let found = sources.iter().rev().find_map(|source| table::at(source, path)?.get(key));
        found.and_then(|it| it.as_str()).filter(|text| !text.is_empty())
    };
    // The default of CRI-O itself changed with 1.31.
    let usual = if version >= (1, 31) { "crun" } else { "runc" };
    let name = text(&["crio", "runtime"], "default_runtime").unwrap_or(usual);
    let path = ["crio", "runtime", "runtimes", name];
    let program = text(&path, "runtime_path").unwrap_or(name);
    let real_runtime = find_program(files, program, BUNDLED)?;
    let drop_in = format!("{FOLDER}/{DROP_IN}");
    let nothing = Table::new();
    let from = sources.iter().rev().find_map(|source| table::at(source, &path));
    let from = from.unwrap_or(&nothing as &dyn TableLike);
    let block = table::handler(&["crio", "runtime", "runtimes"], from, &PROGRAM);
    let content = match wanted {
        Wanted::Installed => Some(block),
        Wanted::Removed => None,
    };
    let restart = Restart::of("crio");
    Ok(SetupPlan { files: vec![(drop_in, content)], real_runtime, restart })
}

/// Ours excepted.
fn sources(files: &dyn HostFiles) -> Result<Vec<DocumentMut>, SetupError> {
    let names = files.list(FOLDER).into_iter().filter(|name| name != DROP_IN);
    let paths = [MAIN.to_owned()].into_iter().chain(names.map(|name| format!("{FOLDER}/{name}")));
    let mut sources = Vec::new();
    for path in paths {
        if let Some(text) = files.read(&path)? {
            sources.push(table::parse(&path, &text)?);
        }
    }
    Ok(sources)
}
