//! Parameters of the Parameter Store.

use std::{collections::BTreeSet, slice};

use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{
    api::{AwsError, Found, SignedApi},
    class::{Item, Service},
};
use crate::driver::{Answer, FetchError};

/// Most parameters in one call.
const BATCH: usize = 10;

/// Reads the parameters among `items`, whether encrypted or not.
pub(super) async fn read(api: &SignedApi<'_>, items: &BTreeSet<Item>) -> Found {
    let wanted: Vec<_> = items.iter().filter_map(|item| Some((item, full_name(item)?))).collect();
    let mut found = Found::new();
    for batch in wanted.chunks(BATCH) {
        match read_batch(api, batch).await {
            // One parameter that the role may not read spoils the batch.
            Err(error) if error.is_denied() && batch.len() > 1 => {
                for one in batch {
                    let alone = slice::from_ref(one);
                    found.extend(settled(read_batch(api, alone).await, alone));
                }
            }
            answer => found.extend(settled(answer, batch)),
        }
    }
    found
}

type Wanted<'a> = (&'a Item, String);

async fn read_batch(api: &SignedApi<'_>, batch: &[Wanted<'_>]) -> Result<Found, AwsError> {
    let names: Vec<_> = batch.iter().map(|(_, name)| name).collect();
    let body = json!({"Names": names, "WithDecryption": true});
    let answer = api.call(Service::Ssm, "AmazonSSM.GetParameters", &body).await?;
    let answer: Parameters<'_> = serde_json::from_slice(answer.expose())
        .map_err(|_| FetchError::backend("the answer of AWS is not one about parameters"))?;
    let about = |(item, name): &Wanted<'_>| ((*item).clone(), answer.about(item, name));
    Ok(batch.iter().map(about).collect())
}

/// An error of the batch is one of each in it.
fn settled(answer: Result<Found, AwsError>, batch: &[Wanted<'_>]) -> Found {
    answer.unwrap_or_else(|error| {
        let failed = |(item, name): &Wanted<'_>| {
            ((*item).clone(), Err(error.clone().about(&format!("parameter {name}"))))
        };
        batch.iter().map(failed).collect()
    })
}

/// The name with its selector; `None` for what is no parameter.
fn full_name(item: &Item) -> Option<String> {
    match item {
        Item::Parameter { name, selector: Some(selector) } => Some(format!("{name}:{selector}")),
        Item::Parameter { name, selector: None } => Some(name.clone()),
        Item::Secret { .. } => None,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Parameters<'a> {
    #[serde(borrow, default)]
    parameters: Vec<Parameter<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Parameter<'a> {
    name: String,
    #[serde(rename = "ARN", default)]
    arn: String,
    /// `:version` or `:label`, as it was asked for.
    #[serde(default)]
    selector: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

impl Parameters<'_> {
    fn about(&self, item: &Item, full_name: &str) -> Answer {
        let parameter = self.parameters.iter().find(|parameter| parameter.is(item));
        let parameter = parameter
            .ok_or_else(|| FetchError::not_found(format!("AWS has no parameter {full_name}")))?;
        let value: String = serde_json::from_str(parameter.value.get()).map_err(|_| {
            FetchError::backend(format!("the value of parameter {full_name} is not text"))
        })?;
        Ok(value.into_bytes().into())
    }
}

impl Parameter<'_> {
    fn is(&self, item: &Item) -> bool {
        let Item::Parameter { name, selector } = item else { return false };
        let asked = selector.as_ref().map(|selector| format!(":{selector}")).unwrap_or_default();
        (self.name == *name || self.arn == *name) && self.selector == asked
    }
}
