//! What kubectl sends, what the tables say, and what damage does.

mod exec;
mod goldens;

use proptest::prelude::*;
use serde_json::{Value, json};
use waybill_core::chain::Chain;

use super::{
    table::{Count, Field, Message, Type},
    *,
};
use crate::{
    registry::RESOURCES,
    schema::{self, FieldValidation},
};

fn bytes_field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut field = varint(u64::from(number << 3 | 2));
    field.extend(varint(content.len() as u64));
    field.extend(content);
    field
}

fn int_field(number: u32, value: i64) -> Vec<u8> {
    let mut field = varint(u64::from(number << 3));
    field.extend(varint(value.cast_unsigned()));
    field
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [bytes_field(1, api_version.as_bytes()), bytes_field(2, kind.as_bytes())];
    [MAGIC.to_vec(), bytes_field(1, &type_meta.concat()), bytes_field(2, raw)].concat()
}

/// A message in which every field has a value, or every field an empty one.
fn sample(message: &Message, filled: bool) -> Vec<u8> {
    message.0.iter().flat_map(|field| sample_field(field, filled)).collect()
}

fn sample_field(field: &Field, filled: bool) -> Vec<u8> {
    let value = |number| sample_value(number, field.of, filled);
    match field.count {
        Count::Map => bytes_field(field.number, &[bytes_field(1, b"key"), value(2)].concat()),
        Count::One | Count::Kept | Count::Inline | Count::List => value(field.number),
    }
}

fn sample_value(number: u32, of: Type, filled: bool) -> Vec<u8> {
    let int = i64::from(filled);
    let text: &[u8] = if filled { b"1" } else { b"" };
    match of {
        Type::Bool | Type::Int32 | Type::Int64 => int_field(number, int),
        Type::Text | Type::Bytes => bytes_field(number, text),
        Type::Message(message) => bytes_field(number, &sample(message, filled)),
        _ if !filled => bytes_field(number, b""),
        Type::Texts | Type::Quantity => bytes_field(number, &bytes_field(1, text)),
        Type::Time | Type::MicroTime | Type::IntOrString => {
            bytes_field(number, &[int_field(1, 1), int_field(2, 1)].concat())
        }
        Type::Json => bytes_field(number, &bytes_field(1, br#"{"f:data":{}}"#)),
    }
}

fn kinds() -> impl Iterator<Item = (String, &'static str, &'static Message)> {
    let options = tables::lookup("v1", "DeleteOptions").unwrap();
    let others = tables::OTHERS.into_iter().chain([("v1", "DeleteOptions", options)]);
    let resources = RESOURCES
        .iter()
        .filter_map(|resource| Some((resource.api_version(), resource.kind, resource.protobuf?)));
    resources.chain(others.map(|(version, kind, message)| (version.to_owned(), kind, message)))
}

#[test]
fn every_table_fits_the_schema_of_its_kind() {
    for (api_version, kind, message) in kinds() {
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let schema = schema::lookup(group, version, kind).unwrap();
        for filled in [true, false] {
            let object = decode(&body(&api_version, kind, &sample(message, filled))).unwrap();
            let named = !matches!(kind, "DeleteOptions" | "PodExecOptions");
            assert_eq!(object["metadata"]["name"] == "1", filled && named);
            let checked = schema.check(object.clone(), FieldValidation::Strict);
            let checked = checked.unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert_eq!(checked.object, object, "{kind}");
        }
    }
}

#[test]
fn what_is_written_is_read_again() {
    for (api_version, kind, message) in kinds().filter(|(_, kind, _)| *kind != "DeleteOptions") {
        for filled in [true, false] {
            let object = decode(&body(&api_version, kind, &sample(message, filled))).unwrap();
            assert_eq!(decode(&encode(&object).unwrap()), Ok(object), "{kind}");
        }
    }
}

#[test]
fn lists_and_events_hold_their_objects() {
    let item = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "data": {"a": "aHVudGVyMg=="}})
    };
    let metadata = json!({"resourceVersion": "7", "remainingItemCount": 3});
    let items = [item("a"), item("b")].map(|item| list_item(&item).unwrap()).concat();
    let list = [list_head("v1", "Secret", &metadata, items.len()), items].concat();
    let envelope = Envelope::parse(&list).unwrap();
    assert_eq!((envelope.api_version, envelope.kind), ("v1", "SecretList"));
    let mut reader = Reader::new(envelope.raw);
    let mut numbers = Vec::new();
    while let Some((number, wire)) = reader.next().unwrap() {
        numbers.push(number);
        let secrets = tables::lookup("v1", "Secret").unwrap();
        let message = if number == 1 { &tables::LIST_META } else { secrets };
        let part = Value::Object(read::document(message, wire.bytes().unwrap()).unwrap());
        let expected = match numbers.len() {
            1 => metadata.clone(),
            2 => json!({"metadata": {"name": "a"}, "data": {"a": "aHVudGVyMg=="}}),
            _ => json!({"metadata": {"name": "b"}, "data": {"a": "aHVudGVyMg=="}}),
        };
        assert_eq!(part, expected);
    }
    assert_eq!(numbers, [1, 2, 2]);
    let event = encode_event("ADDED", &item("a")).unwrap();
    let (length, event) = event.split_at(4);
    assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, event.len());
    let raw_extension = bytes_field(1, &encode(&item("a")).unwrap());
    assert_eq!(event, [bytes_field(1, b"ADDED"), bytes_field(2, &raw_extension)].concat());
}

#[test]
fn tables_are_sorted_and_name_each_field_once() {
    fn check(message: &Message) {
        assert!(message.0.is_sorted_by_key(|field| field.number));
        for (at, field) in message.0.iter().enumerate() {
            let same = |other: &&Field| other.number == field.number || other.name == field.name;
            assert_eq!(message.0.iter().find(same).unwrap().number, field.number, "{at}");
            assert_eq!(field.name.is_empty(), field.count == Count::Inline);
            if let Type::Message(inner) = field.of {
                check(inner);
            }
        }
    }
    kinds().for_each(|(_, _, message)| check(message));
}

#[track_caller]
fn check_lease(spec: &[u8], expected: impl Into<Value>) {
    let object = decode(&body("coordination.k8s.io/v1", "Lease", &bytes_field(2, spec))).unwrap();
    assert_eq!(object["spec"], expected.into());
}

#[test]
fn what_go_points_to_is_kept_when_empty() {
    check_lease(&int_field(2, 0), json!({"leaseDurationSeconds": 0}));
    check_lease(&bytes_field(1, b""), json!({"holderIdentity": ""}));
    let account = decode(&body("v1", "ServiceAccount", &int_field(4, 0))).unwrap();
    assert_eq!(account["automountServiceAccountToken"], false);
}

#[test]
fn times_have_the_precision_of_their_type() {
    let time = [int_field(1, 1_767_225_600), int_field(2, 123_456_789)].concat();
    check_lease(&bytes_field(3, &time), json!({"acquireTime": "2026-01-01T00:00:00.123456Z"}));
    let metadata = bytes_field(1, &bytes_field(8, &time));
    let object = decode(&body("v1", "ConfigMap", &metadata)).unwrap();
    assert_eq!(object["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
}

#[test]
fn the_zero_time_is_none() {
    check_lease(&bytes_field(3, b""), Value::Null);
    check_lease(&bytes_field(3, &int_field(1, -62_135_596_800)), Value::Null);
    check_lease(
        &bytes_field(3, &int_field(1, 0)),
        json!({"acquireTime": "1970-01-01T00:00:00.000000Z"}),
    );
}

#[test]
fn a_message_in_parts_is_their_sum() {
    let spec = bytes_field(2, &[int_field(2, 15), int_field(5, -1)].concat());
    let raw = [spec, bytes_field(2, &int_field(2, 30))].concat();
    let object = decode(&body("coordination.k8s.io/v1", "Lease", &raw)).unwrap();
    assert_eq!(object["spec"], json!({"leaseDurationSeconds": 30, "leaseTransitions": -1}));
}

#[test]
fn numbers_may_come_packed() {
    let security = bytes_field(4, &[varint(1), varint(300)].concat());
    let raw = bytes_field(2, &bytes_field(14, &security));
    let object = decode(&body("v1", "Pod", &raw)).unwrap();
    assert_eq!(object["spec"]["securityContext"], json!({"supplementalGroups": [1, 300]}));
}

#[test]
fn inlined_messages_leave_no_trace() {
    let reference = bytes_field(1, &bytes_field(1, b"cm"));
    let selector = [reference, bytes_field(2, b"k"), int_field(3, 0)].concat();
    let env = [bytes_field(1, b"A"), bytes_field(3, &bytes_field(3, &selector))].concat();
    let raw = bytes_field(2, &bytes_field(2, &bytes_field(7, &env)));
    let object = decode(&body("v1", "Pod", &raw)).unwrap();
    let expected = json!({"configMapKeyRef": {"name": "cm", "key": "k", "optional": false}});
    assert_eq!(object["spec"]["containers"][0]["env"][0]["valueFrom"], expected);
}

#[test]
fn unknown_fields_are_skipped() {
    let unknown = [int_field(900, 1), bytes_field(901, b"x"), bytes_field(1, b"h")].concat();
    check_lease(&unknown, json!({"holderIdentity": "h"}));
}

#[track_caller]
fn check_refused(body: &[u8], expected: &str) {
    assert_eq!(Chain(&decode(body).unwrap_err()).to_string(), expected);
}

#[test]
fn refusals_say_where_and_show_no_value() {
    check_refused(b"{}", "the body does not begin as one in protobuf does");
    check_refused(
        b"k8s\0\x0a\x05",
        "the message around the object is malformed: the message ends within a field",
    );
    check_refused(
        &body("v1", "Secret", &bytes_field(2, &bytes_field(1, b"\xff"))),
        "the object is malformed: data is malformed: text is not UTF-8",
    );
    check_refused(
        &body("coordination.k8s.io/v1", "Lease", &bytes_field(2, &int_field(2, i64::MAX))),
        "the object is malformed: spec.leaseDurationSeconds is malformed: a number is too large",
    );
    check_refused(
        &body("storage.k8s.io/v1", "ProviderClass", b""),
        "\"ProviderClass\" in \"storage.k8s.io/v1\" is not read in protobuf, but in application/json",
    );
}

#[test]
fn an_envelope_may_hold_json() {
    let mut json = body("v1", "ConfigMap", br#"{"data":{"a":"1"}}"#);
    json.extend(bytes_field(4, b"application/json"));
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}});
    assert_eq!(decode(&json), Ok(expected));
    json.extend(bytes_field(3, b"gzip"));
    assert_eq!(decode(&json), Err(ProtobufError::ContentEncoding));
}

fn pod_sample() -> Vec<u8> {
    sample(tables::lookup("v1", "Pod").unwrap(), true)
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes: Vec<u8>, kind in any::<prop::sample::Index>()) {
        let all: Vec<_> = kinds().collect();
        let (api_version, kind, _) = kind.get(&all);
        let _ = decode(&bytes);
        let _ = decode(&[MAGIC, &bytes].concat());
        let _ = decode(&body(api_version, kind, &bytes));
    }

    #[test]
    fn a_damaged_pod_is_read_without_panic(
        at in any::<prop::sample::Index>(),
        length in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let mut raw = pod_sample();
        *at.get_mut(&mut raw) = byte;
        raw.truncate(length.index(raw.len()) + 1);
        let _ = decode(&body("v1", "Pod", &raw));
    }
}
