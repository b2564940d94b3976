//! Which objects of a class become which files.
//!
//! Providers read every object that they are told of, and fail if one of them is missing. So they are
//! told of those that a container wants, where the list is of a kind we know: those of the providers of
//! AWS, Azure, GCP and Vault. Any other list is passed on as it is.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Parameters that may hold the list; GCP has a word of its own.
const PARAMETERS: [&str; 2] = ["objects", "secrets"];

/// What an object may be called in its file's path; where both are there, the first is meant.
const NAMES: [&str; 4] = ["objectAlias", "fileName", "path", "objectName"];

/// The objects of a class.
#[derive(Debug)]
pub(super) struct Objects {
    parameter: &'static str,
    shape: Shape,
    all: Vec<Object>,
}

/// How the list is written.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// A list of objects.
    List,
    /// `array:`, and in it a text for each object, as Azure has it.
    Array,
}

#[derive(Debug)]
struct Object {
    written: Value,
    files: Vec<String>,
}

impl Objects {
    /// `None` if there is no list of a kind we know.
    pub(super) fn parse(parameters: &BTreeMap<String, String>) -> Option<Self> {
        let listed = |parameter: &&'static str| parameters.contains_key(*parameter);
        let parameter = PARAMETERS.into_iter().find(|parameter| listed(parameter))?;
        let list: Value = serde_saphyr::from_str(parameters.get(parameter)?).ok()?;
        let (shape, items) = match &list {
            Value::Array(items) => (Shape::List, items),
            Value::Object(fields) => (Shape::Array, fields.get("array")?.as_array()?),
            _ => return None,
        };
        let all = items.iter().map(Object::parse).collect::<Option<_>>()?;
        Some(Self { parameter, shape, all })
    }

    /// The list with what becomes `keys` alone, and its parameter. `None` if some key is nowhere in it
    /// by a name we know, or if all are wanted anyway.
    pub(super) fn giving(&self, keys: &[&str]) -> Option<(&'static str, String)> {
        let gives = |object: &&Object, key: &str| object.files.iter().any(|file| file == key);
        if !keys.iter().all(|key| self.all.iter().any(|object| gives(&object, key))) {
            return None;
        }
        let wanted = self.all.iter().filter(|object| keys.iter().any(|key| gives(object, key)));
        let wanted: Vec<_> = wanted.map(|object| &object.written).collect();
        if wanted.len() == self.all.len() {
            return None;
        }
        // JSON is YAML.
        let list = match self.shape {
            Shape::List => json!(wanted),
            Shape::Array => json!({"array": wanted}),
        };
        Some((self.parameter, list.to_string()))
    }
}

impl Object {
    fn parse(written: &Value) -> Option<Self> {
        let fields: Value = match written {
            Value::String(text) => serde_saphyr::from_str(text).ok()?,
            other => other.clone(),
        };
        let name = NAMES.into_iter().find_map(|name| fields.get(name)?.as_str())?;
        // AWS: `/` is no part of a file's name, and parts of a secret become files of their own.
        let parts = fields.get("jmesPath").and_then(Value::as_array).into_iter().flatten();
        let aliases = parts.filter_map(|part| part.get("objectAlias")?.as_str());
        let mut files = vec![name.to_owned(), name.replace('/', "_")];
        files.extend(aliases.map(str::to_owned));
        Some(Self { written: written.clone(), files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VAULT: &str = "\
- objectName: db-password
  secretPath: secret/data/db
  secretKey: password
- objectName: api-key
  secretPath: secret/data/api
  secretKey: key
";
    const AWS: &str = "\
- objectName: prod/db
  objectType: secretsmanager
  jmesPath:
  - path: username
    objectAlias: db-user
- objectName: /prod/token
  objectAlias: token
  objectType: ssmparameter
";
    const AZURE: &str = "\
array:
  - |
    objectName: secret1
    objectType: secret
  - |
    objectName: key1
    objectAlias: KEY
    objectType: key
";
    const GCP: &str = "\
- resourceName: projects/p/secrets/a/versions/latest
  path: a.txt
- resourceName: projects/p/secrets/b/versions/1
  fileName: b.txt
";

    #[track_caller]
    fn check(parameter: &str, list: &str, keys: &[&str], expected: Option<&Value>) {
        let parameters = [(parameter.to_owned(), list.to_owned())].into();
        let objects = Objects::parse(&parameters).expect("the list is of a known kind");
        let given = objects.giving(keys);
        let given = given.map(|(name, text)| {
            assert_eq!(name, parameter);
            serde_saphyr::from_str::<Value>(&text).unwrap()
        });
        assert_eq!(given.as_ref(), expected, "{keys:?}");
    }

    #[test]
    fn a_provider_is_told_of_what_is_wanted_only() {
        let password = json!([{
            "objectName": "db-password", "secretPath": "secret/data/db", "secretKey": "password",
        }]);
        check("objects", VAULT, &["db-password"], Some(&password));
        let token = json!([{"objectName": "/prod/token", "objectAlias": "token", "objectType": "ssmparameter"}]);
        check("objects", AWS, &["token"], Some(&token));
        let key = json!({"array": ["objectName: key1\nobjectAlias: KEY\nobjectType: key\n"]});
        check("objects", AZURE, &["KEY"], Some(&key));
        let b = json!([{"resourceName": "projects/p/secrets/b/versions/1", "fileName": "b.txt"}]);
        check("secrets", GCP, &["b.txt"], Some(&b));
    }

    #[test]
    fn parts_and_translated_names_are_found() {
        let parameters = [("objects".to_owned(), AWS.to_owned())].into();
        let objects = Objects::parse(&parameters).unwrap();
        for key in ["prod/db", "prod_db", "db-user"] {
            let (_, list) = objects.giving(&[key]).unwrap();
            assert!(list.contains("prod/db") && !list.contains("token"), "{list}");
        }
    }

    #[test]
    fn the_list_stays_as_it_is_when_all_are_wanted_or_a_name_is_unknown() {
        check("objects", VAULT, &["api-key", "db-password"], None);
        check("objects", VAULT, &["db-password", "other"], None);
        check("objects", AWS, &["key1"], None);
    }

    #[test]
    fn what_is_no_list_of_objects_is_left_alone() {
        for text in ["", "text", "- 1", "array: 1", "- secretPath: a", ": : :", "- [a]"] {
            let parameters = [("objects".to_owned(), text.to_owned())].into();
            assert!(Objects::parse(&parameters).is_none(), "{text:?}");
        }
    }
}
