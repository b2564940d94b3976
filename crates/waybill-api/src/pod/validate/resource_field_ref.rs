//! `resourceFieldRef`: a limit or request as the value of a variable.

use waybill_core::quantity::Quantity;

use crate::{
    field::{ErrorList, FieldError, FieldPath},
    pod::ResourceFieldSelector,
};

/// Checks the reference that stands at `path`.
pub(super) fn check(reference: &ResourceFieldSelector, path: &FieldPath, errors: &mut ErrorList) {
    let resource = &*reference.resource;
    if resource.is_empty() {
        errors.push(FieldError::required(path.child("resource"), ""));
        return;
    }
    let Some(family) = Family::of(resource) else {
        errors.push(FieldError::not_supported(path.child("resource"), resource, RESOURCES));
        return;
    };
    if !family.allows(reference.divisor) {
        // The value that upstream shows is the resource, not the divisor.
        errors.push(FieldError::invalid(path.child("divisor"), resource, family.divisor_rule()));
    }
}

/// Resources that share their divisors.
#[derive(Clone, Copy)]
enum Family {
    Cpu,
    EphemeralStorage,
    HugePages,
    Memory,
}

impl Family {
    fn of(resource: &str) -> Option<Self> {
        let name =
            resource.strip_prefix("limits.").or_else(|| resource.strip_prefix("requests."))?;
        match name {
            "cpu" => Some(Self::Cpu),
            "ephemeral-storage" => Some(Self::EphemeralStorage),
            "memory" => Some(Self::Memory),
            _ => name.starts_with("hugepages-").then_some(Self::HugePages),
        }
    }

    /// Whether `divisor` is one of the units, in whatever words; `1024Ki` is `1Mi`.
    fn allows(self, divisor: Quantity) -> bool {
        let units = match self {
            Self::Cpu => CPU_UNITS,
            Self::EphemeralStorage | Self::HugePages | Self::Memory => BYTE_UNITS,
        };
        divisor.is_zero() || units.contains(&&*divisor.to_string())
    }

    fn divisor_rule(self) -> String {
        let noun = match self {
            Self::Cpu => {
                return "only divisor's values 1m and 1 are supported with the cpu resource".into();
            }
            Self::EphemeralStorage => "local ephemeral storage",
            Self::HugePages => "hugepages",
            Self::Memory => "memory",
        };
        let units = BYTE_UNITS.join(", ");
        format!("only divisor's values {units} are supported with the {noun} resource")
    }
}

const CPU_UNITS: &[&str] = &["1m", "1"];

const BYTE_UNITS: &[&str] =
    &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Sorted, as upstream lists them; huge pages are allowed as well but not listed.
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::validate::testing::check_source;

    #[track_caller]
    fn check(resource: &str, divisor: impl Into<Value>, expected: &[&str]) {
        let reference = json!({"resource": resource, "divisor": divisor.into()});
        check_source(&json!({"resourceFieldRef": reference}), expected);
    }

    #[test]
    fn limits_and_requests_can_be_variables() {
        for resource in RESOURCES {
            check(resource, Value::Null, &[]);
            check(resource, "0", &[]);
            check(resource, 1, &[]);
        }
        check("limits.hugepages-2Mi", Value::Null, &[]);
        check("requests.hugepages-1Gi", Value::Null, &[]);
    }

    #[test]
    fn the_resource_is_required_and_one_of_a_list() {
        check("", "7", &["resourceFieldRef.resource: Required value"]);
        for other in ["cpu", "limits.", "limits.gpu", "Limits.cpu", "hugepages-2Mi", "limits.CPU"] {
            check(
                other,
                "7",
                &[&format!(
                    "resourceFieldRef.resource: Unsupported value: \"{other}\": supported values: \
                 \"limits.cpu\", \"limits.ephemeral-storage\", \"limits.memory\", \
                 \"requests.cpu\", \"requests.ephemeral-storage\", \"requests.memory\""
                )],
            );
        }
    }

    #[test]
    fn cpu_is_divided_by_one_or_a_thousandth() {
        for resource in ["limits.cpu", "requests.cpu"] {
            check(resource, "1m", &[]);
            check(resource, "1", &[]);
            check(resource, "1000m", &[]);
            check(resource, 0.001, &[]);
            for bad in ["10m", "1k", "1Ki", "2", "-1"] {
                check(
                    resource,
                    bad,
                    &[&format!(
                        "resourceFieldRef.divisor: Invalid value: \"{resource}\": only divisor's \
                     values 1m and 1 are supported with the cpu resource"
                    )],
                );
            }
        }
    }

    #[test]
    fn bytes_are_divided_by_decimal_and_binary_units() {
        for (resource, noun) in [
            ("limits.memory", "memory"),
            ("requests.memory", "memory"),
            ("limits.ephemeral-storage", "local ephemeral storage"),
            ("requests.ephemeral-storage", "local ephemeral storage"),
            ("limits.hugepages-2Mi", "hugepages"),
            ("requests.hugepages-2Mi", "hugepages"),
        ] {
            for unit in BYTE_UNITS {
                check(resource, *unit, &[]);
            }
            for other in ["1024Ki", "1000", "10e-1", "0.9765625Ki"] {
                check(resource, other, &[]);
            }
            for bad in ["1m", "2Mi", "1024", "1000Ki", "0.5Ki", "-1", "1e3"] {
                check(
                    resource,
                    bad,
                    &[&format!(
                        "resourceFieldRef.divisor: Invalid value: \"{resource}\": only divisor's \
                     values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are \
                     supported with the {noun} resource",
                    )],
                );
            }
        }
    }
}
