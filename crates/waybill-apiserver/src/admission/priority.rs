//! How much a pod matters comes from its PriorityClass, and there is one default at most.

use serde_json::Value;
use waybill_api::status::Status;

use super::{Admission, Attributes, Operation};
use crate::{
    cache::ObjectKey,
    document::{at, metadata, put, text},
    kinds::{pod::PODS, priority_class::PRIORITY_CLASSES},
};

impl Admission {
    /// Gives a new pod the priority of its class, or of the default class.
    pub(super) fn set_priority(&self, attributes: &mut Attributes<'_>) -> Result<(), Status> {
        let is_new = attributes.operation == Operation::Create && attributes.is_main(&PODS);
        if !is_new || !at(&attributes.object, "/spec").is_object() {
            return Ok(());
        }
        let spec = at(&attributes.object, "/spec");
        let class = match text(spec, "/priorityClassName") {
            "" => self.default_class(),
            name => match self.priority_class(name) {
                Some(class) => Some(class),
                None => {
                    let why = format!("no PriorityClass with name {name} was found");
                    return Err(attributes.forbidden(&why));
                }
            },
        };
        let class = class.unwrap_or_default();
        let priority = at(&class, "/value").as_i64().unwrap_or_default();
        let policy = match text(&class, "/preemptionPolicy") {
            "" => "PreemptLowerPriority",
            policy => policy,
        };
        if let Some(found) = at(spec, "/priority").as_i64().filter(|&found| found != priority) {
            return Err(attributes.forbidden(&format!(
                "the integer value of priority ({found}) must not be provided in pod spec; priority \
                 admission controller computed {priority} from the given PriorityClass name"
            )));
        }
        let found = text(spec, "/preemptionPolicy");
        if !found.is_empty() && found != policy {
            return Err(attributes.forbidden(&format!(
                "the string value of PreemptionPolicy ({found}) must not be provided in pod spec; \
                 priority admission controller computed {policy} from the given PriorityClass name"
            )));
        }
        let (name, policy) = (metadata(&class, "name").to_owned(), policy.to_owned());
        if !name.is_empty() {
            put(&mut attributes.object, "/spec/priorityClassName", name);
        }
        put(&mut attributes.object, "/spec/priority", priority);
        put(&mut attributes.object, "/spec/preemptionPolicy", policy);
        Ok(())
    }

    /// Refuses a second default.
    pub(super) fn check_default_class(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let is_default = at(&attributes.object, "/globalDefault") == true;
        if !writes || !attributes.is_main(&PRIORITY_CLASSES) || !is_default {
            return Ok(());
        }
        let Some(other) = self.default_class() else { return Ok(()) };
        let name = metadata(&other, "name");
        if name == attributes.name() {
            return Ok(());
        }
        Err(attributes.forbidden(&format!(
            "PriorityClass {name} is already marked as default. Only one default can exist"
        )))
    }

    fn priority_class(&self, name: &str) -> Option<Value> {
        let cache = self.objects.cache(&PRIORITY_CLASSES)?;
        Some(cache.get(&ObjectKey::new("", name))?.document())
    }

    /// The default class; of several, the one that matters least.
    fn default_class(&self) -> Option<Value> {
        let cache = self.objects.cache(&PRIORITY_CLASSES)?;
        let all = cache.list("", None, usize::MAX, |_| true).objects;
        let documents = all.iter().map(|class| class.document());
        let defaults = documents.filter(|class| at(class, "/globalDefault") == true);
        defaults.min_by_key(|class| at(class, "/value").as_i64())
    }
}
