//! Services, as objects: nothing here gives them addresses or carries their traffic.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use waybill_api::{field::ErrorList, names::label_faults};

use super::{
    Context, Kind, NameRule, Shape, Status,
    document::{Field, fill, fill_text, put},
    meta,
};
use crate::{
    document::{items, text},
    patch::schema as patch,
    protobuf::tables,
    registry::{Resource, Subresource},
    schema::{self, KindSchema},
    selector::supported::{self, Source},
    table::{
        Table, cells,
        columns::{self, Column},
    },
};

static SCHEMAS: [KindSchema; 2] = schema::of::<k8s_openapi::api::core::v1::Service>();

pub(crate) static SERVICES: Resource = Resource {
    plural: "services",
    singular: "service",
    kind: "Service",
    short_names: &["svc"],
    categories: &["all"],
    subresources: &[Subresource::STATUS],
    schemas: &SCHEMAS,
    protobuf: Some(&tables::core_v1::SERVICE),
    rules: Some(&Service),
    table: Table {
        columns: &[
            columns::NAME,
            Column::new("Type", "How the service can be reached."),
            Column::new("Cluster-IP", "Its address inside the cluster."),
            Column::new("External-IP", "Its addresses outside the cluster."),
            Column::new("Port(s)", "Its ports."),
            columns::AGE,
            Column::new("Selector", "The labels of its pods.").wide(),
        ],
        cells: row,
        ..Table::PLAIN
    },
    fields: &[
        supported::NAME,
        supported::NAMESPACE,
        ("spec.clusterIP", Source::Text(&["/spec/clusterIP"])),
        ("spec.type", Source::Text(&["/spec/type"])),
    ],
    patch: patch::core_v1::SERVICE,
    ..Resource::BASE
};

fn row(object: &Value, now: Timestamp) -> Vec<Value> {
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let port = |port: &Value| {
        let number = |field: &str| port.get(field).and_then(Value::as_i64);
        let (own, protocol) = (number("port").unwrap_or_default(), text(port, "/protocol"));
        match number("nodePort").filter(|&port| port > 0) {
            Some(node) => format!("{own}:{node}/{protocol}"),
            None => format!("{own}/{protocol}"),
        }
    };
    let ports: Vec<_> = items(object, "/spec/ports").iter().map(port).collect();
    let outside = match text(object, "/spec/type") {
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ => {
            let ips = items(object, "/spec/externalIPs").iter().filter_map(Value::as_str);
            ips.collect::<Vec<_>>().join(",")
        }
    };
    let selector = object.pointer("/spec/selector").and_then(Value::as_object);
    let selector: Vec<_> = selector
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    vec![
        cells::name(object),
        text(object, "/spec/type").into(),
        or_none(text(object, "/spec/clusterIP").to_owned()).into(),
        or_none(outside).into(),
        or_none(ports.join(",")).into(),
        cells::age(object, now),
        or_none(selector.join(",")).into(),
    ]
}

struct Service;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

impl Kind for Service {
    fn shape(&self) -> Shape {
        Shape { names: NameRule::Label, status: Status::Subresource, ..Shape::NAMESPACED }
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
        fill_text(spec, "type", "ClusterIP");
        fill_text(spec, "sessionAffinity", "None");
        if text(spec, "/type") != "ExternalName" {
            fill_text(spec, "internalTrafficPolicy", "Cluster");
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            fill_text(port, "protocol", "TCP");
            if let Some(own) = port.get("port").cloned() {
                fill(port, "targetPort", own);
            }
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        meta::prepare_create(self.shape(), object);
        put(object, "status", json!({"loadBalancer": {}}));
    }

    fn check(&self, object: Field<'_, '_>, _context: &Context, errors: &mut ErrorList) {
        let spec = object.get("spec");
        let (kind, ports, address) = (spec.get("type"), spec.get("ports"), spec.get("clusterIP"));
        if !TYPES.contains(&kind.text()) {
            errors.push(kind.not_supported(TYPES));
        }
        let has_ports = kind.text() == "ExternalName" || address.text() == "None";
        if ports.is_empty() && !has_ports {
            errors.push(ports.required(""));
        }
        if kind.text() == "ExternalName" && spec.get("externalName").is_empty() {
            errors.push(spec.get("externalName").required(""));
        }
        let is_address = matches!(address.text(), "" | "None")
            || address.text().parse::<std::net::IpAddr>().is_ok();
        if !is_address {
            errors.push(address.invalid("must be empty, 'None', or a valid IP address"));
        }
        let affinity = spec.get("sessionAffinity");
        if !["ClientIP", "None"].contains(&affinity.text()) {
            errors.push(affinity.not_supported(&["ClientIP", "None"]));
        }
        check_ports(ports, errors);
        meta::check_labels(spec.get("selector"), errors);
    }
}

fn check_ports(ports: Field<'_, '_>, errors: &mut ErrorList) {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for port in ports.items() {
        let (name, number, protocol) = (port.get("name"), port.get("port"), port.get("protocol"));
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(name.required(""));
            }
        } else {
            errors.extend(name.all_invalid(label_faults(name.text())));
            if !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
        let target = port.get("targetPort");
        for number in [number, target] {
            if number.number().is_some_and(|number| !(1..=65_535).contains(&number)) {
                errors.push(number.invalid("must be between 1 and 65535, inclusive"));
            }
        }
        if !PROTOCOLS.contains(&protocol.text()) {
            errors.push(protocol.not_supported(PROTOCOLS));
        }
        if !numbers.insert((protocol.text(), number.number())) {
            errors.push(port.duplicate());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::{check_create, defaulted};

    fn service(spec: &Value) -> Value {
        json!({"metadata": {"name": "s", "namespace": "n"}, "spec": spec})
    }

    #[test]
    fn ports_are_filled_in_and_told_apart() {
        let filled = defaulted(&Service, &service(&json!({"ports": [{"port": 80}]})));
        assert_eq!(filled["spec"]["ports"][0]["targetPort"], 80);
        assert_eq!(filled["spec"]["type"], "ClusterIP");
        check_create(&Service, &service(&json!({"ports": [{"port": 80}]})), &[]);
        check_create(&Service, &service(&json!({})), &["spec.ports: Required value"]);
        check_create(&Service, &service(&json!({"clusterIP": "None"})), &[]);
        check_create(
            &Service,
            &service(&json!({"ports": [{"port": 0, "name": "a"}, {"port": 80}]})),
            &[
                "spec.ports[0].port: Invalid value: 0",
                "spec.ports[0].targetPort: Invalid",
                "spec.ports[1].name: Required",
            ],
        );
    }
}
