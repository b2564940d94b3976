//! The form in which a client wants objects: as they are, as rows of a table, or in another version.

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;
use waybill_api::status::Status;

use crate::{
    cache::CachedObject,
    convert,
    registry::Resource,
    table::{Headers, IncludeObject, TableMaker, partial_object_metadata},
};

/// What the `Accept` header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Metadata,
    Table(IncludeObject),
}

/// How objects of one resource are shown to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) form: Form,
}

impl View {
    /// The first form in `Accept` that we can make.
    pub(crate) fn parse(headers: &HeaderMap, include_object: &str) -> Result<Self, Status> {
        let include = IncludeObject::parse(include_object)
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        let accept = accept.filter(|accept| !accept.trim().is_empty()).unwrap_or("*/*");
        for wanted in accept.split(',') {
            let mut parts = wanted.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let json = matches!(media_type, "application/json" | "application/*" | "*/*");
            let parameter = |name: &str| {
                let prefix = format!("{name}=");
                wanted
                    .split(';')
                    .map(str::trim)
                    .find_map(|part| part.strip_prefix(prefix.as_str()).map(str::to_owned))
            };
            let form = match parameter("as").as_deref() {
                None | Some("") => Form::Object,
                Some("Table") if parameter("v").as_deref() == Some("v1") => Form::Table(include),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList")
                    if parameter("v").as_deref() == Some("v1") =>
                {
                    Form::Metadata
                }
                Some(_) => continue,
            };
            if json {
                return Ok(Self { form });
            }
        }
        Err(Status::not_acceptable("only the following media types are accepted: application/json"))
    }

    /// One object as the body of an answer.
    pub(crate) fn object(
        &self,
        resource: &'static Resource,
        object: &CachedObject,
        now: Timestamp,
    ) -> Bytes {
        match self.form {
            Form::Object if is_stored_form(resource) => object.json(),
            _ => self.document(resource, object.document(), now),
        }
    }

    /// A stored document as the body of an answer.
    pub(crate) fn document(
        &self,
        resource: &'static Resource,
        document: Value,
        now: Timestamp,
    ) -> Bytes {
        let document = convert::from_storage(resource, document);
        let shown = match self.form {
            Form::Object => document,
            Form::Metadata => partial_object_metadata(&document),
            Form::Table(include) => table(resource, include, now).object(&document),
        };
        Bytes::from(shown.to_string())
    }

    /// What a list says before its first item. After the last come `]}`.
    pub(super) fn list_head(
        &self,
        resource: &'static Resource,
        metadata: &Value,
        now: Timestamp,
    ) -> String {
        let (kind, version) = match self.form {
            Form::Object => (format!("{}List", resource.kind), resource.api_version()),
            Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            Form::Table(include) => return table(resource, include, now).head(metadata),
        };
        format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":["
        )
    }

    /// One item of a list, or one row of a table.
    pub(super) fn put_item(
        &self,
        resource: &'static Resource,
        object: &CachedObject,
        now: Timestamp,
        list: &mut BytesMut,
    ) {
        if self.form == Form::Object && is_stored_form(resource) {
            object.put_json(list);
            return;
        }
        let document = convert::from_storage(resource, object.document());
        let shown = match self.form {
            Form::Object => document,
            Form::Metadata => partial_object_metadata(&document),
            Form::Table(include) => table(resource, include, now).row(&document),
        };
        list.put_slice(shown.to_string().as_bytes());
    }
}

/// Whether the cached bytes are what clients of `resource` get.
pub(crate) fn is_stored_form(resource: &'static Resource) -> bool {
    std::ptr::eq(resource, resource.storage())
}

fn table(
    resource: &'static Resource,
    include: IncludeObject,
    now: Timestamp,
) -> TableMaker<'static> {
    TableMaker { resource: resource.plural, include, headers: Headers::Present, now }
}
