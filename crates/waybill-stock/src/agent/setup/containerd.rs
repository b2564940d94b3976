//! containerd. From 2.0 on, imported files are merged into the main one, so the handler is a file of its own and the main
//! file imports it by name: an existing main file that lists no `imports` imports nothing, whatever containerd's built-in
//! default says. Before 2.0 a plugin's section in an imported file replaces the whole section, so the handler goes into
//! the file that has the section last.

use toml_edit::{Array, DocumentMut};

use super::{
    HANDLER, HostFiles, Restart, SetupError, SetupPlan, WRAPPER, Wanted, find_program, marked,
    table::{self, Place, Program},
};

const MAIN: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/99-waybill.toml";

/// Marks the line of the main file that is ours.
const IMPORTED: &str = "# added by `waybill agent`";

/// The whole main file where there was none.
const NEW_MAIN: &str = "# Made by `waybill agent`, which removes it again.\nversion = 3\n";

const PROGRAM: Program = Program {
    place: Place::Options("BinaryName"),
    defaults: &[("runtime_type", "io.containerd.runc.v2")],
};

pub(super) fn plan(
    version: (u64, u64),
    wanted: Wanted,
    files: &dyn HostFiles,
) -> Result<SetupPlan, SetupError> {
    if version < (1, 6) {
        let runtime = format!("containerd {}.{}", version.0, version.1);
        return Err(SetupError::Runtime { runtime });
    }
    let sources = Sources::read(files)?;
    let merges = version.0 >= 2;
    let real_runtime = sources.real_runtime(files, &[])?;
    let files = match (wanted, merges) {
        (Wanted::Installed, true) => sources.drop_in()?,
        (Wanted::Installed, false) => sources.edited()?,
        (Wanted::Removed, _) => sources.removed(),
    };
    Ok(SetupPlan { files, real_runtime, restart: Restart::of("containerd") })
}

/// A file of the configuration.
struct Source {
    path: String,
    text: String,
    document: DocumentMut,
}

/// All of them, in the order in which they count.
struct Sources {
    all: Vec<Source>,
    /// What the main file imports.
    imports: Vec<String>,
}

impl Sources {
    /// Reads the main file, if there is one, and what it imports, our own drop-in excepted.
    fn read(files: &dyn HostFiles) -> Result<Self, SetupError> {
        let mut sources = Self { all: Vec::new(), imports: Vec::new() };
        let Some(text) = files.read(MAIN)? else { return Ok(sources) };
        let main = Source::parse(MAIN, text)?;
        let listed = main.document.get("imports").and_then(|it| it.as_array());
        sources.imports =
            listed.into_iter().flatten().filter_map(|it| it.as_str()).map(absolute).collect();
        sources.all.push(main);
        for pattern in sources.imports.clone() {
            for path in matching(files, &pattern) {
                if path != DROP_IN
                    && let Some(text) = files.read(&path)?
                {
                    sources.all.push(Source::parse(&path, text)?);
                }
            }
        }
        Ok(sources)
    }

    /// The program of the default runtime.
    fn real_runtime(&self, files: &dyn HostFiles, before: &[&str]) -> Result<String, SetupError> {
        let name = self.default_runtime().and_then(|(_, runtime)| {
            let options = runtime.get("options")?.as_table_like()?;
            options.get("BinaryName")?.as_str().filter(|name| !name.is_empty())
        });
        find_program(files, name.unwrap_or("runc"), before)
    }

    /// The table of the default runtime, where the last file has it.
    fn default_runtime(&self) -> Option<(&Source, &dyn toml_edit::TableLike)> {
        let containerd = |source: &Source| [source.plugin(), &["containerd"]].concat();
        let named = self.all.iter().rev().find_map(|source| {
            let table = table::at(&source.document, &containerd(source))?;
            table.get("default_runtime_name")?.as_str().map(str::to_owned)
        });
        // Nobody wraps us twice, or another kind of runtime.
        let name = named.filter(|name| name != HANDLER).unwrap_or_else(|| "runc".to_owned());
        let find = |name: &str| {
            self.all.iter().rev().find_map(|source| {
                let path = [&containerd(source)[..], &["runtimes", name]].concat();
                Some((source, table::at(&source.document, &path)?))
            })
        };
        find(&name).filter(|(_, table)| is_runc(*table)).or_else(|| find("runc"))
    }

    /// The table of our handler, for a file with the names of `source`.
    fn block(&self, source: Option<&Source>) -> String {
        let plugin = source.map_or(plugin(3), Source::plugin);
        let path = [plugin, &["containerd", "runtimes"]].concat();
        let nothing = toml_edit::Table::new();
        let from = self.default_runtime();
        let from = from.map_or(&nothing as &dyn toml_edit::TableLike, |(_, table)| table);
        table::handler(&path, from, &PROGRAM)
    }

    fn check(&self) -> Result<(), SetupError> {
        for source in &self.all {
            let disabled = source.document.get("disabled_plugins").and_then(|it| it.as_array());
            let names = disabled.into_iter().flatten().filter_map(|it| it.as_str());
            if names.into_iter().any(|name| name == "cri" || name.ends_with("grpc.v1.cri")) {
                return Err(SetupError::NoCri { path: source.path.clone() });
            }
            let cleared = table::parse(&source.path, &marked::without_block(&source.text))?;
            let path = [source.plugin(), &["containerd", "runtimes", HANDLER]].concat();
            if table::at(&cleared, &path).is_some() {
                return Err(SetupError::Taken { path: source.path.clone() });
            }
        }
        Ok(())
    }

    /// From 2.0 on.
    fn drop_in(&self) -> Result<Vec<(String, Option<String>)>, SetupError> {
        self.check()?;
        let main = self.all.first();
        let version = main.map_or(3, Source::version);
        let text = format!("version = {version}\n\n{}", self.block(main));
        let mut files = vec![(DROP_IN.to_owned(), Some(text))];
        let imported = self.imports.iter().any(|pattern| matches(pattern, DROP_IN));
        if !imported {
            let main = match main {
                Some(main) => main.importing(),
                None => format!("{NEW_MAIN}imports = [\"{DROP_IN}\"]\n"),
            };
            files.push((MAIN.to_owned(), Some(main)));
        }
        Ok(files)
    }

    /// Before 2.0.
    fn edited(&self) -> Result<Vec<(String, Option<String>)>, SetupError> {
        self.check()?;
        let has_plugin = |source: &&Source| table::at(&source.document, source.plugin()).is_some();
        let source = self.all.iter().rev().find(has_plugin).or(self.all.first());
        // A file in which everything is ours was made by us.
        let source = source.filter(|source| !marked::without_block(&source.text).is_empty());
        let Some(source) = source else {
            let path = [plugin(2), &["containerd", "runtimes"]].concat();
            let block = table::handler(&path, &toml_edit::Table::new(), &PROGRAM);
            let text = marked::with_block("", &format!("version = 2\n{block}"));
            return Ok(vec![(MAIN.to_owned(), Some(text))]);
        };
        let block = self.block(Some(source));
        let text = marked::with_block(&source.text, &block);
        if let Err(error) = text.parse::<DocumentMut>() {
            let why = error.message().to_owned();
            return Err(SetupError::Uneditable { path: source.path.clone(), why, block });
        }
        Ok(vec![(source.path.clone(), Some(text))])
    }

    /// Whatever version wrote it.
    fn removed(&self) -> Vec<(String, Option<String>)> {
        let changed = self.all.iter().filter_map(|source| {
            let text = source.cleared();
            let kept = (!text.is_empty()).then_some(text);
            (kept.as_ref() != Some(&source.text)).then(|| (source.path.clone(), kept))
        });
        // The main file first: containerd does not start with a missing import.
        changed.chain([(DROP_IN.to_owned(), None)]).collect()
    }
}

impl Source {
    fn parse(path: &str, text: String) -> Result<Self, SetupError> {
        let document = table::parse(path, &text)?;
        Ok(Self { path: path.to_owned(), text, document })
    }

    fn version(&self) -> i64 {
        self.document.get("version").and_then(|it| it.as_integer()).unwrap_or(1)
    }

    fn plugin(&self) -> &'static [&'static str] {
        plugin(self.version())
    }

    /// The text with our drop-in among its imports.
    fn importing(&self) -> String {
        if self.document.get("imports").is_none() {
            return format!("imports = [\"{DROP_IN}\"] {IMPORTED}\n{}", self.text);
        }
        let mut document = self.document.clone();
        if let Some(imports) = document.get_mut("imports").and_then(|it| it.as_array_mut()) {
            imports.push(DROP_IN);
        }
        document.to_string()
    }

    /// The text without anything of ours.
    fn cleared(&self) -> String {
        let text = marked::without_block(&self.text);
        let is_ours = |line: &str| line.ends_with(IMPORTED);
        if text.starts_with(NEW_MAIN) {
            return String::new();
        }
        if text.lines().any(is_ours) {
            let kept = text.split_inclusive('\n').filter(|line| !is_ours(line.trim_end()));
            return kept.collect();
        }
        let Ok(mut document) = text.parse::<DocumentMut>() else { return text };
        let imports = document.get_mut("imports").and_then(|it| it.as_array_mut());
        if let Some(imports) = imports
            && let Some(place) = position(imports)
        {
            imports.remove(place);
            return document.to_string();
        }
        text
    }
}

fn position(imports: &Array) -> Option<usize> {
    imports.iter().position(|it| it.as_str() == Some(DROP_IN))
}

/// The plugin that serves CRI, by the version of the file.
fn plugin(version: i64) -> &'static [&'static str] {
    match version {
        ..=1 => &["plugins", "cri"],
        2 => &["plugins", "io.containerd.grpc.v1.cri"],
        3.. => &["plugins", "io.containerd.cri.v1.runtime"],
    }
}

fn is_runc(table: &dyn toml_edit::TableLike) -> bool {
    let kind = table.get("runtime_type").and_then(|it| it.as_str());
    let program =
        table.get("options").and_then(|it| it.as_table_like()?.get("BinaryName")?.as_str());
    kind.is_none_or(|kind| kind == "io.containerd.runc.v2") && program != Some(WRAPPER)
}

fn absolute(import: &str) -> String {
    match import.starts_with('/') {
        true => import.to_owned(),
        false => format!("/etc/containerd/{import}"),
    }
}

/// The files that an import names: one, or by a `*` in the last part.
fn matching(files: &dyn HostFiles, pattern: &str) -> Vec<String> {
    match pattern.rsplit_once('/') {
        Some((folder, name)) if name.contains('*') => {
            let paths = files.list(folder).into_iter().map(|name| format!("{folder}/{name}"));
            paths.filter(|path| matches(pattern, path)).collect()
        }
        _ => vec![pattern.to_owned()],
    }
}

/// Whether a pattern with at most one `*` in its last part covers `path`.
fn matches(pattern: &str, path: &str) -> bool {
    let (Some((folder, pattern)), Some((of, name))) =
        (pattern.rsplit_once('/'), path.rsplit_once('/'))
    else {
        return false;
    };
    let covers = match pattern.split_once('*') {
        Some((before, after)) => {
            name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        }
        None => name == pattern,
    };
    folder == of && covers
}

/// For k3s, whose generated file is one of containerd's.
pub(super) fn generated(
    path: &str,
    text: String,
    files: &dyn HostFiles,
    before: &[&str],
) -> Result<(String, String), SetupError> {
    let sources = Sources { all: vec![Source::parse(path, text)?], imports: Vec::new() };
    let runtime = sources.real_runtime(files, before)?;
    Ok((sources.block(sources.all.first()), runtime))
}
