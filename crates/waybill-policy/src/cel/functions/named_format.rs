//! Kubernetes' own rules for names, as values: `format.dns1123Label().validate(x)`.

use waybill_api::names::{
    label_faults, label_value_faults, qualified_name_faults, subdomain_faults,
};

use super::{Function, Outcome, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{Library, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("format.named", 1, Type::Optional, named).on(&[Type::String]),
    Function::global("format.dns1123Label", 0, FORMAT, dns1123_label),
    Function::global("format.dns1123Subdomain", 0, FORMAT, dns1123_subdomain),
    Function::global("format.qualifiedName", 0, FORMAT, qualified_name),
    Function::global("format.labelValue", 0, FORMAT, label_value),
    Function::member("validate", 2, Type::Optional, validate).on(&[FORMAT]),
];

const FORMAT: Type = Type::Library("kubernetes.NamedFormat");

/// A rule for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedFormat {
    /// A DNS label.
    Dns1123Label,
    /// A DNS subdomain.
    Dns1123Subdomain,
    /// A key of a label.
    QualifiedName,
    /// A value of a label.
    LabelValue,
}

fn wrap<'a>(format: NamedFormat) -> Value<'a> {
    Value::Library(Library::Format(format))
}

fn named<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(name)] = values else { return unfit() };
    let found = match &**name {
        "dns1123Label" => Some(NamedFormat::Dns1123Label),
        "dns1123Subdomain" => Some(NamedFormat::Dns1123Subdomain),
        "qualifiedName" => Some(NamedFormat::QualifiedName),
        "labelValue" => Some(NamedFormat::LabelValue),
        _ => None,
    };
    Ok(found.map_or(Value::Optional(None), |format| Value::some(wrap(format))))
}

fn dns1123_label<'a>(_: &mut Budget, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(wrap(NamedFormat::Dns1123Label))
}

fn dns1123_subdomain<'a>(_: &mut Budget, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(wrap(NamedFormat::Dns1123Subdomain))
}

fn qualified_name<'a>(_: &mut Budget, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(wrap(NamedFormat::QualifiedName))
}

fn label_value<'a>(_: &mut Budget, _: &[Value<'a>]) -> Outcome<'a> {
    Ok(wrap(NamedFormat::LabelValue))
}

/// What is wrong with the text; nothing if it passes.
fn validate<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Format(format)), Value::String(text)] = values else {
        return unfit();
    };
    budget.charge_bytes(text.len())?;
    let faults = match format {
        NamedFormat::Dns1123Label => label_faults(text),
        NamedFormat::Dns1123Subdomain => subdomain_faults(text),
        NamedFormat::QualifiedName => qualified_name_faults(text),
        NamedFormat::LabelValue => label_value_faults(text),
    };
    if faults.is_empty() {
        return Ok(Value::Optional(None));
    }
    Ok(Value::some(Value::list(faults.into_iter().map(Value::text).collect())?))
}
