//! `create`, `update`, `patch`, `delete` and `deletecollection`, from bytes to bytes.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode, header};
use hyper::body::Incoming;
use serde_json::Value;
use waybill_api::{
    field::{FieldError, FieldPath},
    status::Status,
};
use waybill_core::chain::Chain;

use super::{Api, Context, text_header, view};
use crate::{
    convert,
    document::{metadata, without_type},
    http::{Answer, read_body},
    patch::{self, PatchError, PatchType, Refusal},
    protobuf::{self, ProtobufError},
    query::DryRun,
    read::Selection,
    registry::Resource,
    route::ResourceRoute,
    schema::{self, DecodeError, FieldValidation, KindSchema},
    write::{Change, DeleteOptions, Deletion, Part, Written, subject},
};

impl Api {
    /// Performs a verb that changes objects.
    pub(super) async fn write(
        self: &Arc<Self>,
        route: &ResourceRoute,
        verb: &str,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let change = context.change(route)?;
        // Before anything is done: whoever cannot be told of a change does not make one.
        view(&context, route.resource)?;
        match verb {
            "create" => {
                let body = read_body(request.into_body(), self.request_timeout).await?;
                let (document, warnings) = decode(route.resource, &context, &body)?;
                context.audit.request_object(|| document.clone());
                let document = convert::to_storage(route.resource, document);
                let written = self.writer.create(change, document).await?;
                self.answer(route.resource, &mut context, written, warnings, StatusCode::CREATED)
            }
            "update" | "patch" => self.change(route, Part::Main, context, request).await,
            "delete" => self.delete(change, context, request).await,
            _ => self.delete_collection(change, context, request).await,
        }
    }

    /// `update` or `patch` of an object or one of its parts.
    pub(super) async fn change(
        self: &Arc<Self>,
        route: &ResourceRoute,
        part: Part,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let change = context.change(route)?;
        let resource = route.resource;
        view(&context, resource)?;
        let body = read_body(request.into_body(), self.request_timeout).await?;
        if *context.method != http::Method::PATCH {
            let (document, warnings) = decode(resource, &context, &body)?;
            context.audit.request_object(|| document.clone());
            let document = convert::to_storage(resource, document);
            let written = self.writer.update(change, part, |_| Ok(document.clone())).await?;
            return self.answer(resource, &mut context, written, warnings, StatusCode::OK);
        }
        context.audit.request_object(|| serde_json::from_slice(&body).unwrap_or_default());
        let content_type = text_header(context.headers, header::CONTENT_TYPE);
        let kind = PatchType::from_content_type(content_type).map_err(|error| refusal(&error))?;
        if kind == PatchType::Apply {
            return self.apply(change, part, context, &body).await;
        }
        let validation = field_validation(&context)?;
        let schema = schema_of(resource)?;
        let mut warnings = Vec::new();
        let patch = |old: &Value| {
            let shown = convert::from_storage(resource, old.clone());
            let patched = patch::apply(kind, &body, &shown, resource.patch)
                .map_err(|error| refusal(&error))?;
            let decoded = schema
                .check_patched(patched, &body, validation)
                .map_err(|error| bad_patch(change, &error))?;
            warnings = decoded.warnings;
            Ok(convert::to_storage(resource, decoded.object))
        };
        let written = self.writer.update(change, part, patch).await?;
        self.answer(resource, &mut context, written, warnings, StatusCode::OK)
    }

    async fn delete(
        &self,
        change: Change<'_>,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let (options, dry_run) =
            delete_options(&mut context, request, self.request_timeout, change.dry_run).await?;
        let change = Change { dry_run, ..change };
        match self.writer.delete(change, &options).await? {
            Deletion::Gone(status) => {
                let told = || serde_json::to_value(&status).unwrap_or_default();
                context.audit.response_object(told);
                Ok(Answer::status(&status))
            }
            Deletion::Marked(document) => {
                context.audit.response_object(|| document.clone());
                let resource = change.route.resource;
                let view = view(&context, resource)?;
                let body = view.document(resource, document, (self.clock)());
                Ok(view.answer(StatusCode::OK, body))
            }
        }
    }

    async fn delete_collection(
        &self,
        change: Change<'_>,
        mut context: Context<'_>,
        request: Request<Incoming>,
    ) -> Result<Answer, Status> {
        let selection = Selection::parse(change.route, context.query)?;
        let (options, dry_run) =
            delete_options(&mut context, request, self.request_timeout, change.dry_run).await?;
        let resource = change.route.resource;
        let cache = self.reader.objects.cache(resource).ok_or_else(Status::no_such_path)?;
        let listing =
            cache.list(&change.route.namespace, None, usize::MAX, |object| selection.keeps(object));
        let mut items: Vec<Value> = Vec::new();
        for object in &listing.objects {
            let route = ResourceRoute {
                resource,
                namespace: object.key.namespace.to_string(),
                name: object.key.name.to_string(),
                subresource: String::new(),
            };
            let change = Change { route: &route, dry_run, ..change };
            match self.writer.delete(change, &options).await {
                Ok(_) => {
                    items.push(without_type(convert::from_storage(resource, object.document())));
                }
                // Somebody else was faster.
                Err(status) if status.code() == 404 => {}
                Err(status) if items.is_empty() => return Err(status),
                Err(status) => {
                    let (deleted, all) = (items.len(), listing.objects.len());
                    let done = format!("{deleted} of {all} objects were deleted before this one");
                    return Err(status.reworded(|why| format!("{why} ({done})")));
                }
            }
        }
        Ok(Answer::value(&serde_json::json!({
            "kind": format!("{}List", resource.kind),
            "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.reader.objects.revision().to_string()},
            "items": items,
        })))
    }

    pub(super) fn answer(
        &self,
        resource: &'static Resource,
        context: &mut Context<'_>,
        written: Written,
        mut warnings: Vec<String>,
        code: StatusCode,
    ) -> Result<Answer, Status> {
        let view = view(context, resource)?;
        warnings.extend(written.warnings);
        let said = |field| metadata(&written.document, field);
        context.audit.identify(said("name"), said("uid"), said("resourceVersion"));
        context.audit.response_object(|| written.document.clone());
        let body = view.document(resource, written.document, (self.clock)());
        Ok(view.answer(code, body).with_warnings(warnings))
    }
}

async fn delete_options(
    context: &mut Context<'_>,
    request: Request<Incoming>,
    request_timeout: Duration,
    dry_run: DryRun,
) -> Result<(DeleteOptions, DryRun), Status> {
    let grace = context.query.signed("gracePeriodSeconds")?;
    let body = read_body(request.into_body(), request_timeout).await?;
    let document = if body.is_empty() { Value::Null } else { delete_document(context, &body)? };
    if !document.is_null() {
        context.audit.request_object(|| document.clone());
    }
    let (options, said) = DeleteOptions::read(&document, grace)?;
    Ok((options, if said == DryRun::All { said } else { dry_run }))
}

fn delete_document(context: &Context<'_>, body: &[u8]) -> Result<Value, Status> {
    let schema = schema::lookup("", "v1", "DeleteOptions")
        .ok_or_else(|| Status::internal("DeleteOptions has no schema"))?;
    decode_as(schema, context, body).map(|(document, _)| document)
}

/// Reads a body as an object of `resource`; what to warn of comes with it.
fn decode(
    resource: &'static Resource,
    context: &Context<'_>,
    body: &[u8],
) -> Result<(Value, Vec<String>), Status> {
    decode_as(schema_of(resource)?, context, body)
}

/// Reads a body as an object of the kind of `schema`.
pub(super) fn decode_as(
    schema: &KindSchema,
    context: &Context<'_>,
    body: &[u8],
) -> Result<(Value, Vec<String>), Status> {
    let validation = field_validation(context)?;
    let decoded = match BodyFormat::of(context)? {
        BodyFormat::Json => schema.decode(body, validation),
        BodyFormat::Yaml => schema.decode_yaml(body, validation),
        BodyFormat::Protobuf => schema.check(from_protobuf(body)?, validation),
    };
    let decoded = decoded.map_err(|error| Status::bad_request(schema.refusal(&error)))?;
    Ok((decoded.object, decoded.warnings))
}

/// How a client wrote the object that it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

impl BodyFormat {
    fn of(context: &Context<'_>) -> Result<Self, Status> {
        let content_type = text_header(context.headers, header::CONTENT_TYPE);
        match content_type.split(';').next().unwrap_or_default().trim() {
            "" | "application/json" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            protobuf::MEDIA_TYPE => Ok(Self::Protobuf),
            other => Err(Status::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml, {}; found {other}",
                protobuf::MEDIA_TYPE
            ))),
        }
    }
}

fn from_protobuf(body: &[u8]) -> Result<Value, Status> {
    protobuf::decode(body).map_err(|error| match &error {
        ProtobufError::UnknownKind { .. } => Status::unsupported_media_type(error.to_string()),
        _ => Status::bad_request(Chain(&error).to_string()),
    })
}

pub(super) fn schema_of(resource: &'static Resource) -> Result<&'static KindSchema, Status> {
    resource.schema().ok_or_else(|| Status::internal(format!("{} has no schema", resource.kind)))
}

pub(super) fn field_validation(context: &Context<'_>) -> Result<FieldValidation, Status> {
    FieldValidation::parse(context.query.text("fieldValidation")).ok_or_else(|| {
        Status::bad_request(
            "fieldValidation: Unsupported value: supported values: \"Ignore\", \"Strict\", \"Warn\"",
        )
    })
}

/// The answer to a patch that makes something of an object that it cannot be.
pub(super) fn bad_patch(change: Change<'_>, error: &DecodeError) -> Status {
    let subject = subject(change.route.resource, &change.route.name);
    // Upstream shows the whole patch, which may hold secrets.
    let error = FieldError::invalid(FieldPath::new("patch"), "...", error.to_string());
    Status::invalid(subject, &[error])
}

fn refusal(error: &PatchError) -> Status {
    let text = error.to_string();
    match error.refusal() {
        // Upstream says only the first half.
        Refusal::UnprocessableEntity
            if matches!(error, PatchError::Operation { .. } | PatchError::Test { .. }) =>
        {
            Status::unprocessable(format!(
                "the server rejected our request due to an error in our request: {text}"
            ))
        }
        Refusal::BadRequest => Status::bad_request(text),
        Refusal::RequestEntityTooLarge => Status::entity_too_large(text),
        Refusal::UnprocessableEntity => Status::unprocessable(text),
        Refusal::UnsupportedMediaType => Status::unsupported_media_type(text),
    }
}
