//! `update` and `patch`: both make a new document of the current one.

use serde_json::Value;
use waybill_api::{exec::ADDED_CONTAINERS_ANNOTATION, field::ErrorList, status::Status};
use waybill_core::id::ResourceVersion;

use super::{Change, RETRIES, Writer, Written, modified_by_others, store_failure, subject};
use crate::{
    admission::{Operation, ephemeral::added_containers},
    document::{
        at, has_finalizers, is_terminating, metadata, put, remove_metadata, set_metadata,
        with_version,
    },
    kinds::{self, Kind},
    objects::CommitError,
    query::DryRun,
    store::Expected,
};

/// Which part of an object a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The conditions of a certificate signing request.
    Approval,
    /// The node of a pod, which only a binding sets; it has been judged already.
    Binding,
    EphemeralContainers,
    /// The finalizers of a namespace.
    Finalize,
    Main,
    /// Processors and memory of the containers of a pod.
    Resize,
    Status,
}

impl Part {
    /// The subresource by which it is changed; empty for the object itself.
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Binding => "binding",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Finalize => "finalize",
            Self::Main => "",
            Self::Resize => "resize",
            Self::Status => "status",
        }
    }

    /// Whether what users leave out of it is filled in.
    fn has_defaults(self) -> bool {
        matches!(self, Self::Approval | Self::EphemeralContainers | Self::Main | Self::Resize)
    }
}

impl Writer {
    /// Replaces the object by what `make` makes of the current one.
    pub(crate) async fn update(
        &self,
        change: Change<'_>,
        part: Part,
        mut make: impl FnMut(&Value) -> Result<Value, Status> + Send,
    ) -> Result<Written, Status> {
        let kind = Self::kind(change.resource())?;
        for _ in 0..RETRIES {
            let current = self.current(change)?;
            let old = current.document();
            let mut new = make(&old)?;
            let pinned = check_identity(change, &old, &new)?;
            keep_identity(&mut new, &old);
            // Who names no version means the newest, where the kind allows that.
            if pinned.is_none() && kind.shape().unconditional_update {
                set_metadata(&mut new, "resourceVersion", metadata(&old, "resourceVersion"));
            }
            let mut new = self.admit_update(change, part, kind, new, &old).await?;
            let warnings = kind.warnings(&new, &self.context);
            waybill_apply::keep_times(&mut new, &old);
            new = with_version(new, current.revision);
            if new == old || change.dry_run == DryRun::All {
                return Ok(Written { document: new, warnings });
            }
            remove_metadata(&mut new, "resourceVersion");
            // The last finalizer of a dying object lets it go.
            let gone = is_terminating(&new)
                && !has_finalizers(&new)
                && at(&new, "/metadata/deletionGracePeriodSeconds").as_i64().unwrap_or(0) == 0;
            let kept = (!gone).then_some(&new);
            let expected = Expected::At(current.revision);
            match self.commit(change, &change.key(), expected, kept).await {
                Ok(revision) => {
                    if part == Part::EphemeralContainers {
                        note_added_containers(change, &old, &new);
                    }
                    return Ok(Written { document: with_version(new, revision), warnings });
                }
                // Made again of what is there now; a version that the client named no longer fits.
                Err(CommitError::Conflict(_)) => {}
                Err(error) => return Err(store_failure(&error)),
            }
        }
        Err(modified_by_others(change))
    }

    /// Takes `new` through both phases of admission and the rules of its kind.
    async fn admit_update(
        &self,
        change: Change<'_>,
        part: Part,
        kind: &dyn Kind,
        mut new: Value,
        old: &Value,
    ) -> Result<Value, Status> {
        // What binds a pod is the binding, which was admitted.
        if part == Part::Binding {
            return Ok(new);
        }
        if part.has_defaults() {
            kind.default(&mut new);
        }
        self.track(change, part, Some(old), &mut new);
        let mut attributes = change.attributes(Operation::Update, part.subresource(), new, old);
        if self.admission.mutate(&mut attributes).await? {
            let new = &mut attributes.object;
            self.keep_managers_readable(change, part, Some(old), new);
            check_identity(change, old, new)?;
            keep_identity(new, old);
            if part.has_defaults() {
                kind.default(new);
            }
        }
        let errors = self.judge(kind, part, &mut attributes.object, old);
        if !errors.is_empty() {
            return Err(Status::invalid(subject(change.resource(), &change.route.name), &errors));
        }
        self.admission.validate(&attributes).await?;
        Ok(attributes.object)
    }

    fn judge(&self, kind: &dyn Kind, part: Part, new: &mut Value, old: &Value) -> ErrorList {
        match part {
            Part::Main => {
                kind.prepare_update(new, old, &self.context);
                kind.validate_update(new, old, &self.context)
            }
            Part::Status => {
                kind.prepare_status_update(new, old);
                kind.validate_status_update(new, old, &self.context)
            }
            Part::Approval => {
                kinds::prepare_approval(new, old);
                kinds::validate_approval(new, old)
            }
            Part::Binding => ErrorList::new(),
            Part::EphemeralContainers => {
                kinds::prepare_ephemeral_containers_update(new, old, &self.context);
                kinds::validate_ephemeral_containers_update(new, old, &self.context)
            }
            Part::Resize => {
                kinds::prepare_resize(new, old, &self.context);
                kinds::validate_resize(new, old)
            }
            Part::Finalize => {
                kinds::prepare_finalize(new, old);
                kinds::validate_finalize(new, old, &self.context)
            }
        }
    }
}

/// Who added which ephemeral container is in the audit log at every level, so that its processes lead to a
/// user.
fn note_added_containers(change: Change<'_>, before: &Value, after: &Value) {
    // What cannot be read was not admitted.
    let Ok(added) = added_containers(before, after) else { return };
    let added = added.ephemeral_containers;
    let names: Vec<_> = added.iter().map(|container| container.name.as_str()).collect();
    if !names.is_empty() {
        change.remarks.notes.state(ADDED_CONTAINERS_ANNOTATION, names.join(","));
    }
}

/// What the client said about the object must be true; a version pins the update to it.
fn check_identity(
    change: Change<'_>,
    old: &Value,
    new: &Value,
) -> Result<Option<ResourceVersion>, Status> {
    let name = metadata(new, "name");
    if name != change.route.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            change.route.name
        )));
    }
    let namespace = metadata(new, "namespace");
    if !namespace.is_empty() && namespace != change.route.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let uid = metadata(new, "uid");
    if !uid.is_empty() && uid != metadata(old, "uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            metadata(old, "uid")
        );
        return Err(Status::conflict(change.route.status_target(), why));
    }
    let version = metadata(new, "resourceVersion");
    if version.is_empty() {
        return Ok(None);
    }
    if version != metadata(old, "resourceVersion") {
        return Err(modified_by_others(change));
    }
    let parsed = ResourceVersion::parse(version);
    parsed.map(Some).map_err(|_| Status::bad_request("metadata.resourceVersion: must be a number"))
}

/// What only the server sets stays as it is.
fn keep_identity(new: &mut Value, old: &Value) {
    for field in ["creationTimestamp", "namespace", "uid"] {
        if let Some(kept) = at(old, "/metadata").get(field) {
            set_metadata(new, field, kept.clone());
        }
    }
    for field in ["deletionGracePeriodSeconds", "deletionTimestamp"] {
        match at(old, "/metadata").get(field) {
            Some(kept) => set_metadata(new, field, kept.clone()),
            None => remove_metadata(new, field),
        }
    }
    for field in ["apiVersion", "kind"] {
        put(new, &format!("/{field}"), old.get(field).cloned().unwrap_or_default());
    }
}
