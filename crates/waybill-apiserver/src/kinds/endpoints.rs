//! Endpoints: where the pods of a service are, in the old form.

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::field::ErrorList;

use super::{
    Context, Kind, Shape,
    document::{Field, fill_text},
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

static SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::core::v1::Endpoints>();

pub(crate) static ENDPOINTS: Resource = Resource {
    plural: "endpoints",
    singular: "endpoints",
    kind: "Endpoints",
    short_names: &["ep"],
    schemas: &SCHEMAS,
    protobuf: Some(&tables::core_v1::ENDPOINTS),
    rules: Some(&Endpoints),
    table: Table {
        columns: &[columns::NAME, Column::new("Endpoints", "Addresses and ports."), columns::AGE],
        cells: row,
        ..Table::PLAIN
    },
    ..Resource::BASE
};

/// No more addresses are shown.
const SHOWN: usize = 3;

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in items(object, "/subsets") {
        for address in items(subset, "/addresses") {
            let ip = text(address, "/ip");
            let ports =
                items(subset, "/ports").iter().filter_map(|port| port.get("port")?.as_u64());
            let with_port = |port: u64| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            };
            let before = all.len();
            all.extend(ports.map(with_port));
            if all.len() == before {
                all.push(ip.to_owned());
            }
        }
    }
    vec![cells::name(object), shown(&all, "<none>").into(), cells::age(object, now)]
}

/// The first few of `all`.
pub(super) fn shown(all: &[String], none: &str) -> String {
    let first: Vec<_> = all.iter().take(SHOWN).map(String::as_str).collect();
    match all.len() {
        0 => none.to_owned(),
        count if count > SHOWN => format!("{} + {} more...", first.join(","), count - SHOWN),
        _ => first.join(","),
    }
}

struct Endpoints;

impl Kind for Endpoints {
    fn shape(&self) -> Shape {
        Shape::NAMESPACED
    }

    fn default(&self, object: &mut Value) {
        for subset in object.get_mut("subsets").and_then(Value::as_array_mut).into_iter().flatten()
        {
            for port in subset.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten()
            {
                fill_text(port, "protocol", "TCP");
            }
        }
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        for subset in object.get("subsets").items() {
            let (ready, waiting) = (subset.get("addresses"), subset.get("notReadyAddresses"));
            if ready.is_empty() && waiting.is_empty() {
                errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
            }
            for address in ready.items().chain(waiting.items()) {
                check_address(address.get("ip"), errors);
            }
            for port in subset.get("ports").items() {
                check_port(port, errors);
            }
        }
    }
}

/// An address of a pod or a machine. Those that mean whoever asks lead into the asker.
pub(super) fn check_address(ip: Field<'_, '_>, errors: &mut ErrorList) {
    match ip.text().parse::<std::net::IpAddr>() {
        Err(_) => errors
            .push(ip.invalid_text("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")),
        Ok(found) => {
            let faults = [
                (found.is_unspecified(), "may not be unspecified"),
                (found.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
                (found.is_multicast(), "may not be in the multicast range"),
                (
                    is_link_local(found),
                    "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
                ),
            ];
            errors.extend(faults.iter().filter(|fault| fault.0).map(|fault| ip.invalid(fault.1)));
        }
    }
}

fn is_link_local(address: std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(address) => address.is_link_local(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

pub(super) fn check_port(port: Field<'_, '_>, errors: &mut ErrorList) {
    let (number, protocol) = (port.get("port"), port.get("protocol"));
    if number.number().is_some_and(|number| !(1..=65_535).contains(&number)) {
        errors.push(number.invalid("must be between 1 and 65535, inclusive"));
    }
    let protocols = &["SCTP", "TCP", "UDP"];
    if !protocols.contains(&protocol.text()) {
        errors.push(protocol.not_supported(protocols));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::check_create;

    #[test]
    fn addresses_are_those_of_others() {
        let endpoints = |ip: &str| {
            json!({"metadata": {"name": "e", "namespace": "n"}, "subsets": [
                {"addresses": [{"ip": ip}], "ports": [{"port": 80}]},
            ]})
        };
        check_create(&Endpoints, &endpoints("192.0.2.1"), &[]);
        for ip in ["127.0.0.1", "169.254.0.1", "x"] {
            let expected = format!("subsets[0].addresses[0].ip: Invalid value: {ip:?}: ");
            check_create(&Endpoints, &endpoints(ip), &[&expected]);
        }
    }
}
