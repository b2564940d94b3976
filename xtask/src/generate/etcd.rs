//! The messages of etcd's v3 API that waybill-apiserver uses, with the fields that it uses.
//!
//! The description is the one that `etcd-client` carries. What we do not name is left out, so that reading skips it. A
//! member of a `oneof` becomes an optional field: the bytes are the same.

use std::fs;

use anyhow::{Context, Result, ensure};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    OneofDescriptorProto, field_descriptor_proto::Type,
};

use super::{Generated, READ_ONLY};
use crate::{metadata, repository::Repository};

const OUTPUT: &str = "crates/waybill-apiserver/src/store/etcd/message/generated.rs";
const SOURCE: &str = "etcd-client";
const ROOT: &str = "etcd/api/etcdserverpb/rpc.proto";
/// All messages come into this package.
const PACKAGE: &str = "etcd";

const USED: &[(&str, &[&str])] = &[
    ("AuthenticateRequest", &["name", "password"]),
    ("AuthenticateResponse", &["token"]),
    ("CompactionRequest", &["revision"]),
    ("CompactionResponse", &[]),
    ("Compare", &["result", "target", "key", "mod_revision"]),
    ("DeleteRangeRequest", &["key"]),
    ("Event", &["type", "kv", "prev_kv"]),
    ("KeyValue", &["key", "create_revision", "mod_revision", "version", "value"]),
    ("PutRequest", &["key", "value"]),
    ("RangeRequest", &["key", "range_end", "limit", "revision", "count_only"]),
    ("RangeResponse", &["header", "kvs", "more"]),
    ("RequestOp", &["request_range", "request_put", "request_delete_range"]),
    ("ResponseHeader", &["revision"]),
    ("ResponseOp", &["response_range"]),
    ("TxnRequest", &["compare", "success", "failure"]),
    ("TxnResponse", &["header", "succeeded", "responses"]),
    (
        "WatchCreateRequest",
        &["key", "range_end", "start_revision", "progress_notify", "prev_kv", "fragment"],
    ),
    ("WatchRequest", &["create_request"]),
    (
        "WatchResponse",
        &[
            "header",
            "created",
            "canceled",
            "compact_revision",
            "cancel_reason",
            "fragment",
            "events",
        ],
    ),
];

/// What can hold a value or a credential; `message.rs` there has a `Debug` by hand for each.
const NO_DERIVED_DEBUG: &[&str] =
    &["AuthenticateRequest", "AuthenticateResponse", "KeyValue", "PutRequest"];

pub(super) fn generated(repository: &Repository) -> Result<Generated> {
    let (version, folder) = metadata::source_of(repository, READ_ONLY, SOURCE)?;
    let all = protox::compile([ROOT], [folder.join("proto")])?;
    let set = FileDescriptorSet { file: vec![used(&all)?] };
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    tonic_prost_build::configure()
        .bytes(".")
        .skip_debug(NO_DERIVED_DEBUG.iter().map(|name| format!(".{PACKAGE}.{name}")))
        .out_dir(scratch.path())
        .compile_fds(set)
        .context("cannot generate code")?;
    let code = fs::read_to_string(scratch.path().join(format!("{PACKAGE}.rs")))?;
    let head =
        format!("//! Written by `cargo xtask gen` from {SOURCE} {version}; do not edit.\n\n");
    Ok(Generated { path: OUTPUT.to_owned(), text: head + &code })
}

/// A file with the messages that we use, and of these the fields that we use.
fn used(all: &FileDescriptorSet) -> Result<FileDescriptorProto> {
    let mut file = FileDescriptorProto {
        name: Some("etcd.proto".to_owned()),
        package: Some(PACKAGE.to_owned()),
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    for (name, fields) in USED {
        let mut messages = all.file.iter().flat_map(|file| &file.message_type);
        let message = messages.find(|message| message.name() == *name);
        let message = message.with_context(|| format!("etcd has no message {name}"))?;
        file.message_type.push(cut(message, fields)?);
    }
    Ok(file)
}

fn cut(message: &DescriptorProto, names: &[&str]) -> Result<DescriptorProto> {
    let mut cut = DescriptorProto {
        name: message.name.clone(),
        enum_type: message.enum_type.clone(),
        ..DescriptorProto::default()
    };
    for field in message.field.iter().filter(|field| names.contains(&field.name())) {
        let mut field = FieldDescriptorProto {
            type_name: field.type_name.as_deref().map(ours),
            json_name: None,
            options: None,
            ..field.clone()
        };
        if field.oneof_index.take().is_some() && field.r#type() != Type::Message {
            // Present and empty are two things; proto3 says so by a `oneof` of one.
            let index = i32::try_from(cut.oneof_decl.len()).context("too many fields")?;
            let name = Some(format!("_{}", field.name()));
            cut.oneof_decl.push(OneofDescriptorProto { name, options: None });
            field.oneof_index = Some(index);
            field.proto3_optional = Some(true);
        }
        cut.field.push(field);
    }
    ensure!(cut.field.len() == names.len(), "{}: a field is not there", message.name());
    Ok(cut)
}

/// `.etcd.KeyValue` of `.mvccpb.KeyValue`.
fn ours(name: &str) -> String {
    let inner = name.trim_start_matches('.').split_once('.').map_or(name, |(_, inner)| inner);
    format!(".{PACKAGE}.{inner}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_gone_is_an_error() {
        let message = DescriptorProto { name: Some("A".to_owned()), ..DescriptorProto::default() };
        assert!(cut(&message, &["b"]).is_err());
    }

    #[test]
    fn names_come_into_one_package() {
        assert_eq!(ours(".mvccpb.Event.EventType"), ".etcd.Event.EventType");
    }
}
