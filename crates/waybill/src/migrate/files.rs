//! Manifests on disk: read with their texts, so that changes can be made in them.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    edit,
    plan::{Change, Plan},
};
use crate::apply::texts;

/// The files, and every object in them.
#[derive(Default)]
pub(super) struct Files {
    files: Vec<File>,
    objects: Vec<Object>,
}

struct File {
    name: String,
    text: String,
}

/// An object, and where it came from.
struct Object {
    file: usize,
    document: usize,
    /// Of the object in its document: empty, or the place in a list.
    pointer: String,
    value: Value,
}

/// A file with another text.
pub(super) struct Changed {
    pub(super) name: String,
    pub(super) before: String,
    pub(super) after: String,
    /// Whether documents were written anew, so that their comments are gone.
    rewritten: bool,
}

impl Files {
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut found = Self::default();
        for path in paths {
            for (name, text) in texts(path)? {
                let documents = edit::documents(&text)
                    .with_context(|| format!("{name} is neither YAML nor JSON"))?;
                let file = found.files.len();
                for (at, document) in documents.into_iter().enumerate() {
                    add(&mut found.objects, file, at, String::new(), document);
                }
                found.files.push(File { name, text });
            }
        }
        if found.objects.is_empty() && !paths.is_empty() {
            bail!("there is no object in what was given");
        }
        Ok(found)
    }

    pub(super) fn objects(&self) -> Vec<Value> {
        self.objects.iter().map(|object| object.value.clone()).collect()
    }

    /// The files as they are after the changes of `plan`; its objects stand in the order of ours.
    pub(super) fn changed(&self, plan: &Plan) -> Result<Vec<Changed>> {
        let mut by_file: BTreeMap<usize, BTreeMap<usize, Vec<Change>>> = BTreeMap::new();
        for (object, changes) in &plan.changes {
            let Some(object) = self.objects.get(*object) else { continue };
            let document = by_file.entry(object.file).or_default().entry(object.document);
            let moved = changes.iter().map(|change| change.below(&object.pointer));
            document.or_default().extend(moved);
        }
        let files = self.files.iter().enumerate();
        let changed = files.filter_map(|(at, file)| Some(file.changed(by_file.get(&at)?)));
        changed.collect()
    }
}

/// Takes lists apart.
fn add(objects: &mut Vec<Object>, file: usize, document: usize, pointer: String, value: Value) {
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|it| it.ends_with("List"));
    match value.get("items") {
        Some(Value::Array(items)) if is_list => {
            for (at, item) in items.iter().enumerate() {
                add(objects, file, document, format!("{pointer}/items/{at}"), item.clone());
            }
        }
        _ if value.is_null() => {}
        _ => objects.push(Object { file, document, pointer, value }),
    }
}

impl File {
    fn changed(&self, changes: &BTreeMap<usize, Vec<Change>>) -> Result<Changed> {
        let in_place = edit::in_place(&self.text, changes);
        let rewritten = in_place.is_none();
        let after = match in_place {
            Some(text) => text,
            None => {
                let mut documents = edit::documents(&self.text).unwrap_or_default();
                for (document, changes) in changes {
                    if let Some(document) = documents.get_mut(*document) {
                        edit::apply(document, changes);
                    }
                }
                match documents.as_slice() {
                    [document] if self.name.ends_with(".json") => {
                        format!("{}\n", serde_json::to_string_pretty(document)?)
                    }
                    documents => written(documents)?,
                }
            }
        };
        Ok(Changed { name: self.name.clone(), before: self.text.clone(), after, rewritten })
    }
}

impl Changed {
    /// Puts the new text into the file at once or not at all; that of standard input goes to `output`.
    pub(super) fn write(&self, output: &mut impl Write) -> Result<()> {
        let path = Path::new(&self.name);
        if !path.is_file() {
            write!(output, "{}", self.after)?;
            return Ok(());
        }
        let folder =
            path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let doing = || format!("cannot write {}", self.name);
        let mut file = tempfile::NamedTempFile::new_in(folder).with_context(doing)?;
        file.write_all(self.after.as_bytes()).with_context(doing)?;
        let permissions = fs::metadata(path).with_context(doing)?.permissions();
        file.as_file().set_permissions(permissions).with_context(doing)?;
        file.as_file().sync_all().with_context(doing)?;
        file.persist(path).with_context(doing)?;
        writeln!(output, "{} changed", self.name)?;
        Ok(())
    }

    pub(super) fn note(&self) -> Option<String> {
        self.rewritten.then(|| format!("{}: written anew, without its comments", self.name))
    }
}

/// Objects as a file of YAML documents.
pub(super) fn written(objects: &[Value]) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        let document = serde_saphyr::to_string(object).context("cannot write YAML")?;
        text = format!("{text}---\n{}\n", document.trim_end());
    }
    Ok(text)
}

/// Writes a file that must not be there yet.
pub(super) fn create(path: &Path, text: &str) -> Result<()> {
    let doing =
        || format!("cannot create {}; name another file with --new-objects", path.display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).with_context(doing)?;
    file.write_all(text.as_bytes()).with_context(doing)
}
