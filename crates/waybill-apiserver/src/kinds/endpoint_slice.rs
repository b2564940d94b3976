//! EndpointSlices: where the pods of a service are.

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::field::ErrorList;

use super::{
    Context, Generation, Kind, Shape,
    document::{Field, fill, fill_text, same},
    endpoints::{check_address, check_port, shown},
};
use crate::{
    document::{items, text},
    protobuf::tables,
    registry::Resource,
    schema::{self, KindSchema},
    table::{
        Table, cells,
        columns::{self, Column},
    },
};

static SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::discovery::v1::EndpointSlice>();

pub(crate) static ENDPOINT_SLICES: Resource = Resource {
    group: "discovery.k8s.io",
    plural: "endpointslices",
    singular: "endpointslice",
    kind: "EndpointSlice",
    schemas: &SCHEMAS,
    protobuf: Some(&tables::discovery_v1::ENDPOINT_SLICE),
    rules: Some(&EndpointSlice),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("AddressType", "What kind of addresses it holds."),
            Column::new("Ports", "Ports of every endpoint."),
            Column::new("Endpoints", "Addresses of the endpoints."),
            columns::AGE,
        ],
        cells: row,
        ..Table::PLAIN
    },
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports = items(object, "/ports").iter().map(|port| match port.get("port") {
        Some(Value::Number(port)) => port.to_string(),
        _ => "*".to_owned(),
    });
    let addresses = items(object, "/endpoints").iter().flat_map(|it| items(it, "/addresses"));
    let addresses = addresses.filter_map(Value::as_str).map(str::to_owned);
    vec![
        cells::name(object),
        text(object, "/addressType").into(),
        shown(&ports.collect::<Vec<_>>(), "<unset>").into(),
        shown(&addresses.collect::<Vec<_>>(), "<unset>").into(),
        cells::age(object, now),
    ]
}

struct EndpointSlice;

const TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];

/// The most endpoints of a slice, and addresses of an endpoint.
const ENDPOINTS: usize = 1000;
const ADDRESSES: usize = 100;

impl Kind for EndpointSlice {
    fn shape(&self) -> Shape {
        Shape { generation: Generation::Of("endpoints"), ..Shape::NAMESPACED }
    }

    fn default(&self, object: &mut Value) {
        for port in object.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            fill_text(port, "protocol", "TCP");
            fill(port, "name", "");
        }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let (kind, endpoints) = (object.get("addressType"), object.get("endpoints"));
        if kind.is_empty() {
            errors.push(kind.required(""));
        } else if !TYPES.contains(&kind.text()) {
            errors.push(kind.not_supported(TYPES));
        }
        if endpoints.len() > ENDPOINTS {
            let detail = format!("must have at most {ENDPOINTS} items");
            errors.push(endpoints.invalid_as(endpoints.len().to_string(), detail));
        }
        for endpoint in endpoints.items() {
            let addresses = endpoint.get("addresses");
            if addresses.is_empty() {
                errors.push(addresses.required("must contain at least 1 address"));
            }
            if addresses.len() > ADDRESSES {
                let detail = format!("must have at most {ADDRESSES} items");
                errors.push(addresses.invalid_as(addresses.len().to_string(), detail));
            }
            for address in addresses.items() {
                if kind.text() != "FQDN" {
                    check_address(address, errors);
                    let is_v6 = address.text().contains(':');
                    if is_v6 != (kind.text() == "IPv6") {
                        errors.push(address.invalid(format!("must be an {} address", kind.text())));
                    }
                }
            }
        }
        for port in object.get("ports").items() {
            check_port(port, errors);
        }
    }

    fn check_change(&self, new: Field<'_, '_>, old: Field<'_, '_>, errors: &mut ErrorList) {
        let kind = new.get("addressType");
        if !same(kind.value(), old.get("addressType").value()) {
            errors.push(kind.invalid("field is immutable"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::check_create;

    #[test]
    fn addresses_are_of_the_type() {
        let slice = |kind: &str, ip: &str| {
            json!({"metadata": {"name": "e", "namespace": "n"}, "addressType": kind,
                "endpoints": [{"addresses": [ip]}], "ports": [{"port": 80}]})
        };
        check_create(&EndpointSlice, &slice("IPv4", "192.0.2.1"), &[]);
        check_create(&EndpointSlice, &slice("FQDN", "a.example.com"), &[]);
        check_create(
            &EndpointSlice,
            &slice("IPv6", "192.0.2.1"),
            &["endpoints[0].addresses[0]: Invalid value: \"192.0.2.1\": must be an IPv6 address"],
        );
        check_create(&EndpointSlice, &slice("x", "192.0.2.1"), &["addressType: Unsupported"]);
    }
}
