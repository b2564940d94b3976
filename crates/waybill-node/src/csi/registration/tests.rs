//! Drivers that register, with a directory of real sockets.

mod rivals;

use std::sync::Mutex;

use prost::Message;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use waybill_core::id::DriverName;
use waybill_proto::registration::{PluginInfo, RegistrationStatus, RegistrationStatusResponse};

use super::{
    super::{
        csi_node::{self, CsiNodeKeeper},
        testing::{Act, DRIVER, ScriptedDriver},
    },
    *,
};
use crate::{
    fake_api::{FakeApi, Reply},
    fake_grpc,
};

/// A directory of plugins that is followed.
struct Fixture {
    dir: tempfile::TempDir,
    drivers: Arc<Drivers>,
    _stop: DropGuard,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let registry_dir = dir.path().join("registry");
        fs::create_dir(&registry_dir).unwrap();
        let drivers = Arc::new(Drivers::new(dir.path().join("plugins")));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let registry = Registry::new(&registry_dir, Arc::clone(&drivers), &tasks, &stop);
        tasks.spawn(stop.clone().run_until_cancelled_owned(registry.run()));
        Self { dir, drivers, _stop: stop.drop_guard() }
    }

    fn endpoint(&self) -> PathBuf {
        self.dir.path().join("elsewhere.sock")
    }

    /// A registrar at that socket. It passes on what it is told.
    fn registrar(&self, file: &str, info: PluginInfo) -> Registrar {
        let path = self.dir.path().join("registry").join(file);
        let (told, statuses) = mpsc::unbounded_channel();
        let serving = fake_grpc::serve(&path, move |call, body| {
            let (info, told) = (info.clone(), told.clone());
            async move {
                match call.as_str() {
                    "GetInfo" => Ok(info.encode_to_vec()),
                    _ => {
                        let status = RegistrationStatus::decode(body).unwrap();
                        told.send(status).unwrap();
                        Ok(RegistrationStatusResponse {}.encode_to_vec())
                    }
                }
            }
        });
        Registrar { path, statuses, _serving: serving }
    }

    fn info(&self, version: &str) -> PluginInfo {
        PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint().display().to_string(),
            supported_versions: vec![version.to_owned()],
        }
    }

    async fn wait_for(&self, number: usize) {
        self.drivers.registered().wait_for(|all| all.len() == number).await.unwrap();
    }
}

struct Registrar {
    path: PathBuf,
    statuses: mpsc::UnboundedReceiver<RegistrationStatus>,
    _serving: DropGuard,
}

impl Registrar {
    async fn told(&mut self) -> RegistrationStatus {
        self.statuses.recv().await.unwrap()
    }

    fn remove(self) {
        fs::remove_file(&self.path).unwrap();
    }
}

fn name() -> DriverName {
    DriverName::parse(DRIVER).unwrap()
}

/// CSI-26, CSI-43
#[tokio::test]
async fn a_driver_registers_is_told_so_and_goes_with_its_socket_csi_26_csi_43() {
    let fixture = Fixture::new();
    let _driver = ScriptedDriver::start(&fixture.endpoint(), [Act::Echo]);
    let mut registrar = fixture.registrar("mock-reg.sock", fixture.info("1.0.0"));
    assert_eq!(
        registrar.told().await,
        RegistrationStatus { plugin_registered: true, error: String::new() }
    );
    fixture.wait_for(1).await;
    let registered = fixture.drivers.registered().borrow()[&name()].clone();
    assert_eq!(registered.endpoint, fixture.endpoint());
    assert_eq!((&*registered.node_id, registered.injects), ("n1", true));
    assert!(fixture.drivers.connection(&name(), Duration::from_secs(5)).await.is_ok());
    registrar.remove();
    fixture.wait_for(0).await;
    // Not where it registered, and not at the fixed path either.
    assert!(fixture.drivers.connection(&name(), Duration::from_secs(5)).await.is_err());
}

/// A socket that was there before the node is found as well, and what is no socket is left alone.
#[tokio::test]
async fn what_was_there_first_is_registered() {
    let fixture = Fixture::new();
    let _driver = ScriptedDriver::start(&fixture.endpoint(), [Act::Echo]);
    fs::write(fixture.dir.path().join("registry/notes"), "").unwrap();
    let _hidden = fixture.registrar(".hidden.sock", fixture.info("1.0.0"));
    let _registrar = fixture.registrar("mock-reg.sock", fixture.info("1.0.0"));
    let drivers = Arc::new(Drivers::new(fixture.dir.path().join("plugins")));
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let directory = fixture.dir.path().join("registry");
    let registry = Registry::new(&directory, Arc::clone(&drivers), &tasks, &stop);
    let _stop = stop.clone().drop_guard();
    tasks.spawn(stop.run_until_cancelled_owned(registry.run()));
    let mut registered = drivers.registered();
    let all = registered.wait_for(|all| !all.is_empty()).await.unwrap();
    assert_eq!(all[&name()].by, directory.join("mock-reg.sock"));
}

/// As kubelets have it: the higher version wins, and the other is told why not. These serve volumes.
#[tokio::test]
async fn a_second_registrar_needs_a_higher_version() {
    let fixture = Fixture::new();
    let driver = ScriptedDriver::start(&fixture.endpoint(), [Act::Echo]);
    driver.set_capable(false);
    let mut first = fixture.registrar("a.sock", fixture.info("1.1.0"));
    assert!(first.told().await.plugin_registered);
    let mut equal = fixture.registrar("b.sock", fixture.info("1.1.0"));
    let told = equal.told().await;
    assert!(!told.plugin_registered);
    assert!(told.error.contains("registered already"), "{}", told.error);
    let mut higher = fixture.registrar("c.sock", fixture.info("1.2.0"));
    assert!(higher.told().await.plugin_registered);
    let by = fixture.drivers.registered().borrow()[&name()].by.clone();
    assert!(by.ends_with("c.sock"));
}

/// CSI-26
#[tokio::test]
async fn what_cannot_be_registered_is_told_why_csi_26() {
    let fixture = Fixture::new();
    let tcp = PluginInfo { endpoint: "tcp://127.0.0.1:1".to_owned(), ..fixture.info("1.0.0") };
    let told = fixture.registrar("tcp.sock", tcp).told().await;
    assert!(told.error.contains("is not an absolute path"), "{}", told.error);
    let told = fixture.registrar("none.sock", fixture.info("1.0.0")).told().await;
    assert!(told.error.contains("CSI driver socket not found at"), "{}", told.error);
    assert!(fixture.drivers.registered().borrow().is_empty());
}

/// OP-43: the scheduler reads which drivers give variables.
#[tokio::test]
async fn csi_node_says_which_drivers_there_are() {
    let stored = Arc::new(Mutex::new(None::<Value>));
    let answering = Arc::clone(&stored);
    let mut api = FakeApi::start(move |call| {
        let mut stored = answering.lock().unwrap();
        match call.line().as_str() {
            "PATCH /apis/storage.k8s.io/v1/csinodes/node-1" => match &*stored {
                Some(object) => Reply::ok(object.clone()),
                None => Reply::refuse(404, "NotFound"),
            },
            "GET /api/v1/nodes/node-1" => {
                Reply::ok(json!({"metadata": {"name": "node-1", "uid": "node-uid"}}))
            }
            "POST /apis/storage.k8s.io/v1/csinodes" => {
                *stored = Some(call.body.clone());
                Reply::Json(201, call.body.clone())
            }
            other => panic!("nobody should ask for {other}"),
        }
    })
    .await;
    let drivers = Drivers::new(PathBuf::new());
    let keeper =
        CsiNodeKeeper::new(api.client.clone(), "node-1", drivers.registered(), csi_node::LOOK);
    api.tasks.spawn(api.stop.clone().run_until_cancelled_owned(keeper.run()));
    let created = loop {
        let call = api.next().await;
        if call.method == http::Method::POST {
            break call.body;
        }
    };
    assert_eq!(created["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    assert_eq!(created["metadata"]["annotations"]["csi.waybill.dev/env-drivers"], "");
    let registered = |injects| crate::csi::drivers::Registered {
        endpoint: PathBuf::new(),
        by: PathBuf::from(if injects { "/a" } else { "/b" }),
        version: (1, 0, 0),
        node_id: "n1".to_owned(),
        topology_keys: vec!["zone".to_owned()],
        injects,
    };
    drivers.register(&name(), registered(true)).unwrap();
    drivers.register(&DriverName::parse("volumes.csi").unwrap(), registered(false)).unwrap();
    let patched = loop {
        let call = api.next().await;
        if call.body["spec"]["drivers"].as_array().is_some_and(|all| all.len() == 2) {
            break call;
        }
    };
    assert_eq!(patched.line(), "PATCH /apis/storage.k8s.io/v1/csinodes/node-1");
    assert_eq!(
        patched.body,
        json!({
            "metadata": {"annotations": {"csi.waybill.dev/env-drivers": DRIVER}},
            "spec": {"drivers": [
                {"name": DRIVER, "nodeID": "n1", "topologyKeys": ["zone"]},
                {"name": "volumes.csi", "nodeID": "n1", "topologyKeys": ["zone"]},
            ]},
        })
    );
}
