//! Plugins that want the same name, or say what no node can use.

use std::os::unix::fs::symlink;

use tokio::sync::Barrier;
use tonic::Status;
use waybill_proto::csi::{NodeGetInfoResponse, Topology};

use super::*;

impl Fixture {
    /// A driver that says so much of its node.
    fn driver(&self, file: &str, info: NodeGetInfoResponse) -> (PathBuf, DropGuard) {
        self.driver_with(file, info, None)
    }

    /// It meets the test when it is asked, and again before it answers.
    fn driver_with(
        &self,
        file: &str,
        info: NodeGetInfoResponse,
        meeting: Option<Arc<Barrier>>,
    ) -> (PathBuf, DropGuard) {
        let path = self.dir.path().join(file);
        let serving = fake_grpc::serve(&path, move |call, _| {
            let (info, meeting) = (info.clone(), meeting.clone());
            async move {
                match call.as_str() {
                    "NodeGetInfo" => {
                        if let Some(meeting) = meeting {
                            meeting.wait().await;
                            meeting.wait().await;
                        }
                        Ok(info.encode_to_vec())
                    }
                    _ => Err(Status::unimplemented("not here")),
                }
            }
        });
        (path, serving)
    }

    fn info_at(&self, version: &str, endpoint: &Path) -> PluginInfo {
        PluginInfo { endpoint: endpoint.display().to_string(), ..self.info(version) }
    }

    async fn wait_for_holder(&self, file: &str) {
        let holds = |all: &std::collections::BTreeMap<DriverName, _>| {
            all.get(&name())
                .is_some_and(|it: &crate::csi::drivers::Registered| it.by.ends_with(file))
        };
        self.drivers.registered().wait_for(holds).await.unwrap();
    }
}

fn node(id: &str) -> NodeGetInfoResponse {
    NodeGetInfoResponse { node_id: id.to_owned(), ..Default::default() }
}

/// CSI-26
#[tokio::test]
async fn a_driver_that_answers_late_does_not_displace_a_higher_version_csi_26() {
    let fixture = Fixture::new();
    let meeting = Arc::new(Barrier::new(2));
    let (late, _late) = fixture.driver_with("late.sock", node("n1"), Some(Arc::clone(&meeting)));
    let (quick, _quick) = fixture.driver("quick.sock", node("n1"));
    let mut first = fixture.registrar("a.sock", fixture.info_at("1.0.0", &late));
    meeting.wait().await;
    let mut second = fixture.registrar("b.sock", fixture.info_at("1.1.0", &quick));
    assert!(second.told().await.plugin_registered);
    meeting.wait().await;
    let told = first.told().await;
    assert!(!told.plugin_registered);
    assert!(told.error.contains("registered already"), "{}", told.error);
    assert!(fixture.drivers.registered().borrow()[&name()].by.ends_with("b.sock"));
}

/// CSI-26, CSI-43
#[tokio::test]
async fn a_displaced_driver_comes_back_when_the_other_goes_csi_26_csi_43() {
    let fixture = Fixture::new();
    let driver = ScriptedDriver::start(&fixture.endpoint(), [Act::Echo]);
    driver.set_capable(false);
    let mut first = fixture.registrar("a.sock", fixture.info("1.0.0"));
    assert!(first.told().await.plugin_registered);
    let mut second = fixture.registrar("b.sock", fixture.info("1.1.0"));
    assert!(second.told().await.plugin_registered);
    fixture.wait_for_holder("b.sock").await;
    second.remove();
    let again = timeout(Duration::from_secs(30), first.told()).await;
    assert!(again.expect("the first is asked again").plugin_registered);
    fixture.wait_for_holder("a.sock").await;
}

/// CSI-26: who claims a higher version gets no tokens of pods for it.
#[tokio::test]
async fn nobody_displaces_a_driver_of_variables_csi_26() {
    let fixture = Fixture::new();
    let _driver = ScriptedDriver::start(&fixture.endpoint(), [Act::Echo]);
    let mut first = fixture.registrar("a.sock", fixture.info("1.0.0"));
    assert!(first.told().await.plugin_registered);
    let mut second = fixture.registrar("b.sock", fixture.info("1.18446744073709551615.0"));
    let told = second.told().await;
    assert!(!told.plugin_registered);
    assert!(told.error.contains("is registered already, by "), "{}", told.error);
    // It is its turn when the other has gone, as in an upgrade.
    first.remove();
    let later = timeout(Duration::from_secs(30), second.told()).await;
    assert!(later.expect("the second is asked again").plugin_registered);
}

/// OP-43: one such driver would keep all others out of the CSINode.
#[tokio::test]
async fn what_no_csi_node_can_hold_is_not_registered_op_43() {
    let fixture = Fixture::new();
    let keyed = |keys: &[String]| NodeGetInfoResponse {
        accessible_topology: Some(Topology {
            segments: keys.iter().map(|key| (key.clone(), "a".to_owned())).collect(),
        }),
        ..node("n1")
    };
    let many: Vec<String> = (0..65).map(|number| format!("zone-{number}")).collect();
    for (number, (info, expected)) in [
        (node(""), "0 bytes"),
        (node(&"i".repeat(257)), "257 bytes"),
        (keyed(&["a b".to_owned()]), "topology key \"a b\""),
        (keyed(&["z".repeat(1 << 20)]), "topology key \"zzz"),
        (keyed(&many), "65 topology keys"),
    ]
    .into_iter()
    .enumerate()
    {
        let (endpoint, _driver) = fixture.driver(&format!("d{number}.sock"), info);
        let plugin = fixture.info_at("1.0.0", &endpoint);
        let told = fixture.registrar(&format!("r{number}.sock"), plugin).told().await;
        assert!(!told.plugin_registered, "{expected}");
        assert!(told.error.contains(expected), "{expected}: {}", told.error);
        assert!(told.error.len() < 2000, "{}", told.error.len());
    }
    assert!(fixture.drivers.registered().borrow().is_empty());
    let (endpoint, _driver) = fixture.driver("good.sock", node(&"i".repeat(256)));
    let plugin = fixture.info_at("1.0.0", &endpoint);
    assert!(fixture.registrar("good.sock", plugin).told().await.plugin_registered);
}

/// CSI-26
#[tokio::test]
async fn only_sockets_of_this_user_or_of_root_are_asked_csi_26() {
    let fixture = Fixture::new();
    let directory = fixture.dir.path().join("sockets");
    fs::create_dir(&directory).unwrap();
    let bind = |file: &str| std::os::unix::net::UnixListener::bind(directory.join(file)).unwrap();
    let _listeners = [bind("own.sock"), bind("foreign.sock")];
    symlink(directory.join("own.sock"), directory.join("link.sock")).unwrap();
    let found = || -> Vec<_> {
        let mut found: Vec<_> = sockets(&directory).into_iter().map(|it| it.path).collect();
        found.sort();
        found
    };
    let [foreign, own] = ["foreign.sock", "own.sock"].map(|file| directory.join(file));
    assert_eq!(found(), [foreign.clone(), own.clone()]);
    // Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&foreign, Some(65534), None).unwrap();
        assert_eq!(found(), [own]);
    }
}
