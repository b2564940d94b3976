//! How a pod resolves names.

use waybill_api::{field::ErrorList, names::subdomain_faults};

use super::spec::{check_choice, check_ip};
use crate::kinds::document::Field;

/// The `dnsPolicy` of a pod.
pub(super) fn check_policy(policy: Field<'_, '_>, errors: &mut ErrorList) {
    check_choice(policy, &POLICIES, errors);
}

/// The `dnsConfig` of the pod with this `spec`.
pub(super) fn check_config(spec: Field<'_, '_>, errors: &mut ErrorList) {
    let config = spec.get("dnsConfig");
    let servers = config.get("nameservers");
    if spec.get("dnsPolicy").text() == "None" {
        if !config.is_set() {
            errors.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(servers.required(detail));
            return;
        }
    }
    if servers.len() > MAX_NAMESERVERS {
        errors.push(servers.invalid("must not have more than 3 nameservers"));
    }
    for server in servers.items() {
        check_ip(server, errors);
    }
    check_searches(config.get("searches"), errors);
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            errors.push(option.required("must not be empty"));
        }
    }
}

const POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_BYTES: usize = 2048;

fn check_searches(searches: Field<'_, '_>, errors: &mut ErrorList) {
    if searches.len() > MAX_SEARCHES {
        errors.push(searches.invalid("must not have more than 32 search paths"));
    }
    let bytes: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if bytes > MAX_SEARCH_BYTES + 1 {
        let detail =
            "must not have more than 2048 characters (including spaces) in the search list";
        errors.push(searches.invalid(detail));
    }
    for search in searches.items() {
        let name = search.text();
        let name = if name == "." { "root" } else { name.strip_suffix('.').unwrap_or(name) };
        // An underscore may lead each part and stand within it, as in names of services.
        let parts = name.split('.').map(|part| part.strip_prefix('_').unwrap_or(part));
        let plain = parts.collect::<Vec<_>>().join(".").replace('_', "-");
        errors.extend(search.all_invalid(subdomain_faults(&plain)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::check_spec;

    #[track_caller]
    fn check(config: &Value, expected: &[&str]) {
        check_spec(&json!({"dnsConfig": config}), expected);
    }

    #[test]
    fn own_dns_needs_a_server() {
        check_spec(
            &json!({"dnsPolicy": "None"}),
            &["spec.dnsConfig: Required value: must provide `dns"],
        );
        check_spec(
            &json!({"dnsPolicy": "None", "dnsConfig": {}}),
            &[
                "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver",
            ],
        );
        check(
            &json!({"nameservers": ["1.1.1.1", "x"]}),
            &["spec.dnsConfig.nameservers[1]: Invalid value: \"x\": must be a valid IP address, ("],
        );
    }

    #[test]
    fn searches_are_names_and_not_too_many() {
        check(
            &json!({"searches": [".", "a.b.", "_tcp.my_db"], "options": [{"name": "ndots"}]}),
            &[],
        );
        check(
            &json!({"searches": ["A", "a..b"], "options": [{"value": "5"}]}),
            &[
                "spec.dnsConfig.searches[0]: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
                "spec.dnsConfig.searches[1]: Invalid value: \"a..b\": a lowercase RFC 1123 subdom",
                "spec.dnsConfig.options[0]: Required value: must not be empty",
            ],
        );
        check(
            &json!({"searches": vec!["a"; 33]}),
            &["spec.dnsConfig.searches: Invalid value: [\"a\",\"a\""],
        );
        check(&json!({"searches": vec!["a".repeat(63); 32]}), &[]);
        let long = format!("{}.{}", "a".repeat(60), "b".repeat(60));
        check(
            &json!({"searches": vec![long; 17]}),
            &["spec.dnsConfig.searches: Invalid value: [\"a"],
        );
    }
}
