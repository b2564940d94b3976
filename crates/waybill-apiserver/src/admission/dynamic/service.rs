//! Where a service can be reached: one of its endpoints, or its own address if it has any.
//!
//! The server is no part of the cluster's network unless its machine is, so this is for those who run it
//! where their pods' addresses are known; others name a URL.

use serde_json::Value;

use crate::{
    cache::ObjectKey,
    document::{at, items, metadata, text},
    kinds::{endpoint_slice::ENDPOINT_SLICES, service::SERVICES},
    objects::Objects,
};

/// Why a service cannot be reached; upstream's texts where it has some.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error("this server keeps no services; name the webhook by clientConfig.url")]
    NotServed,
    #[error("service {0:?} not found")]
    NotFound(String),
    #[error("no service port {port} found for service {name:?}")]
    NoPort { name: String, port: u16 },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
}

/// A host and port behind port `port` of a service.
pub(super) fn resolve(
    objects: &Objects,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<String, ServiceError> {
    let services = objects.cache(&SERVICES).ok_or(ServiceError::NotServed)?;
    let service = services
        .get(&ObjectKey::new(namespace, name))
        .ok_or_else(|| ServiceError::NotFound(name.to_owned()))?
        .document();
    let slices = objects
        .cache(&ENDPOINT_SLICES)
        .map(|cache| cache.list(namespace, None, usize::MAX, |_| true).objects)
        .unwrap_or_default();
    let slices: Vec<_> = slices
        .iter()
        .map(|slice| slice.document())
        .filter(|slice| at(slice, "/metadata/labels/kubernetes.io~1service-name") == name)
        .collect();
    choose(&service, &slices, port)
}

fn choose(service: &Value, slices: &[Value], port: u16) -> Result<String, ServiceError> {
    let name = metadata(service, "name");
    if at(service, "/spec/type") == "ExternalName" {
        let host = at(service, "/spec/externalName").as_str().unwrap_or_default();
        return Ok(format!("{host}:{port}"));
    }
    let found = items(service, "/spec/ports").iter().find(|own| at(own, "/port") == port);
    let Some(found) = found else {
        return Err(ServiceError::NoPort { name: name.to_owned(), port });
    };
    let port_name = text(found, "/name");
    for slice in slices {
        let named = items(slice, "/ports").iter().find(|own| text(own, "/name") == port_name);
        let Some(target) = named.and_then(|own| at(own, "/port").as_u64()) else { continue };
        // Not said means ready.
        let ready =
            items(slice, "/endpoints").iter().find(|own| at(own, "/conditions/ready") != false);
        if let Some(address) = ready.and_then(|own| at(own, "/addresses/0").as_str()) {
            return Ok(joined(address, target));
        }
    }
    match at(service, "/spec/clusterIP").as_str() {
        None | Some("" | "None") => Err(ServiceError::NoEndpoints(name.to_owned())),
        Some(address) => Ok(joined(address, port.into())),
    }
}

fn joined(address: &str, port: u64) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "literals of JSON read better without references"
    )]
    fn service(spec: Value) -> Value {
        json!({"metadata": {"name": "hook"}, "spec": spec})
    }

    #[test]
    fn an_endpoint_that_is_ready_is_dialled_at_its_own_port() {
        let service =
            service(json!({"clusterIP": "10.0.0.1", "ports": [{"name": "https", "port": 443}]}));
        let slice = json!({
            "ports": [{"name": "other", "port": 1}, {"name": "https", "port": 8443}],
            "endpoints": [
                {"addresses": ["127.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["127.0.0.3"]},
            ],
        });
        assert_eq!(choose(&service, std::slice::from_ref(&slice), 443).unwrap(), "127.0.0.3:8443");
        assert_eq!(choose(&service, &[], 443).unwrap(), "10.0.0.1:443");
        let error = choose(&service, &[slice], 80).unwrap_err();
        assert_eq!(error.to_string(), "no service port 80 found for service \"hook\"");
    }

    #[test]
    fn a_service_without_endpoints_or_address_cannot_be_reached() {
        let service = service(json!({"clusterIP": "None", "ports": [{"port": 443}]}));
        let error = choose(&service, &[], 443).unwrap_err();
        assert_eq!(error.to_string(), "no endpoints available for service \"hook\"");
    }

    #[test]
    fn external_names_are_dialled_as_they_are() {
        let service = service(json!({"type": "ExternalName", "externalName": "hook.example"}));
        assert_eq!(choose(&service, &[], 443).unwrap(), "hook.example:443");
    }
}
