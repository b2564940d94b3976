//! Claims on devices: what a pod claims, and which containers use it.

use std::collections::BTreeSet;

use waybill_api::{
    field::{ErrorList, FieldError},
    names::{label_faults, subdomain_faults},
};

use crate::kinds::document::Field;

/// The `resourceClaims` of a pod.
pub(super) fn check_claims(claims: Field<'_, '_>, errors: &mut ErrorList) {
    let mut names = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if names.insert(name.text()) {
            errors.extend(name.all_invalid(label_faults(name.text())));
        } else {
            errors.push(name.duplicate());
        }
        let (own, template) =
            (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        let detail = match (own.is_set(), template.is_set()) {
            (true, true) => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            (false, false) => {
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            }
            (true, false) | (false, true) => "",
        };
        if !detail.is_empty() {
            errors.push(claim.invalid(detail));
        }
        for reference in [own, template] {
            if reference.is_set() {
                errors.extend(reference.all_invalid(subdomain_faults(reference.text())));
            }
        }
    }
}

/// The claims of the pod with this `spec` that `container` uses.
pub(super) fn check_uses(spec: Field<'_, '_>, container: Field<'_, '_>, errors: &mut ErrorList) {
    let claims = spec.get("resourceClaims");
    let resources = container.get("resources");
    let mut seen = BTreeSet::new();
    for used in resources.get("claims").items() {
        let name = used.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
            continue;
        }
        if !seen.insert((name.text(), used.get("request").text())) {
            errors.push(FieldError::duplicate(used.path(), name.text()));
        }
        if claims.items().all(|claim| claim.get("name").text() != name.text()) {
            errors.push(name.not_found());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::check_spec;

    #[test]
    fn claims_are_named_once_and_lead_somewhere() {
        let container = json!({"name": "c", "image": "i",
            "resources": {"claims": [{"name": "a"}, {"name": "a"}, {}]}});
        check_spec(
            &json!({"containers": [container], "resourceClaims": [
                {"name": "a", "resourceClaimName": "x"},
                {"name": "a", "resourceClaimTemplateName": "X"},
                {"resourceClaimName": "x", "resourceClaimTemplateName": "y"},
                {"name": "b"}]}),
            &[
                "spec.resourceClaims[1].name: Duplicate value: \"a\"",
                "spec.resourceClaims[1].resourceClaimTemplateName: Invalid value: \"X\": a lowerc",
                "spec.resourceClaims[2].name: Required value",
                "spec.resourceClaims[2]: Invalid value: {",
                "spec.resourceClaims[3]: Invalid value: {",
                "spec.containers[0].resources.claims[1]: Duplicate value: \"a\"",
                "spec.containers[0].resources.claims[2].name: Required value",
            ],
        );
    }
}
