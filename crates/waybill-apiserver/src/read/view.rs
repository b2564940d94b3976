//! The form in which a client wants objects: as they are, as rows of a table, or in another version.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use waybill_api::status::Status;

use crate::{
    cache::CachedObject,
    convert,
    document::without_type,
    http::Answer,
    protobuf,
    registry::Resource,
    table::{IncludeObject, MetaVersion, TableMaker, partial_object_metadata},
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
    /// The version of `meta.k8s.io` that tables and metadata are in.
    meta: MetaVersion,
    /// Whole objects only for clients that do not take JSON, which is what they are kept in.
    pub(super) is_protobuf: bool,
}

impl View {
    /// The first form in `Accept` that we can make of objects of `resource`.
    pub(crate) fn parse(
        headers: &HeaderMap,
        include_object: &str,
        resource: &'static Resource,
    ) -> Result<Self, Status> {
        let include = IncludeObject::parse(include_object)
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
        let accept = accept.filter(|accept| !accept.trim().is_empty()).unwrap_or("*/*");
        let views = accept.split(',').filter_map(|wanted| Self::wanted(wanted, include, resource));
        // What is kept as JSON is sent as JSON to everybody who takes it. What is made for the client comes in the form that the
        // client names first.
        let is_made_twice = |view: &Self| view.is_protobuf && view.form == Form::Object;
        views.min_by_key(is_made_twice).ok_or_else(|| {
            let also = if resource.protobuf.is_some() {
                ", application/vnd.kubernetes.protobuf"
            } else {
                ""
            };
            Status::not_acceptable(format!(
                "only the following media types are accepted: application/json{also}"
            ))
        })
    }

    /// What one element of `Accept` wants, if we have that.
    fn wanted(wanted: &str, include: IncludeObject, resource: &'static Resource) -> Option<Self> {
        let mut parts = wanted.split(';').map(str::trim);
        let is_protobuf = match parts.next()? {
            "application/json" | "application/*" | "*/*" => false,
            protobuf::MEDIA_TYPE => true,
            _ => return None,
        };
        let mut meta = None;
        let mut kind = "";
        for part in parts {
            match part.split_once('=') {
                Some(("as", name)) => kind = name,
                Some(("v", "v1")) => meta = Some(MetaVersion::V1),
                Some(("v", "v1beta1")) => meta = Some(MetaVersion::V1beta1),
                _ => {}
            }
        }
        let form = match (kind, meta) {
            ("", _) => Form::Object,
            ("Table", Some(_)) if resource.is_stored() => Form::Table(include),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", Some(_))
                if resource.is_stored() =>
            {
                Form::Metadata
            }
            _ => return None,
        };
        let view = Self { form, meta: meta.unwrap_or(MetaVersion::V1), is_protobuf };
        let has_message = match form {
            Form::Object => resource.protobuf.is_some(),
            Form::Metadata => view.meta == MetaVersion::V1,
            Form::Table(_) => false,
        };
        (!is_protobuf || has_message).then_some(view)
    }

    /// The answer with `body`, which this view made.
    pub(crate) fn answer(&self, code: StatusCode, body: Bytes) -> Answer {
        Answer { content_type: self.content_type(), ..Answer::json(code, body) }
    }

    pub(super) fn content_type(&self) -> &'static str {
        if self.is_protobuf { protobuf::MEDIA_TYPE } else { "application/json" }
    }

    /// The type of a watch in this view.
    pub(crate) fn stream_type(&self) -> &'static str {
        if self.is_protobuf { protobuf::STREAM_TYPE } else { "application/json" }
    }

    /// One object as the body of an answer.
    pub(crate) fn object(
        &self,
        resource: &'static Resource,
        object: &CachedObject,
        now: Timestamp,
    ) -> Bytes {
        match self.form {
            Form::Object if !self.is_protobuf && is_stored_form(resource) => object.json(),
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
        let shown = self.shown(resource, document, now);
        if self.is_protobuf {
            // The view was made for a kind that has a message.
            return protobuf::encode(&shown).unwrap_or_default().into();
        }
        Bytes::from(shown.to_string())
    }

    /// One object as this view shows it.
    pub(super) fn shown(
        &self,
        resource: &'static Resource,
        document: Value,
        now: Timestamp,
    ) -> Value {
        let document = convert::from_storage(resource, document);
        match self.form {
            Form::Object => document,
            Form::Metadata => partial_object_metadata(&document, self.meta),
            Form::Table(include) => self.table(resource, include, now).object(&document),
        }
    }

    /// What a list says before its first item. After the last come `]}`.
    pub(super) fn list_head(
        &self,
        resource: &'static Resource,
        metadata: &Value,
        now: Timestamp,
    ) -> String {
        if let Form::Table(include) = self.form {
            return self.table(resource, include, now).head(metadata);
        }
        let (kind, version) = self.item_kind(resource);
        format!(
            "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":["
        )
    }

    /// Kind and version of one object in this view.
    pub(super) fn item_kind(&self, resource: &'static Resource) -> (&'static str, String) {
        match self.form {
            Form::Object => (resource.kind, resource.api_version()),
            Form::Metadata => ("PartialObjectMetadata", self.meta.api_version().to_owned()),
            Form::Table(_) => ("Table", self.meta.api_version().to_owned()),
        }
    }

    /// The same for clients that take protobuf alone, who are told the size of all items first.
    pub(super) fn list_message_head(
        &self,
        resource: &'static Resource,
        metadata: &Value,
        objects: &[Arc<CachedObject>],
        now: Timestamp,
    ) -> Vec<u8> {
        let items = objects.iter().map(|object| self.list_message(resource, object, now).len());
        let (kind, version) = self.item_kind(resource);
        protobuf::list_head(&version, kind, metadata, items.sum())
    }

    /// One item of a list for clients that take protobuf alone.
    fn list_message(
        &self,
        resource: &'static Resource,
        object: &CachedObject,
        now: Timestamp,
    ) -> Vec<u8> {
        // The view was made for a kind that has a message.
        let shown = self.shown(resource, object.document(), now);
        protobuf::list_item(&shown).unwrap_or_default()
    }

    /// One item of a list, or one row of a table.
    pub(super) fn put_item(
        &self,
        resource: &'static Resource,
        object: &CachedObject,
        now: Timestamp,
        list: &mut BytesMut,
    ) {
        if self.is_protobuf {
            list.put_slice(&self.list_message(resource, object, now));
            return;
        }
        if self.is_as_stored(resource) {
            object.put_item(list);
            return;
        }
        let document = convert::from_storage(resource, object.document());
        let shown = match self.form {
            Form::Object => without_type(document),
            Form::Metadata => partial_object_metadata(&document, self.meta),
            Form::Table(include) => self.table(resource, include, now).row(&document),
        };
        list.put_slice(shown.to_string().as_bytes());
    }

    /// Whether objects are sent as they are kept.
    pub(super) fn is_as_stored(&self, resource: &'static Resource) -> bool {
        self.form == Form::Object && !self.is_protobuf && is_stored_form(resource)
    }

    /// The end of the first objects of a watch, or a bookmark, of an object that has nothing but `metadata`.
    pub(super) fn bookmark(
        &self,
        resource: &'static Resource,
        metadata: &Value,
        now: Timestamp,
    ) -> Value {
        let (kind, version) = match self.form {
            Form::Table(_) => (resource.kind, resource.api_version()),
            Form::Object | Form::Metadata => self.item_kind(resource),
        };
        let tells_more = metadata.get("annotations").is_some();
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        match self.form {
            Form::Object | Form::Metadata => object,
            // What a bookmark says is never left out.
            Form::Table(IncludeObject::None) if tells_more => {
                self.table(resource, IncludeObject::Metadata, now).object(&object)
            }
            Form::Table(include) => self.table(resource, include, now).object(&object),
        }
    }

    fn table(
        &self,
        resource: &'static Resource,
        include: IncludeObject,
        now: Timestamp,
    ) -> TableMaker {
        TableMaker { resource, include, meta: self.meta, now }
    }
}

/// Whether the cached bytes are what clients of `resource` get.
pub(crate) fn is_stored_form(resource: &'static Resource) -> bool {
    std::ptr::eq(resource, resource.storage())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::find;

    #[track_caller]
    fn check(plural: &str, accept: &str, expected: Option<(Form, MetaVersion, bool)>) {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, accept.parse().unwrap());
        let resource = find("", "v1", plural)
            .or_else(|| find("storage.k8s.io", "v1", plural))
            .or_else(|| find("authorization.k8s.io", "v1", plural));
        let view = View::parse(&headers, "", resource.unwrap()).ok();
        let found = view.map(|view| (view.form, view.meta, view.is_protobuf));
        assert_eq!(found, expected, "{plural}: {accept}");
    }

    #[test]
    fn a_client_gets_the_first_form_that_there_is_and_protobuf_only_if_it_takes_nothing_else() {
        let object = Some((Form::Object, MetaVersion::V1, false));
        let table = |meta| Some((Form::Table(IncludeObject::Metadata), meta, false));
        check("pods", "*/*", object);
        check("pods", "application/vnd.kubernetes.protobuf,application/json", object);
        check("pods", "application/vnd.kubernetes.protobuf, */*", object);
        check(
            "pods",
            "application/vnd.kubernetes.protobuf;stream=watch",
            Some((Form::Object, MetaVersion::V1, true)),
        );
        check("pods", "application/json;as=Table;v=v1;g=meta.k8s.io", table(MetaVersion::V1));
        check(
            "pods",
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            table(MetaVersion::V1beta1),
        );
        check("pods", "application/json;as=Table;v=v7;g=meta.k8s.io", None);
        check("pods", "application/json;as=Table;v=v7;g=meta.k8s.io, application/json", object);
        check("pods", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None);
        check(
            "pods",
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Some((Form::Metadata, MetaVersion::V1, true)),
        );
        let metadata = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let (json, protobuf) = ("application/json", "application/vnd.kubernetes.protobuf");
        check(
            "pods",
            &format!("{protobuf};{metadata},{json};{metadata},{json}"),
            Some((Form::Metadata, MetaVersion::V1, true)),
        );
        check(
            "pods",
            &format!("{json};{metadata},{protobuf};{metadata}"),
            Some((Form::Metadata, MetaVersion::V1, false)),
        );
        check("pods", "text/html", None);
        check("providerclasses", "application/vnd.kubernetes.protobuf", None);
        check("subjectaccessreviews", "application/json;as=Table;v=v1;g=meta.k8s.io", None);
    }
}
