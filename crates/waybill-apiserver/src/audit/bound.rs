//! Bounds what clients choose: no record is larger than a few kilobytes, unless a policy asks for objects.

use serde_json::{Value, json};

use super::{
    event::{Event, ObjectReference, UserInfo},
    recorder::RequestFacts,
};

/// Marks what was cut, as upstream does.
const MARK: &str = "...TRUNCATED";

/// Upstream's annotation of an event without its objects.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The longest line with objects.
const LINE: usize = 1 << 20;

/// The longest name, and the most that a list of them may have.
const NAME: usize = 1024;
const NAMES: usize = 256;

/// What a line has apart from what its client chooses: names of fields, times, numbers.
const REST_OF_LINE: u64 = 800;

/// Upstream cuts user agents here, too.
pub(super) const USER_AGENT: usize = 1024;

/// What a server says about a request.
pub(super) const SENTENCE: usize = 1024;

/// How long a URI may be: a stranger's, another's, and that of a session, which holds its command.
pub(super) const STRANGERS_URI: usize = 1024;
pub(super) const URI: usize = 2 << 10;
pub(super) const SESSIONS_URI: usize = 16 << 10;

/// `text`, cut to `limit` bytes with a mark.
pub(super) fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit);
    format!("{}{MARK}", text.get(..end).unwrap_or_default())
}

pub(super) fn cut_in_place(text: &mut String, limit: usize) {
    if text.len() > limit {
        *text = cut(text, limit);
    }
}

/// Cuts everything in an event that a client chose, but for URI and objects.
pub(super) fn names(event: &mut Event) {
    cut_in_place(&mut event.verb, NAME);
    user(&mut event.user);
    event.impersonated_user.as_mut().map(user);
    if let Some(ObjectReference {
        resource,
        namespace,
        name,
        uid: _,
        api_group,
        api_version,
        resource_version: _,
        subresource,
    }) = &mut event.object_ref
    {
        for text in [resource, namespace, name, api_group, api_version, subresource] {
            cut_in_place(text, NAME);
        }
    }
}

fn user(user: &mut UserInfo) {
    cut_in_place(&mut user.username, NAME);
    cut_in_place(&mut user.uid, NAME);
    user.groups.truncate(NAMES);
    user.groups.iter_mut().for_each(|group| cut_in_place(group, NAME));
    while user.extra.len() > NAMES {
        user.extra.pop_last();
    }
    for values in user.extra.values_mut() {
        values.truncate(NAMES);
        values.iter_mut().for_each(|value| cut_in_place(value, NAME));
    }
}

/// About how long the line of an event without objects is; cheaper than to write it.
pub(super) fn about(facts: &RequestFacts<'_>) -> u64 {
    let (uri, agent) = (facts.uri.len().min(URI), facts.user_agent.len().min(USER_AGENT));
    let name = facts.user.name.len().min(NAME);
    let groups: usize = facts.user.groups.iter().take(NAMES).map(|it| it.len().min(NAME)).sum();
    (uri + agent + name + groups) as u64 + REST_OF_LINE
}

/// The event as a line, without its objects if it would be too long with them.
pub(super) fn line(event: &Event) -> Vec<u8> {
    let mut line = serialized(event);
    if line.len() > LINE && (event.request_object.is_some() || event.response_object.is_some()) {
        let mut smaller = event.clone();
        let left_out = |object: &Option<Value>| {
            object.as_ref().map(|_| json!({"waybill.dev/truncated": "the object is too large"}))
        };
        smaller.request_object = left_out(&event.request_object);
        smaller.response_object = left_out(&event.response_object);
        smaller.annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        line = serialized(&smaller);
    }
    line.push(b'\n');
    line
}

fn serialized(event: &Event) -> Vec<u8> {
    serde_json::to_vec(event).expect("all keys of an event are text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::log::tests::event;

    #[test]
    fn long_texts_are_cut_between_characters_and_marked() {
        assert_eq!(cut(&"é".repeat(512), 1024).len(), 1024);
        let expected = format!("x{}...TRUNCATED", "é".repeat(511));
        assert_eq!(cut(&format!("x{}", "é".repeat(600)), 1024), expected);
    }

    #[test]
    fn an_event_has_a_bound_whatever_a_client_sends() {
        let long = "x".repeat(200_000);
        let mut event = event(&cut(&long, SESSIONS_URI));
        event.verb = long.clone();
        event.object_ref = Some(ObjectReference {
            resource: long.clone(),
            namespace: long.clone(),
            name: long.clone(),
            subresource: long.clone(),
            ..ObjectReference::default()
        });
        event.user.username = long.clone();
        names(&mut event);
        assert!(line(&event).len() < 32 << 10);
        event.request_object = Some(json!({"data": "y".repeat(2 << 20)}));
        let line = line(&event);
        assert!(line.len() < 32 << 10);
        let read: Event = serde_json::from_slice(&line).unwrap();
        assert_eq!(read.annotations[TRUNCATED], "true");
    }
}
