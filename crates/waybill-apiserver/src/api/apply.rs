//! `patch` by server-side apply, from bytes to bytes: of an object that is there, or of one that is not yet.

use std::sync::Arc;

use http::{Method, StatusCode, header};
use serde_json::Value;
use waybill_api::{
    field::{FieldError, FieldPath},
    status::{Status, Subject},
};
use waybill_apply::{ApplyError, MANAGER_MAX_LENGTH, ManagerNameError, check_manager};
use waybill_core::chain::Chain;

use super::{
    Api, Context, text_header,
    write::{bad_patch, field_validation, schema_of},
};
use crate::{
    admission::{Tracking, WriteOptions},
    audit::RequestAudit,
    cache::ObjectKey,
    convert,
    document::{at, metadata, time},
    http::Answer,
    managers::{MANAGED_FIELDS, ManagedWrite, manager},
    patch::PatchType,
    registry::Resource,
    request::{Action, Target},
    schema::{FieldValidation, KindSchema},
    write::{Change, Part},
};

/// How often we go from one way to the other, because the object came or went meanwhile.
const RETRIES: usize = 8;

impl Api {
    /// Applies the configuration in `body`.
    pub(super) async fn apply(
        self: &Arc<Self>,
        change: Change<'_>,
        part: Part,
        mut context: Context<'_>,
        body: &[u8],
    ) -> Result<Answer, Status> {
        let (route, resource) = (change.route, change.route.resource);
        let schema = schema_of(resource)?;
        let decoded = schema.decode_config(body, field_validation(&context)?);
        let decoded = decoded.map_err(|error| Status::bad_request(schema.refusal(&error)))?;
        let config = decoded.object;
        context.audit.request_object(|| config.clone());
        check_config(change, &config)?;
        let write = ManagedWrite {
            resource,
            part,
            manager: manager(change.options.field_manager, ""),
            now: time((self.clock)()),
        };
        let force = context.query.flag("force");
        let apply = Application { write, schema, change, config: &config, force };
        let change = Change {
            options: WriteOptions { tracking: Tracking::Done, ..change.options },
            ..change
        };

        for _ in 0..RETRIES {
            if part != Part::Main || self.is_there(change) {
                match self.writer.update(change, part, |old| apply.to(Some(old))).await {
                    Err(status) if status.code() == 404 && part == Part::Main => {}
                    written => {
                        let (written, warnings) = (written?, decoded.warnings);
                        return self.answer(
                            resource,
                            &mut context,
                            written,
                            warnings,
                            StatusCode::OK,
                        );
                    }
                }
            } else {
                self.allow_creation(change, context.audit)?;
                check_absent(change, &config)?;
                let document = apply.to(None)?;
                match self.writer.create(change, document).await {
                    Err(status) if status.reason() == "AlreadyExists" => {}
                    written => {
                        let (written, warnings) = (written?, decoded.warnings);
                        return self.answer(
                            resource,
                            &mut context,
                            written,
                            warnings,
                            StatusCode::CREATED,
                        );
                    }
                }
            }
        }
        let why = "the object comes and goes; please try again";
        Err(Status::conflict(route.status_target(), why))
    }

    fn is_there(&self, change: Change<'_>) -> bool {
        let key = ObjectKey::new(&change.route.namespace, &change.route.name);
        let cache = self.reader.objects.cache(change.route.resource);
        cache.is_some_and(|cache| cache.get(&key).is_some())
    }

    /// Who may patch objects may not, for that alone, create them.
    fn allow_creation(&self, change: Change<'_>, audit: &mut RequestAudit) -> Result<(), Status> {
        let target = Target::Resource(change.route.target());
        let action = Action { verb: "create".to_owned(), target };
        let decision = self.authorizer.authorize(change.user, &action, &[]);
        audit.judged(&decision);
        Self::allow(change.user, &action, &decision)
    }
}

/// A configuration on its way.
struct Application<'a> {
    write: ManagedWrite<'a>,
    schema: &'static KindSchema,
    change: Change<'a>,
    config: &'a Value,
    force: bool,
}

impl Application<'_> {
    /// What becomes of the object that is there, as it is stored; or of none.
    fn to(&self, old: Option<&Value>) -> Result<Value, Status> {
        let resource = self.write.resource;
        let shown = old.map(|old| convert::from_storage(resource, old.clone()));
        let applied = self.write.apply(shown.as_ref(), self.config, self.force);
        let applied = applied.map_err(|error| refusal(self.change, &error))?;
        let checked = self.schema.check(applied, FieldValidation::Ignore);
        let checked = checked.map_err(|error| bad_patch(self.change, &error))?;
        Ok(convert::to_storage(resource, checked.object))
    }
}

/// What is said of a write besides its object must be right; the texts are upstream's.
pub(super) fn check_options(context: &Context<'_>) -> Result<(), Status> {
    let kind = match *context.method {
        Method::POST => "CreateOptions",
        Method::PUT => "UpdateOptions",
        Method::PATCH => "PatchOptions",
        _ => return Ok(()),
    };
    let content_type = text_header(context.headers, header::CONTENT_TYPE);
    let is_apply = kind == "PatchOptions"
        && PatchType::from_content_type(content_type).is_ok_and(|kind| kind == PatchType::Apply);
    let said = context.query.text("fieldManager");
    let mut errors = Vec::new();
    let path = FieldPath::new("fieldManager");
    if is_apply && said.is_empty() {
        errors.push(FieldError::required(path.clone(), "is required for apply patch"));
    }
    if kind == "PatchOptions" && !is_apply && context.query.has("force") {
        let why = "may not be specified for non-apply patch";
        errors.push(FieldError::forbidden(FieldPath::new("force"), why));
    }
    match check_manager(said) {
        Ok(()) => {}
        Err(ManagerNameError::TooLong) => {
            errors.push(FieldError::too_long(path, MANAGER_MAX_LENGTH));
        }
        Err(error) => errors.push(FieldError::invalid(path, said, error.to_string())),
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(Subject { group: "meta.k8s.io", kind, name: "" }, &errors))
}

/// A configuration says what it is, and not who manages it.
fn check_config(change: Change<'_>, config: &Value) -> Result<(), Status> {
    let resource = change.route.resource;
    let said = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    if said("apiVersion") != resource.api_version() || said("kind") != resource.kind {
        let (group, version) =
            said("apiVersion").split_once('/').unwrap_or(("", said("apiVersion")));
        let kind = said("kind");
        return Err(Status::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={kind}"
        )));
    }
    if !at(config, MANAGED_FIELDS).is_null() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let name = metadata(config, "name");
    if !name.is_empty() && name != change.route.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            change.route.name
        )));
    }
    Ok(())
}

/// Whoever means a certain object does not mean a new one.
fn check_absent(change: Change<'_>, config: &Value) -> Result<(), Status> {
    if metadata(config, "name").is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    let uid = metadata(config, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let why = format!(
        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    );
    Err(Status::conflict(change.route.status_target(), why))
}

fn refusal(change: Change<'_>, error: &ApplyError) -> Status {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts.iter().map(|conflict| {
                (format!("conflict with {}", conflict.manager), conflict.field.clone())
            });
            Status::apply_conflict(conflicts.to_string(), causes)
        }
        // Upstream calls its own fault what is the client's: its code is 500.
        ApplyError::Config(error) => {
            let Resource { group, version, kind, .. } = change.route.resource;
            let (namespace, name) = (&change.route.namespace, &change.route.name);
            Status::bad_request(format!(
                "failed to create typed patch object ({namespace}/{name}; {group}/{version}, \
                 Kind={kind}): {error}"
            ))
        }
        error => Status::internal(Chain(error).to_string()),
    }
}
