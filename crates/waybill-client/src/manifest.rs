//! Manifests: YAML or JSON, one document or many, with lists taken apart.

use serde_json::Value;

/// Reads every object of a file. Errors say where, and repeat nothing of the file.
pub fn read_manifests(text: &str) -> Result<Vec<Value>, ManifestError> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            ManifestError::Yaml { line: error.location().map_or(1, |location| location.line()) }
        })?;
    let mut objects = Vec::new();
    for document in documents {
        add(document, &mut objects)?;
    }
    Ok(objects)
}

fn add(mut document: Value, objects: &mut Vec<Value>) -> Result<(), ManifestError> {
    if document.is_null() {
        return Ok(());
    }
    let is_list =
        document.get("kind").and_then(Value::as_str).is_some_and(|it| it.ends_with("List"));
    if let (true, Some(Value::Array(items))) = (is_list, document.get_mut("items").map(Value::take))
    {
        return items.into_iter().try_for_each(|item| add(item, objects));
    }
    for field in ["apiVersion", "kind"] {
        if document.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(ManifestError::Field { document: objects.len() + 1, field });
        }
    }
    objects.push(document);
    Ok(())
}

/// Why a file is no manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// An object does not say what it is.
    #[error("object {document} has no {field}")]
    Field {
        /// Counted from 1.
        document: usize,
        /// What is missing.
        field: &'static str,
    },
    /// Neither YAML nor JSON.
    #[error("line {line} is not valid YAML")]
    Yaml {
        /// Counted from 1.
        line: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, names: &[&str]) {
        let found = read_manifests(text).unwrap();
        let found: Vec<_> =
            found.iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{text}");
    }

    #[test]
    fn documents_and_lists_become_objects_in_their_order() {
        check("{apiVersion: v1, kind: Pod, metadata: {name: a}}", &["a"]);
        let two = "---\n# nothing\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n\
                   {\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"b\"}}\n---\n";
        check(two, &["a", "b"]);
        let list = "{apiVersion: v1, kind: List, items: [\
            {apiVersion: v1, kind: Pod, metadata: {name: a}},\
            {apiVersion: v1, kind: PodList, items: [{apiVersion: v1, kind: Pod, metadata: {name: b}}]}]}";
        check(list, &["a", "b"]);
        check("", &[]);
    }

    #[test]
    fn faults_say_where_and_repeat_nothing() {
        let error = |text: &str| read_manifests(text).unwrap_err().to_string();
        assert_eq!(error("{apiVersion: v1}"), "object 1 has no kind");
        assert_eq!(error("{kind: Pod}"), "object 1 has no apiVersion");
        assert_eq!(error("a: 1\nsecret: [x\n"), "line 2 is not valid YAML");
    }

    #[test]
    fn numbers_are_read_as_kubernetes_reads_them() {
        let mode = &read_manifests("{apiVersion: v1, kind: X, mode: 0644}").unwrap()[0]["mode"];
        assert_eq!(*mode, 420);
    }
}
