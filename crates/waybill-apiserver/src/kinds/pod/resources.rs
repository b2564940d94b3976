//! What containers and whole pods ask for and may use.

use std::{cmp::Ordering, collections::BTreeMap};

use serde_json::{Value, json};
use waybill_api::{
    field::{ErrorList, FieldError, FieldPath},
    names::qualified_name_faults,
    quantity,
};

use waybill_core::quantity::Quantity;

use crate::kinds::document::{Field, member, text};

/// The `overhead` of a pod.
pub(super) fn check_overhead(overhead: Field<'_, '_>, errors: &mut ErrorList) {
    if overhead.is_set() {
        // Upstream judges it as limits, and says so.
        let limits = json!({"limits": overhead.value()});
        check_resources(overhead.holding(&limits), errors);
    }
}

/// The `resources` of the pod with this `spec`: the whole holds its parts.
pub(super) fn check_whole_pod(spec: Field<'_, '_>, errors: &mut ErrorList) {
    let whole = spec.get("resources");
    if whole.is_set() {
        check_whole(spec, whole, errors);
    }
}

/// Whether a pod as a whole can ask for it.
pub(super) fn is_of_whole_pods(name: &str) -> bool {
    WHOLE_POD.contains(&name) || name.starts_with("hugepages-")
}

/// What the containers of the pod with this `spec` request at the same time, at the most.
pub(super) fn container_requests(spec: &Value) -> BTreeMap<&str, Quantity> {
    let mut sidecars = BTreeMap::new();
    let mut most = BTreeMap::new();
    for container in member(spec, "initContainers").as_array().into_iter().flatten() {
        let mut running = sidecars.clone();
        add_requests(&mut running, container);
        if text(container, "restartPolicy") == "Always" {
            sidecars.clone_from(&running);
        }
        raise(&mut most, running);
    }
    let mut running = sidecars;
    for container in member(spec, "containers").as_array().into_iter().flatten() {
        add_requests(&mut running, container);
    }
    raise(&mut most, running);
    most
}

/// The `resources` of a container.
pub(super) fn check_resources(resources: Field<'_, '_>, errors: &mut ErrorList) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    for list in [limits, requests] {
        for (name, amount) in list.entries() {
            check_name(name, amount, errors);
            check_amount(name, amount, errors);
        }
    }
    for (name, request) in requests.entries() {
        check_request(name, request, requests, limits, errors);
    }
}

const WHOLE_POD: [&str; 2] = ["cpu", "memory"];
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("hugepages-")
}

/// Whether a node may promise more of it than it has.
fn is_overcommitted(name: &str) -> bool {
    STANDARD.contains(&name) || name.contains("kubernetes.io/")
}

fn check_whole(spec: Field<'_, '_>, whole: Field<'_, '_>, errors: &mut ErrorList) {
    let (limits, requests) = (whole.get("limits"), whole.get("requests"));
    if !whole.get("claims").is_empty() {
        let detail = "claims cannot be set for Resources at pod-level";
        errors.push(whole.get("claims").forbidden(detail));
    }
    for list in [limits, requests] {
        for (name, amount) in list.entries() {
            if !is_of_whole_pods(name) {
                errors.push(amount.invalid_choice(name, &WHOLE_POD));
            }
            check_amount(name, amount, errors);
        }
    }
    for (name, request) in requests.entries() {
        check_request(name, request, requests, limits, errors);
    }
    for (name, sum) in container_requests(spec.value()) {
        let request = requests.entries().find(|(of, _)| *of == name);
        let Some((_, request)) = request else { continue };
        if let Some(asked) = quantity::read(request.value()).ok().filter(|asked| *asked < sum) {
            errors.push(request.invalid_as(
                asked.to_string(),
                format!("must be greater than or equal to aggregate container requests of {sum}"),
            ));
        }
    }
    let containers = spec.get("containers");
    for (position, container) in containers.items().enumerate() {
        // The place is upstream's, below the resources of the pod.
        let place = whole.path().child("containers").index(position);
        check_limits_within(container, limits, &place, errors);
    }
}

fn check_limits_within(
    container: Field<'_, '_>,
    whole: Field<'_, '_>,
    place: &FieldPath,
    errors: &mut ErrorList,
) {
    let resources = container.get("resources");
    for (name, limit) in resources.get("limits").entries() {
        let most = quantity::read(whole.get(name).value());
        if let (Ok(limit), Ok(most)) = (quantity::read(limit.value()), most)
            && limit > most
        {
            let detail = format!("must be less than or equal to pod limits of {most}");
            let place = place.key(name).child("limits");
            errors.push(FieldError::invalid(place, limit.to_string(), detail));
        }
    }
}

fn add_requests<'v>(sum: &mut BTreeMap<&'v str, Quantity>, container: &'v Value) {
    let requests = member(member(container, "resources"), "requests");
    for (name, amount) in requests.as_object().into_iter().flatten() {
        let amount = quantity::read(amount).unwrap_or_default();
        let sum = sum.entry(name).or_default();
        *sum = sum.saturating_add(amount);
    }
}

fn raise<'v>(most: &mut BTreeMap<&'v str, Quantity>, to: BTreeMap<&'v str, Quantity>) {
    for (name, amount) in to {
        let most = most.entry(name).or_insert(amount);
        *most = amount.max(*most);
    }
}

fn check_name(name: &str, amount: Field<'_, '_>, errors: &mut ErrorList) {
    for fault in qualified_name_faults(name) {
        errors.push(amount.invalid_as(name, fault));
    }
    if !name.contains('/') && !is_standard(name) {
        errors.push(amount.invalid_as(name, "must be a standard resource type or fully qualified"));
        errors.push(amount.invalid_as(name, "must be a standard resource for containers"));
    }
}

fn check_amount(name: &str, amount: Field<'_, '_>, errors: &mut ErrorList) {
    match quantity::read(amount.value()) {
        Err(error) => errors.push(amount.invalid(error.to_string())),
        Ok(quantity) if quantity.is_negative() => {
            errors.push(amount.invalid("must be greater than or equal to 0"));
        }
        Ok(quantity) if !is_overcommitted(name) && !quantity.is_whole() => {
            errors.push(amount.invalid("must be an integer"));
        }
        Ok(_) => {}
    }
}

/// A request stays below its limit, and is equal to it where nothing can be overcommitted.
fn check_request(
    name: &str,
    request: Field<'_, '_>,
    requests: Field<'_, '_>,
    limits: Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let limit = limits.get(name);
    if !limit.is_set() {
        if !is_overcommitted(name) {
            let detail = "Limit must be set for non overcommitable resources";
            errors.push(limits.required(detail));
        }
        return;
    }
    let (Ok(asked), Ok(allowed)) = (quantity::read(request.value()), quantity::read(limit.value()))
    else {
        return;
    };
    let relation = match asked.cmp(&allowed) {
        Ordering::Equal => return,
        Ordering::Less | Ordering::Greater if !is_overcommitted(name) => "equal to",
        Ordering::Less => return,
        Ordering::Greater => "less than or equal to",
    };
    let detail = format!("must be {relation} {name} limit of {allowed}");
    errors.push(FieldError::invalid(requests.path(), asked.to_string(), detail));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{pod::testing::check_spec, testing::check_errors};

    #[track_caller]
    fn check(resources: &Value, expected: &[&str]) {
        let mut errors = ErrorList::new();
        check_resources(Field::root(resources), &mut errors);
        check_errors(&errors, expected);
    }

    #[test]
    fn requests_stay_within_limits() {
        check(&json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}), &[]);
        check(&json!({"requests": {"cpu": 0.5}, "limits": {"cpu": 1, "memory": "1Gi"}}), &[]);
        check(
            &json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}}),
            &["requests: Invalid value: \"1Gi\": must be less than or equal to memory limit of 1G"],
        );
    }

    #[test]
    fn amounts_parse_and_are_positive() {
        check(
            &json!({"limits": {"cpu": "-1"}}),
            &["limits[cpu]: Invalid value: \"-1\": must be gr"],
        );
        check(
            &json!({"limits": {"cpu": "x"}}),
            &["limits[cpu]: Invalid value: \"x\": quantities mu"],
        );
        check(
            &json!({"limits": {"cpu": "1x"}}),
            &["limits[cpu]: Invalid value: \"1x\": quantities mu"],
        );
    }

    #[test]
    fn overhead_is_an_amount_of_resources() {
        check_spec(&json!({"overhead": {"cpu": "100m"}}), &[]);
        check_spec(
            &json!({"overhead": {"cpu": "-1", "gpu": "1"}}),
            &[
                "spec.overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal",
                "spec.overhead.limits[gpu]: Invalid value: \"gpu\": must be a standard resource t",
                "spec.overhead.limits[gpu]: Invalid value: \"gpu\": must be a standard resource f",
            ],
        );
    }

    #[test]
    fn the_whole_pod_holds_its_containers() {
        let container = |name: &str, resources: Value| json!({"name": name, "image": "i", "resources": resources});
        let two = json!([
            container("a", json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})),
            container("b", json!({"requests": {"cpu": "500m"}})),
        ]);
        check_spec(
            &json!({"containers": two, "resources": {
                "requests": {"cpu": "1500m"}, "limits": {"cpu": "2", "memory": "1Gi"}}}),
            &[],
        );
        let mut two = two;
        two[0]["resources"]["claims"] = json!([{"name": "y"}]);
        check_spec(
            &json!({"containers": two, "resources": {
                "requests": {"cpu": "1"}, "limits": {"cpu": "1", "ephemeral-storage": "1Gi"},
                "claims": [{"name": "x"}]}}),
            &[
                "spec.containers[0].resources.claims[0].name: Not found: \"y\"",
                "spec.resources.claims: Forbidden: claims cannot be set for Resources at pod-level",
                "spec.resources.limits[ephemeral-storage]: Unsupported value: \"ephemeral-storage\"",
                "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal \
                 to aggregate container requests of 1500m",
                "spec.resources.containers[0][cpu].limits: Invalid value: \"2\": must be less than \
                 or equal to pod limits of 1",
            ],
        );
        check_spec(
            &json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
            &["spec.resources.requests: Invalid value: \"2\": must be less than or equal to cpu"],
        );
    }

    #[test]
    fn init_containers_request_one_after_another() {
        let of = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = of("1");
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({"initContainers": [of("2"), sidecar, of("2")], "containers": [of("1")]});
        assert_eq!(container_requests(&spec)["cpu"].to_string(), "3");
    }

    #[test]
    fn other_resources_have_a_domain_and_are_not_overcommitted() {
        check(
            &json!({"limits": {"gpu": "1"}}),
            &[
                "limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully",
                "limits[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
            ],
        );
        check(
            &json!({"limits": {"a.com/gpu": "500m"}}),
            &["limits[a.com/gpu]: Invalid value: \"5"],
        );
        check(&json!({"requests": {"a.com/gpu": "1"}}), &["limits: Required value: Limit must be"]);
        check(
            &json!({"requests": {"a.com/gpu": "1"}, "limits": {"a.com/gpu": "2"}}),
            &["requests: Invalid value: \"1\": must be equal to a.com/gpu limit of 2"],
        );
    }
}
