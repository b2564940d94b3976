//! What events can be selected by.

use crate::selector::supported::{self, SelectableField, Source};

/// Both groups store one kind of event, so each field has up to two names and two places.
pub(super) const FIELDS: &[SelectableField] = &[
    supported::NAME,
    supported::NAMESPACE,
    ("involvedObject.apiVersion", REGARDING_API_VERSION),
    ("involvedObject.fieldPath", REGARDING_FIELD_PATH),
    ("involvedObject.kind", REGARDING_KIND),
    ("involvedObject.name", REGARDING_NAME),
    ("involvedObject.namespace", REGARDING_NAMESPACE),
    ("involvedObject.resourceVersion", REGARDING_RESOURCE_VERSION),
    ("involvedObject.uid", REGARDING_UID),
    ("reason", Source::Text(&["/reason"])),
    ("regarding.apiVersion", REGARDING_API_VERSION),
    ("regarding.fieldPath", REGARDING_FIELD_PATH),
    ("regarding.kind", REGARDING_KIND),
    ("regarding.name", REGARDING_NAME),
    ("regarding.namespace", REGARDING_NAMESPACE),
    ("regarding.resourceVersion", REGARDING_RESOURCE_VERSION),
    ("regarding.uid", REGARDING_UID),
    ("reportingComponent", REPORTER),
    ("reportingController", REPORTER),
    (
        "source",
        Source::Text(&[
            "/source/component",
            "/deprecatedSource/component",
            "/reportingComponent",
            "/reportingController",
        ]),
    ),
    ("type", Source::Text(&["/type"])),
];

const REGARDING_API_VERSION: Source =
    Source::Text(&["/involvedObject/apiVersion", "/regarding/apiVersion"]);
const REGARDING_FIELD_PATH: Source =
    Source::Text(&["/involvedObject/fieldPath", "/regarding/fieldPath"]);
const REGARDING_KIND: Source = Source::Text(&["/involvedObject/kind", "/regarding/kind"]);
const REGARDING_NAME: Source = Source::Text(&["/involvedObject/name", "/regarding/name"]);
const REGARDING_NAMESPACE: Source =
    Source::Text(&["/involvedObject/namespace", "/regarding/namespace"]);
const REGARDING_RESOURCE_VERSION: Source =
    Source::Text(&["/involvedObject/resourceVersion", "/regarding/resourceVersion"]);
const REGARDING_UID: Source = Source::Text(&["/involvedObject/uid", "/regarding/uid"]);
const REPORTER: Source = Source::Text(&["/reportingComponent", "/reportingController"]);
