//! Secrets of Secrets Manager.

use std::collections::BTreeSet;

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use waybill_core::secret::SecretBytes;

use super::{
    api::{AwsError, Found, SignedApi, refusal},
    class::{Item, SecretVersion, Service},
};
use crate::driver::{Answer, FetchError};

/// Most secrets in one call.
const BATCH: usize = 20;

/// How many calls are under way at the same time for one container.
const CALLS: usize = 8;

/// Reads the secrets among `items`.
pub(super) async fn read(api: &SignedApi<'_>, items: &BTreeSet<Item>) -> Found {
    let is_current =
        |item: &&Item| matches!(item, Item::Secret { version: SecretVersion::Current, .. });
    // Only current versions come in batches.
    let current: Vec<_> = items.iter().filter(is_current).collect();
    let mut found = Found::new();
    if current.len() > 1 {
        for batch in current.chunks(BATCH) {
            found.extend(read_batch(api, batch).await);
        }
    }
    let alone = items.iter().filter(|item| !found.contains_key(item));
    let secrets = alone.filter_map(|item| match item {
        Item::Secret { id, version } => Some((item, id.as_str(), version)),
        Item::Parameter { .. } => None,
    });
    let read = |(item, id, version): (&Item, _, _)| {
        let item = item.clone();
        async move { (item, read_one(api, id, version).await) }
    };
    // Made here, so that none of them borrows from what grows.
    let calls: Vec<_> = secrets.map(read).collect();
    found.extend(stream::iter(calls).buffer_unordered(CALLS).collect::<Vec<_>>().await);
    found
}

/// What one call tells of `batch`. What it does not tell is asked for alone: a role may read secrets
/// and not batches of them, and an answer may be cut short.
async fn read_batch(api: &SignedApi<'_>, batch: &[&Item]) -> Found {
    let ids: Vec<_> = batch.iter().filter_map(|item| id(item)).collect();
    let body = json!({"SecretIdList": ids});
    let target = "secretsmanager.BatchGetSecretValue";
    let answer = match api.call(Service::SecretsManager, target, &body).await {
        Ok(answer) => answer,
        Err(AwsError::Unanswered(error)) => {
            return batch.iter().map(|item| ((*item).clone(), Err(error.clone()))).collect();
        }
        Err(AwsError::Refused { .. }) => return Found::new(),
    };
    let Ok(answer) = serde_json::from_slice::<BatchAnswer<'_>>(answer.expose()) else {
        return Found::new();
    };
    let told = |item: &&&Item| Some(((**item).clone(), answer.about(id(item)?)?));
    batch.iter().filter_map(|item| told(&item)).collect()
}

async fn read_one(api: &SignedApi<'_>, id: &str, version: &SecretVersion) -> Answer {
    let body: Value = match version {
        SecretVersion::Current => json!({"SecretId": id}),
        SecretVersion::Stage(stage) => json!({"SecretId": id, "VersionStage": stage}),
        SecretVersion::Id(version) => json!({"SecretId": id, "VersionId": version}),
    };
    let answer = api.call(Service::SecretsManager, "secretsmanager.GetSecretValue", &body).await;
    let answer = answer.map_err(|error| error.about(&format!("secret {id}")))?;
    let secret: Secret<'_> = serde_json::from_slice(answer.expose()).map_err(|_| unreadable(id))?;
    secret.value(id)
}

fn id(item: &Item) -> Option<&str> {
    match item {
        Item::Secret { id, .. } => Some(id),
        Item::Parameter { .. } => None,
    }
}

fn unreadable(id: &str) -> FetchError {
    FetchError::backend(format!("the answer of AWS for secret {id} is not that of a secret"))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchAnswer<'a> {
    #[serde(borrow, default)]
    secret_values: Vec<Secret<'a>>,
    #[serde(default)]
    errors: Vec<BatchError>,
}

impl BatchAnswer<'_> {
    fn about(&self, id: &str) -> Option<Answer> {
        if let Some(secret) = self.find(id) {
            return Some(secret.value(id));
        }
        let error = self.errors.iter().find(|error| error.secret_id == id)?;
        Some(Err(refusal(StatusCode::OK, &error.error_code, &format!("secret {id}"))))
    }

    /// Secrets are asked for by name, by ARN, or by ARN without what AWS adds to the name. The last may be the
    /// whole ARN of another secret, so it counts only where nothing else fits, and only once; what is left
    /// is asked for alone.
    fn find(&self, id: &str) -> Option<&Secret<'_>> {
        let all = &self.secret_values;
        let exact = all.iter().find(|secret| secret.arn == id || secret.name == id);
        exact.or_else(|| {
            let mut shortened = all.iter().filter(|secret| secret.short_arn() == Some(id));
            shortened.next().filter(|_| shortened.next().is_none())
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchError {
    secret_id: String,
    error_code: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Secret<'a> {
    #[serde(rename = "ARN", default)]
    arn: String,
    #[serde(default)]
    name: String,
    /// As it is written, quotes and all, so that it is not copied before it is wanted.
    #[serde(borrow)]
    secret_string: Option<&'a RawValue>,
    #[serde(borrow)]
    secret_binary: Option<&'a RawValue>,
}

impl Secret<'_> {
    /// AWS adds a hyphen and six characters.
    fn short_arn(&self) -> Option<&str> {
        let (short, added) = self.arn.rsplit_once('-')?;
        let is_added = added.len() == 6 && added.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_added.then_some(short)
    }

    fn value(&self, id: &str) -> Answer {
        let written = self.secret_string.or(self.secret_binary).ok_or_else(|| unreadable(id))?;
        let text: String = serde_json::from_str(written.get()).map_err(|_| unreadable(id))?;
        let text = SecretBytes::from(text.into_bytes());
        if self.secret_string.is_some() {
            return Ok(text);
        }
        BASE64_STANDARD.decode(text.expose()).map(SecretBytes::from).map_err(|_| unreadable(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &Value, id: &str, expected: Option<&str>) {
        let text = answer.to_string();
        let answer: BatchAnswer<'_> = serde_json::from_str(&text).unwrap();
        let found = answer.about(id).map(|found| found.unwrap().expose().to_vec());
        assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{id}");
    }

    /// A secret whose name is the whole name of another one, and what AWS added to it.
    #[test]
    fn a_secret_is_never_taken_for_another() {
        let secret = |arn: &str, name: &str, value: &str| json!({"ARN": arn, "Name": name, "SecretString": value});
        let answer = json!({"SecretValues": [
            secret("arn:x:foo-AbCdEf-XyZ123", "foo-AbCdEf", "other"),
            secret("arn:x:foo-AbCdEf", "foo", "right"),
        ]});
        check(&answer, "arn:x:foo-AbCdEf", Some("right"));
        check(&answer, "arn:x:foo-AbCdEf-XyZ123", Some("other"));
        check(&answer, "arn:x:foo", Some("right"));
        check(&answer, "foo", Some("right"));
        check(&answer, "arn:x", None);
        let twice = json!({"SecretValues": [
            secret("arn:x:a-AAAAAA", "a", "1"), secret("arn:x:a-BBBBBB", "a2", "2")]});
        check(&twice, "arn:x:a", None);
    }
}
