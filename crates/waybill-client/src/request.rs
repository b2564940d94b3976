//! Requests for objects that are kept as they come: documents, tables, logs.

use futures_util::{AsyncBufRead, Stream, StreamExt, future::ready};
use http::{Method, Request, header};
use kube::{Client, core::WatchEvent};
use serde_json::{Value, json};

use crate::{Place, Resource, Table, table::Columns};

/// Asks one API server, as one user.
#[derive(Clone)]
pub struct Requests {
    client: Client,
}

/// What applying a manifest did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// There was no such object.
    Created,
    /// The object is another now.
    Configured,
    /// The object was so already.
    Unchanged,
}

const AS_TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

impl Requests {
    /// Requests of this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client behind them.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The document at a path.
    pub async fn get(&self, path: &str) -> Result<Value, RequestError> {
        self.send(Method::GET, path, JSON, None).await
    }

    /// The answer at a path as it is.
    pub async fn get_text(&self, path: &str) -> Result<String, RequestError> {
        let request = request(Method::GET, path, JSON, None)?;
        self.client.request_text(request).await.map_err(RequestError::of)
    }

    /// What is at a path in the form in which the server shows it to people.
    pub async fn table(&self, path: &str) -> Result<Table, RequestError> {
        let document = self.send(Method::GET, path, AS_TABLE, None).await?;
        serde_json::from_value(document).map_err(RequestError::Answer)
    }

    /// Tables of what changes, from the version of `path` on, until the server ends the watch.
    pub async fn watch_tables(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<Table, RequestError>> + use<>, RequestError> {
        let request = request(Method::GET, path, AS_TABLE, None)?;
        let events = self.client.request_events(request).await.map_err(RequestError::of)?;
        let mut columns = Columns::default();
        Ok(events.filter_map(move |event| {
            let table: Option<Result<Table, _>> = match event {
                Ok(WatchEvent::Added(table) | WatchEvent::Modified(table)) => Some(Ok(table)),
                Ok(WatchEvent::Deleted(table)) => Some(Ok(table)),
                Ok(WatchEvent::Bookmark(_)) => None,
                Ok(WatchEvent::Error(status)) => Some(Err(kube::Error::Api(status))),
                Err(error) => Some(Err(error)),
            };
            let table = table.map(|table| table.map(|table| table.continuing(&mut columns)));
            ready(table.map(|table| table.map_err(RequestError::of)))
        }))
    }

    /// The bytes at a path as they come, such as a log.
    pub async fn stream(
        &self,
        path: &str,
    ) -> Result<impl AsyncBufRead + Unpin + use<>, RequestError> {
        let request = request(Method::GET, path, "*/*", None)?;
        self.client.request_stream(request).await.map(Box::pin).map_err(RequestError::of)
    }

    /// Creates an object, or asks a question that is put as one.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, RequestError> {
        self.send(Method::POST, path, JSON, Some((JSON, object))).await
    }

    /// Puts an object in place of the one that is there; a `resourceVersion` in it must be that one's.
    pub async fn replace(&self, path: &str, object: &Value) -> Result<Value, RequestError> {
        self.send(Method::PUT, path, JSON, Some((JSON, object))).await
    }

    /// Creates an object, or changes what its manifest says and leaves alone what it does not say.
    pub async fn apply(
        &self,
        resource: &Resource,
        place: &Place,
        name: &str,
        manifest: &Value,
    ) -> Result<Applied, RequestError> {
        let path = resource.object_path(place, name);
        let before = match self.get(&path).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => {
                let made = resource.path(place);
                match self.send(Method::POST, &made, JSON, Some((JSON, manifest))).await {
                    Ok(_) => return Ok(Applied::Created),
                    // Somebody was quicker.
                    Err(RequestError::Refused { code: 409, .. }) => self.get(&path).await?,
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        // Lists of a kind that the server knows are merged by their keys, others are replaced.
        let patch = Some((STRATEGIC_PATCH, manifest));
        let after = match self.send(Method::PATCH, &path, JSON, patch).await {
            Err(RequestError::Refused { code: 415, .. }) => {
                self.send(Method::PATCH, &path, JSON, Some((MERGE_PATCH, manifest))).await?
            }
            other => other?,
        };
        let same = as_users_write(before) == as_users_write(after);
        Ok(if same { Applied::Unchanged } else { Applied::Configured })
    }

    /// Asks for the end of an object; returns the answer: the object with its last hours marked, or
    /// a status.
    pub async fn delete(&self, path: &str, options: &Value) -> Result<Value, RequestError> {
        self.send(Method::DELETE, path, JSON, Some((JSON, options))).await
    }

    /// Waits until an object is gone, or another one has its name.
    pub async fn wait_for_end(
        &self,
        resource: &Resource,
        place: &Place,
        name: &str,
        uid: &str,
    ) -> Result<(), RequestError> {
        let path = resource.object_path(place, name);
        loop {
            let found = match self.get(&path).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            };
            if text(&found, "/metadata/uid") != uid {
                return Ok(());
            }
            let version = text(&found, "/metadata/resourceVersion");
            let watch = format!(
                "{}?watch=true&resourceVersion={version}&fieldSelector=metadata.name%3D{}",
                resource.path(place),
                crate::resource::escape(name),
            );
            let request = request(Method::GET, &watch, JSON, None)?;
            let events = self.client.request_events::<Value>(request).await;
            let mut events = std::pin::pin!(events.map_err(RequestError::of)?);
            // A watch that ends early is begun again with what there is then.
            while let Some(event) = events.next().await {
                let event = event.map_err(RequestError::of)?;
                if let WatchEvent::Deleted(gone) = event
                    && text(&gone, "/metadata/uid") == uid
                {
                    return Ok(());
                }
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Value, RequestError> {
        let request = request(method, path, accept, body)?;
        let answer = self.client.request_text(request).await.map_err(RequestError::of)?;
        serde_json::from_str(&answer).map_err(RequestError::Answer)
    }
}

fn request(
    method: Method,
    path: &str,
    accept: &str,
    body: Option<(&str, &Value)>,
) -> Result<Request<Vec<u8>>, RequestError> {
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    let mut bytes = Vec::new();
    if let Some((kind, document)) = body {
        request = request.header(header::CONTENT_TYPE, kind);
        bytes = document.to_string().into_bytes();
    }
    request.body(bytes).map_err(RequestError::Build)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What ends an object: after `grace` seconds if they are given, and only the one with that uid.
pub fn delete_options(grace: Option<u32>, uid: Option<&str>) -> Value {
    let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    if let Some(fields) = options.as_object_mut() {
        if let Some(grace) = grace {
            fields.insert("gracePeriodSeconds".to_owned(), grace.into());
        }
        if let Some(uid) = uid {
            fields.insert("preconditions".to_owned(), json!({ "uid": uid }));
        }
    }
    options
}

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There is no credential to send it with.
    #[error(transparent)]
    Credential(#[from] waybill_credential::CredentialError),
    /// The server answered with something else than JSON.
    #[error("the API server's answer cannot be read")]
    Answer(#[source] serde_json::Error),
    /// What was asked for makes no request.
    #[error("this cannot be asked for")]
    Build(#[source] http::Error),
    /// The server said no.
    #[error("{message}")]
    Refused {
        /// The code of HTTP.
        code: u16,
        /// In one word, such as `NotFound`.
        reason: String,
        /// In the server's words.
        message: String,
    },
    /// The server could not be asked.
    #[error("the API server cannot be asked")]
    Unreachable(#[source] Box<kube::Error>),
}

impl RequestError {
    pub(crate) fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let status = *status;
                Self::Refused {
                    code: status.code,
                    message: if status.message.is_empty() {
                        format!("the API server answered {} {}", status.code, status.reason)
                    } else {
                        status.message
                    },
                    reason: status.reason,
                }
            }
            kube::Error::Service(error) => match error.downcast() {
                Ok(credential) => Self::Credential(*credential),
                Err(other) => Self::Unreachable(Box::new(kube::Error::Service(other))),
            },
            other => Self::Unreachable(Box::new(other)),
        }
    }

    /// Whether the server knows no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Whether the user may not do it.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { code: 403, .. })
    }
}

/// An object without what others write into it while its user looks at it.
fn as_users_write(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A node may write a status between the two answers that are compared.
    #[test]
    fn a_status_of_another_hand_is_no_change_of_the_user() {
        let object = |version: &str, phase: &str, image: &str| {
            as_users_write(json!({
                "metadata": {"name": "p", "resourceVersion": version, "managedFields": [version]},
                "spec": {"image": image},
                "status": {"phase": phase},
            }))
        };
        assert_eq!(object("1", "Pending", "a"), object("2", "Running", "a"));
        assert_ne!(object("1", "Pending", "a"), object("2", "Pending", "b"));
    }
}
