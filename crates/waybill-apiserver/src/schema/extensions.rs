//! The schemas that `k8s-openapi` does not have: our kinds and fields, and the lists.

use std::{borrow::Cow, marker::PhantomData};

use k8s_openapi::{
    ClusterResourceScope, ListableResource, Resource,
    api::core::v1::EnvVar,
    apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use waybill_api::provider_class;

/// The definition to which `csiSecretRef` is added (CSI-09).
pub(super) const ENV_VAR_SOURCE: &str = "io.k8s.api.core.v1.EnvVarSource";

const API_VERSION: &str =
    "APIVersion defines the versioned schema of this representation of an object.";
const KIND: &str = "Kind is a string value representing the REST resource this object represents.";

/// Adds our fields to the definitions that hold the types of Kubernetes.
pub(super) fn extend(generator: &mut SchemaGenerator) {
    if !generator.definitions().contains_key(ENV_VAR_SOURCE) {
        return;
    }
    let selector = described(
        generator.subschema_for::<CsiSecretSelector>(),
        "Selects a key of an external system, fetched by a CSI driver. Requires the \
         CSIDirectEnvInjection feature gate to be enabled.",
    );
    let source = generator.definitions_mut().get_mut(ENV_VAR_SOURCE);
    if let Some(Value::Object(fields)) = source.and_then(|source| source.get_mut("properties")) {
        fields.insert("csiSecretRef".to_owned(), selector.to_value());
    }
}

/// The list of `T`, which has no type of its own in `k8s-openapi`.
pub(super) struct ListOf<T>(PhantomData<T>);

impl<T: ListableResource + JsonSchema> JsonSchema for ListOf<T> {
    fn schema_name() -> Cow<'static, str> {
        let item = T::schema_name();
        let package = item.rsplit_once('.').map_or("", |(package, _)| package);
        format!("{package}.{}", T::LIST_KIND).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": format!("{} is a list of {}.", T::LIST_KIND, T::KIND),
            "type": "object",
            "properties": {
                "apiVersion": {"description": API_VERSION, "type": "string"},
                "items": {
                    "description": "Items is the list of objects.",
                    "type": "array",
                    "items": generator.subschema_for::<T>(),
                },
                "kind": {"description": KIND, "type": "string"},
                "metadata":
                    described(generator.subschema_for::<ListMeta>(), "Standard list metadata."),
            },
            "required": ["items"],
        })
    }
}

/// A version of the storage group that serves our kind.
pub(super) trait StorageVersion {
    const NAME: &'static str;
    const API_VERSION: &'static str;
}

/// `storage.k8s.io/v1`.
pub(crate) struct V1;

impl StorageVersion for V1 {
    const NAME: &'static str = "v1";
    const API_VERSION: &'static str = "storage.k8s.io/v1";
}

/// `storage.k8s.io/v1alpha1`, the alias (OP-31).
pub(crate) struct V1Alpha1;

impl StorageVersion for V1Alpha1 {
    const NAME: &'static str = "v1alpha1";
    const API_VERSION: &'static str = "storage.k8s.io/v1alpha1";
}

/// `ProviderClass` (CSI-15).
pub(crate) struct ProviderClass<V>(PhantomData<V>);

impl<V: StorageVersion> Resource for ProviderClass<V> {
    const API_VERSION: &'static str = V::API_VERSION;
    const GROUP: &'static str = provider_class::GROUP;
    const KIND: &'static str = provider_class::KIND;
    const VERSION: &'static str = V::NAME;
    const URL_PATH_SEGMENT: &'static str = provider_class::RESOURCE;
    type Scope = ClusterResourceScope;
}

impl<V: StorageVersion> ListableResource for ProviderClass<V> {
    const LIST_KIND: &'static str = "ProviderClassList";
}

impl<V: StorageVersion> JsonSchema for ProviderClass<V> {
    fn schema_name() -> Cow<'static, str> {
        format!("io.k8s.api.storage.{}.ProviderClass", V::NAME).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "ProviderClass says which CSI driver serves which keys of an external \
                system to the pods of which namespaces. It is cluster-scoped and the \
                administrator's; pods name it in csiSecretRef.",
            "type": "object",
            "properties": {
                "apiVersion": {"description": API_VERSION, "type": "string"},
                "kind": {"description": KIND, "type": "string"},
                "metadata":
                    described(generator.subschema_for::<ObjectMeta>(), "Standard object metadata."),
                "spec": described(
                    generator.subschema_for::<ProviderClassSpec<V>>(),
                    "Spec says which driver serves the class, and with which parameters.",
                ),
            },
            "required": ["spec"],
        })
    }
}

struct ProviderClassSpec<V>(PhantomData<V>);

impl<V: StorageVersion> JsonSchema for ProviderClassSpec<V> {
    fn schema_name() -> Cow<'static, str> {
        format!("io.k8s.api.storage.{}.ProviderClassSpec", V::NAME).into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "ProviderClassSpec is what a ProviderClass says.",
            "type": "object",
            "properties": {
                "driver": {
                    "description": "Name of the CSI driver that serves the class.",
                    "type": "string",
                },
                "parameters": {
                    "description": "Parameters for the driver. allowedNamespaces and allowedFields \
                        limit who may fetch what.",
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
            },
            "required": ["driver"],
        })
    }
}

/// `csiSecretRef` (CSI-09).
struct CsiSecretSelector;

impl JsonSchema for CsiSecretSelector {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.api.core.v1.CSISecretSelector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "CSISecretSelector selects a key of an external system.",
            "type": "object",
            "properties": {
                "driver": {
                    "description": "Name of the CSI driver that fetches the value.",
                    "type": "string",
                },
                "key": {
                    "description": "What to fetch, in the driver's own terms.",
                    "type": "string",
                },
                "optional": {
                    "description": "Whether the container may start without the value.",
                    "type": "boolean",
                },
                "parameters": {
                    "description": "Parameters for the driver, beside those of the class.",
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
                "providerClassName": {
                    "description": "Name of the ProviderClass that allows the key.",
                    "type": "string",
                },
            },
            "required": ["driver", "providerClassName", "key"],
        })
    }
}

/// `PodExecOptions` with `env` (EXEC-17). It travels as a query and is never stored.
pub(super) struct PodExecOptions;

impl JsonSchema for PodExecOptions {
    fn schema_name() -> Cow<'static, str> {
        "io.k8s.api.core.v1.PodExecOptions".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "PodExecOptions is the query of a call to a pod's exec subresource.",
            "type": "object",
            "properties": {
                "apiVersion": {"description": API_VERSION, "type": "string"},
                "command": {
                    "description": "The program and its arguments; no shell is involved.",
                    "type": "array",
                    "items": {"type": "string"},
                },
                "container": {
                    "description": "The container; the pod's only or default one if empty.",
                    "type": "string",
                },
                "env": {
                    "description": "Variables for this session, literal values only. Requires the \
                        ExecEnvVar feature gate to be enabled.",
                    "type": "array",
                    "items": generator.subschema_for::<EnvVar>(),
                },
                "kind": {"description": KIND, "type": "string"},
                "stderr": {
                    "description": "Whether to send the standard error to the caller.",
                    "type": "boolean",
                },
                "stdin": {
                    "description": "Whether the caller sends the standard input.",
                    "type": "boolean",
                },
                "stdout": {
                    "description": "Whether to send the standard output to the caller.",
                    "type": "boolean",
                },
                "tty": {
                    "description": "Whether the process gets a terminal.",
                    "type": "boolean",
                },
            },
            "required": ["command"],
        })
    }
}

fn described(mut schema: Schema, description: &str) -> Schema {
    schema.insert("description".to_owned(), description.into());
    schema
}
