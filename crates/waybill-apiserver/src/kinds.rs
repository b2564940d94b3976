//! Temporary.
use serde_json::Value;
use waybill_api::{field::ErrorList, gates::FeatureGates, pod::EnvOptions};
pub(crate) trait Kind: Send + Sync {
    fn default(&self, _object: &mut Value) {}
    fn prepare_create(&self, _object: &mut Value, _context: &Context) {}
    fn prepare_update(&self, _new: &mut Value, _old: &Value, _context: &Context) {}
    fn prepare_status_update(&self, _new: &mut Value, _old: &Value) {}
    fn validate_create(&self, _object: &Value, _context: &Context) -> ErrorList {
        ErrorList::new()
    }
    fn validate_update(&self, _new: &Value, _old: &Value, _context: &Context) -> ErrorList {
        ErrorList::new()
    }
    fn validate_status_update(&self, _new: &Value, _old: &Value, _context: &Context) -> ErrorList {
        ErrorList::new()
    }
    fn warnings(&self, _object: &Value, _context: &Context) -> Vec<String> {
        Vec::new()
    }
}
pub(crate) struct Context {
    pub(crate) gates: FeatureGates,
    pub(crate) env: EnvOptions,
}
struct Any;
impl Kind for Any {}
pub(crate) fn kind(_g: &str, _r: &str) -> Option<&'static dyn Kind> {
    Some(&Any)
}
pub(crate) fn validate_ephemeral_containers_update(
    _n: &Value,
    _o: &Value,
    _c: &Context,
) -> ErrorList {
    ErrorList::new()
}
pub(crate) enum BindError {
    Conflict(String),
    Invalid(ErrorList),
}
pub(crate) fn bind(old: &Value, b: &Value) -> Result<Value, BindError> {
    let mut n = old.clone();
    n["spec"]["nodeName"] = b["target"]["name"].clone();
    Ok(n)
}
