//! The credential on its way to the server: a layer for any stack of services under a `kube` client.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::{Authenticator, Credential, OnUnauthorized, Renewal};

/// Gives each request the credential of a plugin, and has it renewed when a server refuses it.
///
/// A certificate is not part of a request: it comes with the connection, as [`crate::Transport`] makes it.
#[derive(Clone, Debug)]
pub struct CredentialLayer {
    authenticator: Arc<Authenticator>,
}

impl CredentialLayer {
    /// For the credential of this plugin.
    pub fn new(authenticator: Arc<Authenticator>) -> Self {
        Self { authenticator }
    }
}

impl<S> Layer<S> for CredentialLayer {
    type Service = WithCredential<S>;

    fn layer(&self, inner: S) -> WithCredential<S> {
        WithCredential { authenticator: Arc::clone(&self.authenticator), inner }
    }
}

/// A service whose requests carry a credential.
#[derive(Clone, Debug)]
pub struct WithCredential<S> {
    authenticator: Arc<Authenticator>,
    inner: S,
}

impl<S, B> Service<Request<Body>> for WithCredential<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that is ready goes with the request.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        if request.headers().contains_key(AUTHORIZATION) {
            // The caller has a credential of their own, so the plugin is not needed.
            let answer = inner.call(request);
            return Box::pin(async { answer.await.map_err(Into::into) });
        }
        Box::pin(send(Arc::clone(&self.authenticator), inner, request))
    }
}

async fn send<S, B>(
    authenticator: Arc<Authenticator>,
    mut inner: S,
    mut request: Request<Body>,
) -> Result<Response<B>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    let credential = authenticator.credential().await?;
    let again = repeatable(&authenticator, &request);
    equip(&mut request, &credential);
    let answer = inner.call(request).await.map_err(Into::into)?;
    if answer.status() != StatusCode::UNAUTHORIZED {
        credential.note_accepted();
        return Ok(answer);
    }
    match (authenticator.renew(&credential).await, again) {
        (Renewal::Changed(fresh), Some(mut again)) => {
            equip(&mut again, &fresh);
            std::future::poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
            let answer = inner.call(again).await.map_err(Into::into)?;
            if answer.status() != StatusCode::UNAUTHORIZED {
                fresh.note_accepted();
            }
            Ok(answer)
        }
        (Renewal::Failed(error), _) => {
            tracing::warn!(%error, "cannot renew a credential that the server refused");
            Ok(answer)
        }
        (Renewal::Changed(_) | Renewal::Unchanged, _) => Ok(answer),
    }
}

/// The same request once more. A server that does not know who asks has done nothing, so every method may be
/// repeated; a body that is a stream can not.
fn repeatable(authenticator: &Authenticator, request: &Request<Body>) -> Option<Request<Body>> {
    match authenticator.options().on_unauthorized {
        OnUnauthorized::Renew => None,
        OnUnauthorized::RenewAndRepeat => {
            let mut again = Request::new(request.body().try_clone()?);
            again.method_mut().clone_from(request.method());
            again.uri_mut().clone_from(request.uri());
            *again.version_mut() = request.version();
            again.headers_mut().clone_from(request.headers());
            again.extensions_mut().clone_from(request.extensions());
            Some(again)
        }
    }
}

/// The token goes into the header; the transport below finds the certificate beside the request.
fn equip(request: &mut Request<Body>, credential: &Arc<Credential>) {
    if let Some(token) = credential.authorization() {
        request.headers_mut().insert(AUTHORIZATION, token.clone());
    }
    request.extensions_mut().insert(Arc::clone(credential));
}
