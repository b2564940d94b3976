//! The store that lives in an etcd cluster, version 3.4 or later.
//!
//! A revision is etcd's own: an object's is the `mod_revision` of its key. Each write is one
//! transaction that compares and then puts or deletes. One watch feeds the history from which all
//! watchers read ([`feed`]), so the history begins when the store is opened.

mod client;
mod failure;
mod feed;
mod login;
mod message;
mod tls;

#[cfg(test)]
mod server;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{
    future::{BoxFuture, FutureExt, ready},
    stream::BoxStream,
};
use tokio::{sync::Mutex, task::JoinSet};
use waybill_core::{chain::Chain, id::ResourceVersion, secret::SecretBytes};

use self::{
    client::{CallError, Client, range_of},
    feed::Feed,
    message::{
        CompactionRequest, Compare, CompareResult, CompareTarget, DeleteRangeRequest, KeyValue,
        PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
    },
};
pub(crate) use self::{
    failure::Failure,
    tls::{EtcdIdentity, EtcdTls, TlsSource},
};
use super::{
    Event, Expected, Snapshot, Store, StoreError, Stored, WatchError, Write, WriteError,
    history::{History, Limits},
    kept,
};

/// How many objects a page of a list has at first; it has fewer if they are large.
const PAGE: i64 = 500;

/// How long it is believed that etcd answers, or does not.
const CHECK: Duration = Duration::from_secs(1);

/// Where etcd is and how to talk to it.
pub(crate) struct EtcdConfig {
    /// The members, as `https://host:2379`.
    pub(crate) endpoints: Vec<String>,
    /// Put before every key, as `/waybill`.
    pub(crate) prefix: String,
    /// `None` for plain connections, which are for tests and for the same machine.
    pub(crate) tls: Option<EtcdTls>,
    /// Where that is read from again while we run.
    pub(crate) tls_source: Option<TlsSource>,
    /// Who we are, if etcd asks for a password.
    pub(crate) user: Option<EtcdUser>,
    /// The limit of every call.
    pub(crate) timeout: Duration,
    /// How much history is kept for watches.
    pub(super) history: Limits,
}

impl EtcdConfig {
    /// The members at `endpoints`, with defaults for all else.
    pub(crate) fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            prefix: "/waybill".to_owned(),
            tls: None,
            tls_source: None,
            user: None,
            timeout: Duration::from_secs(10),
            history: Limits::default(),
        }
    }
}

/// A user of etcd.
pub(crate) struct EtcdUser {
    pub(crate) name: String,
    pub(crate) password: SecretBytes,
}

/// A store in etcd.
pub(crate) struct Etcd {
    client: Client,
    prefix: String,
    history: Arc<History>,
    /// When it was last tried whether etcd answers, and what came of it.
    checked: Mutex<Option<(Instant, Option<String>)>>,
    /// The feed; it ends when this is dropped.
    _tasks: JoinSet<()>,
}

impl Etcd {
    /// Connects to etcd and starts to follow it.
    pub(crate) async fn open(mut config: EtcdConfig) -> Result<Self, StoreError> {
        let client = Client::new(&mut config)?;
        let EtcdConfig { prefix, timeout, history, tls, tls_source, .. } = config;
        let newest = newest_revision(&client, &prefix).await?;
        let history = Arc::new(History::after(newest, history));
        let feed = Feed {
            client: client.clone(),
            history: Arc::clone(&history),
            prefix: prefix.clone(),
            timeout,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(feed.run());
        if let (Some(source), Some(tls)) = (tls_source, tls) {
            tasks.spawn(source.follow(client.clone(), tls));
        }
        Ok(Self { client, prefix, history, checked: Mutex::default(), _tasks: tasks })
    }

    async fn read(&self, key: &str) -> Result<Option<Stored>, StoreError> {
        let request = RangeRequest { key: self.key(key), ..RangeRequest::default() };
        let answer = self.client.range(request).await.map_err(|error| error.into_store("range"))?;
        answer.kvs.first().map(|kv| self.stored(kv)).transpose()
    }

    /// Lists page by page, all as of the first page's revision, and from the start if etcd compacts
    /// that revision meanwhile.
    async fn read_all(&self, prefix: &str) -> Result<Snapshot, StoreError> {
        loop {
            match self.read_pages(prefix).await {
                Ok(snapshot) => return Ok(snapshot),
                Err(CallError::Compacted) => {}
                Err(error) => return Err(error.into_store("range")),
            }
        }
    }

    async fn read_pages(&self, prefix: &str) -> Result<Snapshot, CallError> {
        let (key, range_end) = range_of(&self.key(prefix));
        let mut request = RangeRequest { key, range_end, limit: PAGE, ..RangeRequest::default() };
        let mut objects = Vec::new();
        loop {
            let page = match self.client.range(request.clone()).await {
                Err(CallError::TooLarge) if request.limit > 1 => {
                    request.limit /= 2;
                    continue;
                }
                page => page?,
            };
            if request.revision == 0 {
                request.revision = page.header.unwrap_or_default().revision;
            }
            let last = page.kvs.last().map(|kv| kv.key.clone());
            for kv in &page.kvs {
                objects.push(self.stored(kv).map_err(CallError::Store)?);
            }
            match last {
                Some(last) if page.more => request.key = last.into_iter().chain([0]).collect(),
                _ => return Ok(Snapshot { objects, revision: revision_of(request.revision) }),
            }
        }
    }

    async fn commit(&self, write: Write) -> Result<ResourceVersion, WriteError> {
        let request = transaction(self.key(&write.key), write);
        let answer = self.client.txn(request).await.map_err(|error| error.into_store("txn"))?;
        let TxnResponse { header, succeeded, responses } = answer;
        if succeeded {
            let header = header.ok_or(StoreError::Answer { call: "txn" })?;
            return Ok(revision_of(header.revision));
        }
        let there = responses.into_iter().next().and_then(|answer| answer.response_range);
        let there = there.ok_or(StoreError::Answer { call: "txn" })?.kvs.into_iter().next();
        Err(WriteError::Conflict(there.map(|kv| self.stored(&kv)).transpose()?))
    }

    /// etcd keeps what is needed to watch after the revision that it compacts.
    async fn forget(&self, before: ResourceVersion) -> Result<(), StoreError> {
        let newest = newest_revision(&self.client, &self.prefix).await?;
        let last = before.get().saturating_sub(1).min(newest.get());
        self.history.compact(before);
        let revision = i64::try_from(last).unwrap_or(i64::MAX);
        if revision == 0 {
            return Ok(());
        }
        match self.client.compact(CompactionRequest { revision }).await {
            Ok(_) | Err(CallError::Compacted) => Ok(()),
            Err(error) => Err(error.into_store("compact")),
        }
    }

    /// Asks etcd for something, at most once a second: anybody may ask us whether we are ready.
    async fn check(&self) -> Option<String> {
        let mut checked = self.checked.lock().await;
        match &*checked {
            Some((at, trouble)) if at.elapsed() < CHECK => trouble.clone(),
            _ => {
                let trouble = self.read("/health").await.err();
                let trouble = trouble.map(|error| Chain(&error).to_string());
                *checked = Some((Instant::now(), trouble.clone()));
                trouble
            }
        }
    }

    fn key(&self, key: &str) -> Bytes {
        format!("{}{key}", self.prefix).into()
    }

    fn stored(&self, kv: &KeyValue) -> Result<Stored, StoreError> {
        let key = str::from_utf8(&kv.key).ok().and_then(|key| key.strip_prefix(&*self.prefix));
        let key = key.ok_or(StoreError::Answer { call: "range" })?.to_owned();
        Ok(Stored { key, value: kept(&kv.value), revision: revision_of(kv.mod_revision) })
    }
}

impl Store for Etcd {
    #[cfg(test)]
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StoreError>> {
        self.read(key).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, StoreError>> {
        self.read_all(prefix).boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<ResourceVersion, WriteError>> {
        self.commit(write).boxed()
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: ResourceVersion,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Event, WatchError>>, WatchError>> {
        ready(self.history.watch(prefix, after)).boxed()
    }

    fn compact(&self, before: ResourceVersion) -> BoxFuture<'_, Result<(), StoreError>> {
        self.forget(before).boxed()
    }

    fn trouble(&self) -> BoxFuture<'_, Option<String>> {
        self.check().boxed()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.history.close();
    }
}

/// The newest revision of etcd, which all its users advance.
async fn newest_revision(client: &Client, prefix: &str) -> Result<ResourceVersion, StoreError> {
    let (key, range_end) = range_of(prefix.as_bytes());
    let request = RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
    let answer = client.range(request).await.map_err(|error| error.into_store("range"))?;
    let header = answer.header.ok_or(StoreError::Answer { call: "range" })?;
    Ok(revision_of(header.revision))
}

/// Compares, then puts or deletes, or else reads what is there.
fn transaction(key: Bytes, write: Write) -> TxnRequest {
    let revision = match write.expected {
        // A key that is absent has the revision 0.
        Expected::Absent => 0,
        Expected::At(revision) => i64::try_from(revision.get()).unwrap_or(i64::MAX),
    };
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.clone(),
        mod_revision: Some(revision),
    };
    let read = RangeRequest { key: key.clone(), ..RangeRequest::default() };
    let mut perform = RequestOp::default();
    match write.value {
        Some(value) => perform.request_put = Some(PutRequest { key, value }),
        None => perform.request_delete_range = Some(DeleteRangeRequest { key }),
    }
    TxnRequest {
        compare: vec![compare],
        success: vec![perform],
        failure: vec![RequestOp { request_range: Some(read), ..RequestOp::default() }],
    }
}

/// etcd counts from 1 and never below.
fn revision_of(revision: i64) -> ResourceVersion {
    u64::try_from(revision).unwrap_or(0).into()
}

/// A store in an etcd of its own, if this machine has one.
#[cfg(test)]
pub(super) async fn open_for_tests() -> Option<(Etcd, waybill_testkit::etcd::EtcdServer)> {
    let server = waybill_testkit::etcd::EtcdServer::start()?;
    let open = async || Etcd::open(server::config(&server, "/test")).await;
    let store = server::eventually(open).await;
    Some((store, server))
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, fs};

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use waybill_core::chain::Chain;
    use waybill_testkit::etcd::{EtcdServer, EtcdTls as ServerTls};

    use super::{
        server::{config, eventually},
        *,
    };
    use crate::store::{contract, sealed::tests::all_sealed};

    fn create(key: &str) -> Write {
        let value = Some(Bytes::from_static(b"x"));
        Write { key: key.into(), expected: Expected::Absent, value }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn keeps_the_contract() {
        let Some(server) = EtcdServer::start() else { return };
        contract::check_all(async |name| {
            let open = async || Etcd::open(config(&server, &format!("/test/{name}"))).await;
            (Arc::new(eventually(open).await) as Arc<dyn Store>, ())
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn keeps_the_contract_when_it_is_sealed() {
        let Some(server) = EtcdServer::start() else { return };
        contract::check_all(async |name| {
            let open = async || Etcd::open(config(&server, &format!("/sealed/{name}"))).await;
            (all_sealed(Arc::new(eventually(open).await)), ())
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reopening_keeps_objects_and_revisions() {
        let Some(server) = EtcdServer::start() else { return };
        let store = eventually(async || Etcd::open(config(&server, "/w")).await).await;
        store.write(create("/a")).await.unwrap();
        let before = store.list("").await.unwrap();
        drop(store);
        let store = Etcd::open(config(&server, "/w")).await.unwrap();
        assert_eq!(store.list("").await.unwrap(), before);
        assert!(store.write(create("/b")).await.unwrap() > before.revision);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_watch_goes_on_after_etcd_was_killed() {
        let Some(mut server) = EtcdServer::start() else { return };
        let store = eventually(async || Etcd::open(config(&server, "/w")).await).await;
        let start = store.list("").await.unwrap().revision;
        let mut watch = store.watch("/a", start).await.unwrap();
        let mut written = vec![store.write(create("/a/0")).await.unwrap()];
        for at in 1..4 {
            server.restart();
            eventually(async || store.get("/a/0").await).await;
            written.push(store.write(create(&format!("/a/{at}"))).await.unwrap());
        }
        let seen = contract::changes(&mut watch, written.len()).await;
        assert_eq!(seen.iter().map(|change| change.revision).collect::<Vec<_>>(), written);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_writes_of_another_server_are_seen_and_other_prefixes_are_not() {
        let Some(server) = EtcdServer::start() else { return };
        let ours = eventually(async || Etcd::open(config(&server, "/w")).await).await;
        let start = ours.list("").await.unwrap().revision;
        let theirs = Etcd::open(config(&server, "/w")).await.unwrap();
        let foreign = Etcd::open(config(&server, "/x")).await.unwrap();
        foreign.write(create("/a")).await.unwrap();
        let revision = theirs.write(create("/a")).await.unwrap();
        let seen = contract::changes(&mut ours.watch("", start).await.unwrap(), 1).await;
        assert_eq!((&*seen[0].key, seen[0].revision), ("/a", revision));
        assert_eq!(ours.list("").await.unwrap().objects.len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pages_shrink_until_they_fit() {
        let Some(server) = EtcdServer::start() else { return };
        let store = eventually(async || Etcd::open(config(&server, "/w")).await).await;
        let value = Some(Bytes::from(vec![b'x'; 3 << 20]));
        for at in 0..24 {
            let (key, expected, value) = (format!("/{at:02}"), Expected::Absent, value.clone());
            store.write(Write { key, expected, value }).await.unwrap();
        }
        let list = store.list("").await.unwrap();
        assert_eq!(list.objects.len(), 24);
        assert!(list.objects.is_sorted_by(|one, next| one.key < next.key));
    }

    #[tokio::test]
    async fn an_etcd_that_is_not_there_is_an_error_in_time() {
        let config = EtcdConfig {
            endpoints: vec!["http://127.0.0.1:1".into(), "http://127.0.0.1:2".into()],
            prefix: "/w".into(),
            tls: None,
            tls_source: None,
            user: None,
            timeout: Duration::from_millis(300),
            history: Limits::default(),
        };
        let opened = tokio::time::timeout(Duration::from_secs(5), Etcd::open(config)).await;
        assert!(opened.unwrap().is_err());
    }

    #[tokio::test]
    async fn the_cause_of_a_lost_connection_is_told_once() {
        let error = Etcd::open(EtcdConfig::new(vec!["http://127.0.0.1:1".into()])).await.err();
        assert_eq!(
            Chain(&error.unwrap()).to_string(),
            "etcd: range: transport error: tcp connect error: Connection refused (os error 111)"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_password_is_enough_for_an_etcd_that_asks_for_one() {
        let Some(mut server) = EtcdServer::start() else { return };
        let open = Etcd::open(config(&server, "/w")).await.unwrap();
        client::ask_for_passwords(&open.client, "root", "hunter2").await;
        let log_in = |password: &str| {
            let password = SecretBytes::from(password.as_bytes().to_vec());
            let user = Some(EtcdUser { name: "root".into(), password });
            EtcdConfig { user, ..config(&server, "/w") }
        };
        let refused = |error: Option<StoreError>| Chain(&error.unwrap()).to_string();
        let stranger = Etcd::open(config(&server, "/w")).await.err();
        assert_eq!(
            refused(stranger),
            "etcd: range: etcdserver: user name is empty (InvalidArgument)"
        );
        assert_eq!(
            refused(Etcd::open(log_in("wrong")).await.err()),
            "etcd: range: etcdserver: authentication failed, invalid user ID or password \
             (InvalidArgument)"
        );

        let store = Etcd::open(log_in("hunter2")).await.unwrap();
        let start = store.list("").await.unwrap().revision;
        let mut watch = store.watch("", start).await.unwrap();
        let mut written = vec![store.write(create("/0")).await.unwrap()];
        // A new etcd knows none of the tokens of the old one.
        server.restart();
        eventually(async || store.get("/0").await).await;
        written.push(store.write(create("/1")).await.unwrap());
        let seen = contract::changes(&mut watch, written.len()).await;
        assert_eq!(seen.iter().map(|change| change.revision).collect::<Vec<_>>(), written);
    }

    /// Who signs, and pairs of files that it signed.
    struct Signer(CertifiedIssuer<'static, KeyPair>);

    impl Signer {
        fn new() -> Self {
            let mut ca = CertificateParams::new([]).unwrap();
            ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            Self(CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap())
        }

        fn issue(&self) -> (String, String) {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([String::from("127.0.0.1")]).unwrap();
            (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
        }

        /// What a client shows to an etcd whose certificate `server` signed.
        fn client_tls(&self, server: &Self) -> EtcdTls {
            let (certificate, key) = self.issue();
            let key = SecretBytes::from(key.into_bytes());
            let identity = Some(EtcdIdentity { certificate: certificate.into(), key });
            EtcdTls { ca: server.0.pem().into(), identity }
        }

        /// An etcd that believes whom this signer signed.
        fn server(&self, directory: &std::path::Path) -> Option<EtcdServer> {
            let write = |name: &str, content: &str| {
                let path = directory.join(name);
                fs::write(&path, content).unwrap();
                path
            };
            let (certificate, key) = self.issue();
            EtcdServer::start_tls(ServerTls {
                ca: write("ca.pem", &self.0.pem()),
                certificate: write("server.pem", &certificate),
                key: write("server.key", &key),
            })
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn both_sides_prove_who_they_are() {
        let (directory, signer) = (tempfile::tempdir().unwrap(), Signer::new());
        let Some(server) = signer.server(directory.path()) else { return };
        let with = |tls| EtcdConfig { tls: Some(tls), ..config(&server, "/w") };
        let store = eventually(async || Etcd::open(with(signer.client_tls(&signer))).await).await;
        store.write(create("/a")).await.unwrap();
        let nobody = EtcdTls { identity: None, ..signer.client_tls(&signer) };
        assert!(Etcd::open(with(nobody)).await.is_err());
    }

    /// It was read once: a server that ran longer than its certificate lost its store until somebody restarted it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_certificate_that_is_replaced_is_used_without_a_restart() {
        let (directory, old, new) = (tempfile::tempdir().unwrap(), Signer::new(), Signer::new());
        let Some(mut server) = old.server(directory.path()) else { return };
        let found = Arc::new(std::sync::Mutex::new(VecDeque::new()));
        let queue = Arc::clone(&found);
        let read = move || queue.lock().unwrap().pop_front().ok_or("there is no file".into());
        let every = Duration::from_millis(20);
        let store = eventually(async || {
            let source = TlsSource { every, ..TlsSource::new(read.clone()) };
            let tls = Some(old.client_tls(&old));
            Etcd::open(EtcdConfig { tls, tls_source: Some(source), ..config(&server, "/w") }).await
        })
        .await;
        store.write(create("/a")).await.unwrap();
        // From now on etcd believes another signer, and shows the certificate that it had.
        fs::write(directory.path().join("ca.pem"), new.0.pem()).unwrap();
        server.restart();
        assert!(store.get("/a").await.is_err());
        let half = EtcdTls {
            identity: Some(EtcdIdentity {
                certificate: new.issue().0.into(),
                key: SecretBytes::from(new.issue().1.into_bytes()),
            }),
            ..new.client_tls(&old)
        };
        found.lock().unwrap().extend([half, new.client_tls(&old)]);
        assert!(eventually(async || store.get("/a").await).await.is_some());
        eventually(async || store.write(create("/b")).await).await;
    }
}
