//! `TokenReview` and `SelfSubjectReview`: a request body in, the body with a status out.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use waybill_core::chain::Chain;

use super::{BearerTokens, rfc3339};
use crate::request::User;

/// Answers a `TokenReview`: who has this token, and is it meant for these audiences?
///
/// A refused token is a good answer, `authenticated: false` with the reason.
pub(crate) fn token_review(
    tokens: &BearerTokens,
    mut body: Value,
    now: Timestamp,
) -> Result<Value, ReviewError> {
    let token = match body.pointer("/spec/token").and_then(Value::as_str) {
        Some(token) if !token.is_empty() => token.to_owned(),
        _ => return Err(ReviewError::NoToken),
    };
    let asked: Vec<String> = match body.pointer("/spec/audiences") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => Vec::deserialize(list).map_err(|_| ReviewError::Audiences)?,
    };
    let audiences = if asked.is_empty() { tokens.audiences() } else { asked.as_slice() };
    let status = match tokens.authenticate(&token, audiences, now) {
        Ok(found) => json!({
            "authenticated": true,
            "user": user_info(&found.user),
            "audiences": *found.audiences,
        }),
        Err(error) => {
            // Upstream gathers what every authenticator said.
            let error = format!("[invalid bearer token, {}]", Chain(&error));
            json!({"user": {}, "error": error})
        }
    };
    answer(&mut body, "TokenReview", status, now)?;
    Ok(body)
}

/// Answers a `SelfSubjectReview`: who am I?
pub(crate) fn self_subject_review(
    user: &User,
    mut body: Value,
    now: Timestamp,
) -> Result<Value, ReviewError> {
    let status = json!({"userInfo": user_info(user)});
    answer(&mut body, "SelfSubjectReview", status, now)?;
    Ok(body)
}

/// Why a review is not answered; 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error("spec.audiences must be a list of strings")]
    Audiences,
    #[error("token is required for TokenReview in authentication")]
    NoToken,
    #[error("the request body must be a JSON object")]
    NotAnObject,
}

/// `authentication.k8s.io` `UserInfo`; empty fields are left out, as upstream.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    let mut say = |key: &str, empty: bool, value: Value| {
        if !empty {
            info.insert(key.to_owned(), value);
        }
    };
    say("username", user.name.is_empty(), json!(user.name));
    say("uid", user.uid.is_empty(), json!(user.uid));
    say("groups", user.groups.is_empty(), json!(user.groups));
    say("extra", user.extra.is_empty(), json!(user.extra));
    Value::Object(info)
}

/// Puts `status` into the body, whose version stays the one the client speaks.
fn answer(body: &mut Value, kind: &str, status: Value, now: Timestamp) -> Result<(), ReviewError> {
    let object = body.as_object_mut().ok_or(ReviewError::NotAnObject)?;
    object.insert("kind".to_owned(), json!(kind));
    object.entry("apiVersion").or_insert_with(|| json!("authentication.k8s.io/v1"));
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("creationTimestamp".to_owned(), json!(rfc3339(now)));
    }
    object.insert("status".to_owned(), status);
    Ok(())
}
