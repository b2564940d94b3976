//! Reflectors of kube-rs: each holds what the server holds, also after the server was killed.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        watcher::{self, Event},
    },
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::json;
use tokio::task::JoinSet;
use waybill_testkit::apiserver::{ADMIN_TOKEN, ApiServer, Setup};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// By name, what each ConfigMap holds and its resourceVersion.
type Content = BTreeMap<String, (Option<BTreeMap<String, String>>, Option<String>)>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflector_that_lists_in_pages_follows_over_a_kill() {
    follow_over_a_kill(watcher::Config::default().page_size(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflector_that_streams_its_list_follows_over_a_kill() {
    follow_over_a_kill(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflector_that_lists_in_pages_lists_again_what_it_missed() {
    list_again(watcher::Config::default().page_size(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflector_that_streams_its_list_lists_again_what_it_missed() {
    list_again(watcher::Config::default().streaming_lists()).await;
}

async fn follow_over_a_kill(config: watcher::Config) {
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let setup = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path()).on_a_lasting_port();
    let mut server = setup.start();
    let maps = connect(&server);
    fill(&maps).await;
    let mirror = Mirror::start(maps.clone(), config);
    mirror.shows(&maps).await;
    change(&maps, 0).await;
    mirror.shows(&maps).await;

    server.kill();
    let server = setup.start();
    // Another client is there first; the reflector connects when its pause is over.
    let maps = connect(&server);
    change(&maps, 1).await;
    mirror.shows(&maps).await;
    change(&maps, 2).await;
    mirror.shows(&maps).await;
}

/// Between two lives of its server, another server on the same state takes changes, of which the
/// next one knows only the result. So the reflector cannot go on from where it was.
async fn list_again(config: watcher::Config) {
    let dir = tempfile::tempdir().expect("the temporary directory is writable");
    let elsewhere = Setup::new(env!("CARGO_BIN_EXE_waybill"), dir.path());
    let setup = elsewhere.clone().on_a_lasting_port();
    let mut server = setup.start();
    let maps = connect(&server);
    fill(&maps).await;
    let mirror = Mirror::start(maps.clone(), config);
    mirror.shows(&maps).await;
    assert_eq!(mirror.lists(), 1);

    server.kill();
    let mut other = elsewhere.start();
    change(&connect(&other), 0).await;
    other.kill();
    let server = setup.start();
    mirror.shows(&connect(&server)).await;
    assert_eq!((mirror.gone(), mirror.lists()), (1, 2), "told that it is gone, and listed again");
}

/// A reflector and what it went through.
struct Mirror {
    store: Store<ConfigMap>,
    lists: Arc<AtomicUsize>,
    gone: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Mirror {
    fn start(maps: Api<ConfigMap>, config: watcher::Config) -> Self {
        let (store, writer) = reflector::store();
        let (lists, gone) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (listed, refused) = (Arc::clone(&lists), Arc::clone(&gone));
        let events = kube::runtime::watcher(maps, config).default_backoff().reflect(writer);
        let mut task = JoinSet::new();
        task.spawn(events.for_each(move |event| {
            match event {
                Ok(Event::InitDone) => _ = listed.fetch_add(1, Ordering::SeqCst),
                Err(watcher::Error::WatchError(status)) if status.code == 410 => {
                    refused.fetch_add(1, Ordering::SeqCst);
                }
                // Errors are what a client sees of a server that is down.
                Ok(_) | Err(_) => {}
            }
            std::future::ready(())
        }));
        Self { store, lists, gone, _task: task }
    }

    /// Waits until the store holds what the server holds.
    async fn shows(&self, maps: &Api<ConfigMap>) {
        let expected = content(maps.list(&ListParams::default()).await.expect("a list").iter());
        let start = Instant::now();
        loop {
            let state = self.store.state();
            let found = content(state.iter().map(AsRef::as_ref));
            if found == expected {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{found:#?}\nis not\n{expected:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How often it has listed everything.
    fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }

    /// How often it was told that its version is gone.
    fn gone(&self) -> usize {
        self.gone.load(Ordering::SeqCst)
    }
}

fn content<'a>(maps: impl Iterator<Item = &'a ConfigMap>) -> Content {
    maps.map(|map| (map.name_any(), (map.data.clone(), map.resource_version()))).collect()
}

/// A client of its own, as an administrator.
fn connect(server: &ApiServer) -> Api<ConfigMap> {
    let url = format!("https://{}", server.address());
    let mut config = Config::new(url.parse().expect("a URL"));
    let ca = fs::read(server.state().join("ca.crt")).expect("the server writes its authority");
    let ca = CertificateDer::from_pem_slice(&ca).expect("a certificate");
    config.root_cert = Some(vec![ca.to_vec()]);
    config.auth_info.token = Some(ADMIN_TOKEN.to_owned().into());
    let client = Client::try_from(config).expect("the configuration is good");
    Api::namespaced(client, "default")
}

async fn fill(maps: &Api<ConfigMap>) {
    for number in 0..10 {
        create(maps, &format!("first-{number}")).await;
    }
}

/// One of the first ten is deleted, one changed, and another created.
async fn change(maps: &Api<ConfigMap>, round: usize) {
    create(maps, &format!("later-{round}")).await;
    let patch = Patch::Merge(json!({"data": {"round": round.to_string()}}));
    let changed = maps.patch("first-9", &PatchParams::default(), &patch).await;
    changed.expect("the server takes a patch");
    let name = format!("first-{round}");
    maps.delete(&name, &DeleteParams::default()).await.expect("the server deletes");
}

async fn create(maps: &Api<ConfigMap>, name: &str) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(BTreeMap::from([("name".to_owned(), name.to_owned())]));
    maps.create(&PostParams::default(), &map).await.expect("the server creates");
}
