//! Which CSI drivers of a node can fetch variables (OP-43).
//!
//! A `CSINode` lists the drivers that have registered at its node. Few of them fetch variables, so the
//! node says in an annotation which ones do, and a driver counts only if both say so.

use std::collections::BTreeSet;

use serde_json::Value;
use waybill_api::node::ENV_DRIVERS;

use super::pod::Pod;
use crate::document::{at, items, text};

/// The drivers of one node that fetch variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Drivers(BTreeSet<String>);

impl Drivers {
    /// Reads a `v1.CSINode`.
    pub(super) fn read(object: &Value) -> Self {
        let annotation = at(object, "/metadata/annotations").get(ENV_DRIVERS);
        let able = annotation.and_then(Value::as_str).unwrap_or_default();
        let registered: BTreeSet<_> =
            items(object, "/spec/drivers").iter().map(|driver| text(driver, "/name")).collect();
        let able = able.split(',').map(str::trim).filter(|name| registered.contains(name));
        Self(able.map(str::to_owned).collect())
    }

    /// The drivers that `pod` needs and that are not here.
    pub(super) fn missing<'p>(&self, pod: &'p Pod) -> impl Iterator<Item = &'p str> {
        pod.csi_drivers.iter().filter(|name| !self.0.contains(*name)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(annotation: &Value, registered: &[&str], expected: &[&str]) {
        let drivers: Vec<_> = registered.iter().map(|name| json!({"name": name})).collect();
        let object = json!({
            "metadata": {"annotations": {ENV_DRIVERS: annotation}}, "spec": {"drivers": drivers}});
        let expected = expected.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(Drivers::read(&object), Drivers(expected), "{object}");
    }

    #[test]
    fn a_driver_counts_if_it_registered_and_can_op_43() {
        check(&json!("a,b"), &["a", "b"], &["a", "b"]);
        check(&json!(" a , b"), &["b"], &["b"]);
        check(&json!("a"), &["b"], &[]);
        check(&json!(""), &["a"], &[]);
        check(&json!(null), &["a"], &[]);
        assert_eq!(Drivers::read(&json!({})), Drivers::default());
    }
}
