//! Calls to etcd, each within a time limit.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::{
    Code, Status, Streaming,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

#[cfg(test)]
use super::message::AuthenticateRequest;
use super::{
    EtcdConfig, EtcdTls,
    login::{Login, Token, is_stale, signed},
    message::{
        AuthenticateResponse, CompactionRequest, CompactionResponse, RangeRequest, RangeResponse,
        TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
    },
};
use crate::store::StoreError;

/// The largest message that we take. A list asks for fewer objects when a page is larger.
const LARGEST_MESSAGE: usize = 64 << 20;

/// How often a read is tried when a member cannot be reached; the next try may meet another one.
const ATTEMPTS: usize = 3;

/// How long a silent connection is trusted before it is asked for a sign of life.
const SILENCE: Duration = Duration::from_secs(10);

/// A client of all members of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Client {
    endpoints: Arc<[String]>,
    /// Exchanged when our certificate is.
    channel: Arc<ArcSwap<Channel>>,
    timeout: Duration,
    login: Option<Arc<Login>>,
}

impl Client {
    /// A client that connects when it is first used.
    pub(super) fn new(config: &mut EtcdConfig) -> Result<Self, StoreError> {
        let endpoints: Arc<[String]> = config.endpoints.as_slice().into();
        let channel = connect(&endpoints, config.tls.as_ref(), config.timeout);
        let channel = Arc::new(ArcSwap::from_pointee(channel.map_err(StoreError::Connect)?));
        let login = config.user.take().map(|user| Arc::new(Login::new(user)));
        Ok(Self { endpoints, channel, timeout: config.timeout, login })
    }

    /// Uses this for new connections. Calls that are under way go on.
    pub(super) fn use_tls(&self, tls: &EtcdTls) -> Result<(), tonic::transport::Error> {
        self.channel.store(Arc::new(connect(&self.endpoints, Some(tls), self.timeout)?));
        Ok(())
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        let call = async {
            let mut attempt = 1;
            loop {
                let answer = self.unary("/etcdserverpb.KV/Range", request.clone()).await;
                match answer {
                    Err(status) if status.code() == Code::Unavailable && attempt < ATTEMPTS => {
                        attempt += 1;
                    }
                    answer => return answer,
                }
            }
        };
        self.in_time("range", call).await
    }

    /// Tried once: a second try cannot know what became of the first.
    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, CallError> {
        self.in_time("txn", self.unary("/etcdserverpb.KV/Txn", request)).await
    }

    pub(super) async fn compact(
        &self,
        request: CompactionRequest,
    ) -> Result<CompactionResponse, CallError> {
        self.in_time("compact", self.unary("/etcdserverpb.KV/Compact", request)).await
    }

    /// Opens a watch. The time limit covers the opening; a dead connection is noticed by its
    /// silence.
    pub(super) async fn watch(
        &self,
        create: WatchCreateRequest,
    ) -> Result<Streaming<WatchResponse>, CallError> {
        // The server ends the watch when the requests end.
        let requests = stream::iter([WatchRequest { create_request: Some(create) }]);
        let requests = requests.chain(stream::pending());
        self.in_time("watch", self.bidirectional("/etcdserverpb.Watch/Watch", requests)).await
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let token = match self.login.as_deref().map(Login::token) {
            Some(None) => self.log_in().await?,
            token => token.flatten(),
        };
        match self.unary_as(token, path, request.clone()).await {
            Err(status) if self.login.is_some() && is_stale(&status) => {
                self.unary_as(self.log_in().await?, path, request).await
            }
            answer => answer,
        }
    }

    async fn unary_as<Q, A>(
        &self,
        token: Option<Token>,
        path: &'static str,
        request: Q,
    ) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::<Q, A>::default());
        Ok(grpc.unary(signed(request, token), path, codec).await?.into_inner())
    }

    /// A new token, if tokens are needed.
    async fn log_in(&self) -> Result<Option<Token>, Status> {
        let Some(login) = &self.login else { return Ok(None) };
        let path = "/etcdserverpb.Auth/Authenticate";
        let answer: AuthenticateResponse = self.unary_as(None, path, login.request()?).await?;
        login.keep(&answer.token).map(Some)
    }

    /// Always with a new token: a stream that etcd refuses for an old one does not say so.
    async fn bidirectional<Q, A>(
        &self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let token = self.log_in().await?;
        let mut grpc = self.grpc().await?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::<Q, A>::default());
        Ok(grpc.streaming(signed(requests, token), path, codec).await?.into_inner())
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let channel = Channel::clone(&self.channel.load());
        let mut grpc = Grpc::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }

    async fn in_time<A>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<A, Status>>,
    ) -> Result<A, CallError> {
        match timeout(self.timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) => Err(CallError::of(call, status)),
            Err(_) => Err(CallError::Store(StoreError::Timeout { call })),
        }
    }
}

/// Why a call failed, as far as callers care.
#[derive(Debug)]
pub(super) enum CallError {
    /// The revision asked for is gone.
    Compacted,
    /// The answer is larger than a message may be.
    TooLarge,
    Store(StoreError),
}

impl CallError {
    /// etcd uses one code for all of these; its text is all there is to tell them apart, and
    /// clients rely on it (`api/v3rpc/rpctypes/error.go`).
    fn of(call: &'static str, status: Status) -> Self {
        if status.code() == Code::OutOfRange {
            if status.message().contains("required revision has been compacted") {
                return Self::Compacted;
            }
            if status.message().contains("message length too large") {
                return Self::TooLarge;
            }
        }
        Self::Store(StoreError::Call { call, source: status.into() })
    }

    /// For calls that know no better.
    pub(super) fn into_store(self, call: &'static str) -> StoreError {
        match self {
            Self::Compacted | Self::TooLarge => StoreError::Answer { call },
            Self::Store(error) => error,
        }
    }
}

/// The keys that begin with `prefix`, as etcd names them: first, and first after.
pub(super) fn range_of(prefix: &[u8]) -> (Bytes, Bytes) {
    // A lone zero byte stands for the smallest key, or as an end for no end.
    let unbounded = Bytes::from_static(b"\0");
    let (end, last) = match prefix.iter().rposition(|byte| *byte < 0xFF) {
        Some(at) => (prefix.get(..at).unwrap_or_default(), prefix.get(at)),
        None => (&[][..], None),
    };
    let key = if prefix.is_empty() { unbounded.clone() } else { Bytes::copy_from_slice(prefix) };
    let end = last.map(|last| end.iter().copied().chain([last + 1]).collect());
    (key, end.unwrap_or(unbounded))
}

/// A channel to all members, which connects when it is first used.
fn connect(
    members: &[String],
    tls: Option<&EtcdTls>,
    timeout: Duration,
) -> Result<Channel, tonic::transport::Error> {
    let endpoints: Result<Vec<_>, _> =
        members.iter().map(|uri| endpoint(uri, tls, timeout)).collect();
    Ok(match endpoints?.as_slice() {
        [one] => one.connect_lazy(),
        many => Channel::balance_list(many.iter().cloned()),
    })
}

fn endpoint(
    uri: &str,
    tls: Option<&EtcdTls>,
    timeout: Duration,
) -> Result<Endpoint, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(uri.to_owned())?
        .connect_timeout(timeout)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(SILENCE)
        .keep_alive_timeout(timeout)
        .keep_alive_while_idle(true);
    match tls {
        Some(tls) => endpoint.tls_config(tls.config()),
        None => Ok(endpoint),
    }
}

/// Makes a user who may do everything, and lets etcd refuse everybody else.
#[cfg(test)]
pub(super) async fn ask_for_passwords(client: &Client, name: &str, password: &str) {
    // The first fields of `AuthUserAddRequest` are those of a login, and of
    // `AuthUserGrantRoleRequest` as well, with the role in place of the password.
    let two = |name: &str, second: &str| AuthenticateRequest {
        name: name.to_owned(),
        password: second.to_owned(),
    };
    let call = async |path, request| -> AuthenticateResponse {
        client.unary_as(None, path, request).await.unwrap()
    };
    call("/etcdserverpb.Auth/UserAdd", two(name, password)).await;
    call("/etcdserverpb.Auth/UserGrantRole", two(name, "root")).await;
    call("/etcdserverpb.Auth/AuthEnable", two("", "")).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_after_the_last_key_of_its_prefix() {
        let check = |prefix: &[u8], key: &'static [u8], end: &'static [u8]| {
            let expected = (Bytes::from_static(key), Bytes::from_static(end));
            assert_eq!(range_of(prefix), expected, "{prefix:?}");
        };
        check(b"/a/", b"/a/", b"/a0");
        check(b"a\xFF\xFF", b"a\xFF\xFF", b"b");
        check(b"\xFF", b"\xFF", b"\0");
        check(b"", b"\0", b"\0");
    }
}
