//! `create`.

use serde_json::Value;
use uuid::Uuid;
use waybill_api::status::Status;

use super::{Change, Part, RETRIES, Writer, Written, store_failure, subject};
use crate::{
    admission::Operation,
    cache::ObjectKey,
    document::{metadata, remove_metadata, set_metadata, time, with_version},
    objects::CommitError,
    query::DryRun,
    registry::Resource,
    store::Expected,
};

/// Random characters after a `generateName`, and the longest name that leaves room for them.
const SUFFIX: usize = 5;
const LONGEST_GENERATED: usize = 63;

/// No vowels and no digits that look like letters, so that no words come out.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Writer {
    /// Creates `document`, which has been decoded and is of the right kind.
    pub(crate) async fn create(
        &self,
        change: Change<'_>,
        mut document: Value,
    ) -> Result<Written, Status> {
        let resource = change.resource();
        let kind = Self::kind(resource)?;
        settle_place(change, &mut document)?;
        kind.default(&mut document);
        self.track(change, Part::Main, None, &mut document);
        let none = const { &Value::Null };
        let mut attributes = change.attributes(Operation::Create, "", document, none);
        let changed = self.admission.mutate(&mut attributes).await?;
        let document = &mut attributes.object;
        if changed {
            self.keep_managers_readable(change, Part::Main, None, document);
            settle_place(change, document)?;
            kind.default(document);
        }
        let generate =
            metadata(document, "name").is_empty() && !metadata(document, "generateName").is_empty();
        if generate {
            generate_name(document);
        }
        stamp(document, time((self.clock)()));
        kind.prepare_create(document, &self.context);
        let errors = kind.validate_create(document, &self.context);
        if !errors.is_empty() {
            return Err(Status::invalid(subject(resource, metadata(document, "name")), &errors));
        }
        self.admission.validate(&attributes).await?;
        let document = attributes.object;
        let warnings = kind.warnings(&document, &self.context);
        let document = match change.dry_run {
            DryRun::All => self.try_create(change, document)?,
            DryRun::No => self.commit_new(change, document, generate).await?,
        };
        Ok(Written { document, warnings })
    }

    async fn commit_new(
        &self,
        change: Change<'_>,
        mut document: Value,
        generate: bool,
    ) -> Result<Value, Status> {
        let resource = change.resource();
        for _ in 0..RETRIES {
            let key = key_of(&document);
            let commit = self.commit(change, &key, Expected::Absent, Some(&document));
            match commit.await {
                Ok(revision) => return Ok(with_version(document, revision)),
                Err(CommitError::Conflict(_)) if generate => generate_name(&mut document),
                Err(CommitError::Conflict(_)) => break,
                Err(error) => return Err(store_failure(&error)),
            }
        }
        Err(exists(change, resource, metadata(&document, "name")))
    }

    fn try_create(&self, change: Change<'_>, document: Value) -> Result<Value, Status> {
        let resource = change.resource();
        match self.cache(resource)?.get(&key_of(&document)) {
            Some(_) => Err(exists(change, resource, metadata(&document, "name"))),
            None => Ok(document),
        }
    }
}

fn exists(change: Change<'_>, resource: &'static Resource, name: &str) -> Status {
    let target = waybill_api::status::Target { name, ..change.route.status_target() };
    debug_assert_eq!(target.resource, resource.plural);
    Status::already_exists(target)
}

/// Makes the namespace of the path and of the document agree.
fn settle_place(change: Change<'_>, document: &mut Value) -> Result<(), Status> {
    let wanted = &change.route.namespace;
    let found = metadata(document, "namespace");
    if !change.resource().is_namespaced() {
        return Ok(());
    }
    if !found.is_empty() && found != wanted {
        return Err(Status::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request \
             ({found:?} and {wanted:?})"
        )));
    }
    set_metadata(document, "namespace", wanted.as_str());
    Ok(())
}

/// What only the server sets.
fn stamp(document: &mut Value, now: String) {
    set_metadata(document, "uid", Uuid::new_v4().to_string());
    set_metadata(document, "creationTimestamp", now);
    for field in ["deletionGracePeriodSeconds", "deletionTimestamp", "resourceVersion", "selfLink"]
    {
        remove_metadata(document, field);
    }
}

fn generate_name(document: &mut Value) {
    let prefix = metadata(document, "generateName");
    let prefix: String = prefix.chars().take(LONGEST_GENERATED - SUFFIX).collect();
    let random = Uuid::new_v4();
    let suffix: String = random
        .as_bytes()
        .iter()
        .take(SUFFIX)
        .filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()))
        .map(|byte| char::from(*byte))
        .collect();
    set_metadata(document, "name", format!("{prefix}{suffix}"));
}

fn key_of(document: &Value) -> ObjectKey {
    ObjectKey::new(metadata(document, "namespace"), metadata(document, "name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn generated_names_keep_their_prefix_and_stay_short() {
        let mut document = json!({"metadata": {"generateName": "web-"}});
        generate_name(&mut document);
        let name = metadata(&document, "name").to_owned();
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        let mut document = json!({"metadata": {"generateName": "x".repeat(200)}});
        generate_name(&mut document);
        assert_eq!(metadata(&document, "name").len(), 63);
    }

    #[test]
    fn the_server_alone_sets_identity_and_times() {
        let mut document = json!({"metadata": {
            "uid": "mine", "resourceVersion": "7", "deletionTimestamp": "x", "name": "a"
        }});
        stamp(&mut document, "2026-01-01T00:00:00Z".to_owned());
        assert_ne!(document["metadata"]["uid"], "mine");
        assert_eq!(document["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        assert!(document["metadata"].get("resourceVersion").is_none());
        assert!(document["metadata"].get("deletionTimestamp").is_none());
    }
}
