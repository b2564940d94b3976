//! Values that change, against a scripted driver.

mod resume;

use serde_json::{Value, json};
use waybill_core::env::value::EnvValue;

use super::{
    super::testing::{Act, Cluster, DRIVER, ScriptedDriver},
    *,
};
use crate::{objects::testing, pod::PodOrigin};

struct Fixture {
    cluster: Cluster,
    csi: Csi,
    driver: ScriptedDriver,
}

impl Fixture {
    async fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        let cluster = Cluster::start().await;
        cluster.set_class("vault", json!({"envInjection.refreshInterval": "10s"}));
        let driver = ScriptedDriver::start(&cluster.socket(), acts);
        let csi = cluster.csi(cluster.config());
        Self { cluster, csi, driver }
    }

    /// A container starts.
    async fn start(&self, pod: &Pod) {
        let container = &pod.environments().containers[0];
        let fetched = self.csi.fetch(Asker { pod, container }, &variables(container)).await;
        assert!(fetched.failures.is_empty(), "{:?}", fetched.failures);
    }

    /// What is due next, asked now.
    async fn refresh(&self, pod: &Pod) -> bool {
        let next = self.csi.rotations.next().unwrap();
        let due = self.csi.rotations.take_due(next);
        assert_eq!(due.len(), 1, "{due:?}");
        self.csi.refresh(pod, &due[0]).await
    }

    /// It is time to ask for this pod.
    fn make_due(&self, pod: &Pod) {
        let mut running = self.csi.rotations.lock();
        for ((uid, _), it) in running.iter_mut() {
            for known in it.classes.values_mut().filter(|_| uid == pod.uid()) {
                known.due = Instant::now();
            }
        }
        self.csi.rotations.changed.notify_one();
    }

    #[track_caller]
    fn check_counted(&self, result: &str, number: u32) {
        let text = self.csi.metrics.text(0);
        let line = format!(
            "waybill_csi_env_rotations_total{{driver=\"{DRIVER}\",provider_class=\"vault\",\
             result=\"{result}\"}} {number}"
        );
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

fn answer(value: &str) -> Act {
    Act::Answer(vec![("A", value.as_bytes().to_vec(), ""), ("B", b"same".to_vec(), "")])
}

fn pod(annotation: &str, policy: &str) -> Pod {
    pod_of("u", annotation, policy)
}

fn pod_of(uid: &str, annotation: &str, policy: &str) -> Pod {
    let variable = |name: &str| {
        json!({"name": name, "valueFrom": {"csiSecretRef": {
            "driver": DRIVER, "providerClassName": "vault", "key": "k"}}})
    };
    let object = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": uid,
            "annotations": {"waybill.dev/restart-on-rotation": annotation}},
        "spec": {
            "restartPolicy": policy,
            "containers": [{"name": "app", "env": [variable("A"), variable("B")]}]},
    });
    Pod::from_value(object, PodOrigin::ApiServer).unwrap()
}

#[tokio::test]
async fn a_container_whose_value_changed_restarts_once() {
    let mut fixture = Fixture::new([answer("one"), answer("one"), answer("hunter2")]).await;
    let pod = pod("true", "Always");
    fixture.start(&pod).await;
    assert!(!fixture.refresh(&pod).await);
    fixture.check_counted("unchanged", 1);
    assert!(fixture.refresh(&pod).await);
    fixture.check_counted("restarted", 1);
    assert_eq!(fixture.csi.rotations.stale(pod.uid()), ["app".to_owned()].into());
    assert_eq!(fixture.csi.rotations.stale_variables(pod.uid(), "app"), ["A".to_owned()].into());
    assert!(!fixture.refresh(&pod).await, "it is known already");
    // The next container begins with the new value.
    fixture.start(&pod).await;
    assert!(fixture.csi.rotations.stale(pod.uid()).is_empty());
    assert!(!fixture.refresh(&pod).await);
    let (reason, message) = fixture.cluster.events(1).await.remove(0);
    assert_eq!(reason, "EnvVarRotated");
    assert_eq!(
        message,
        format!(
            "Values of [\"A\"] changed: driver \"{DRIVER}\", ProviderClass \"vault\", pod shop/web: \
             the container is restarted"
        )
    );
}

/// A driver that fails says nothing about a value.
#[tokio::test]
async fn a_driver_that_fails_restarts_nothing() {
    let failing = Act::Fail(tonic::Code::Internal, "down");
    let fixture = Fixture::new([answer("one"), failing]).await;
    let pod = pod("true", "Always");
    fixture.start(&pod).await;
    assert!(!fixture.refresh(&pod).await);
    fixture.driver.stop();
    assert!(!fixture.refresh(&pod).await);
    fixture.cluster.objects.lock().unwrap().may_use = Some(false);
    assert!(!fixture.refresh(&pod).await);
    fixture.check_counted("failed", 3);
    assert_eq!(fixture.driver.count("NodeGetEnvVars"), 2, "each is asked once");
    assert!(fixture.csi.rotations.stale(pod.uid()).is_empty());
}

/// CSI-42
#[tokio::test]
async fn a_driver_that_hangs_holds_up_no_other_rotation_csi_42() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let acts = [answer("one"), answer("one"), Act::Gate(Arc::clone(&gate)), answer("two")];
    let mut fixture = Fixture::new(acts).await;
    fixture.csi.config.rpc_timeout = Duration::from_secs(60);
    let pods = ["slow", "quick"].map(|uid| Arc::new(pod_of(uid, "true", "Always")));
    let [slow, quick] = &pods;
    fixture.start(slow).await;
    fixture.start(quick).await;
    let (woken, mut wakes) = tokio::sync::mpsc::unbounded_channel();
    let find = |uid: &PodUid| pods.iter().find(|pod| pod.uid() == uid).cloned();
    let following = fixture.csi.follow_rotations(find, |uid| woken.send(uid.clone()).unwrap());
    let checks = async {
        fixture.make_due(slow);
        while fixture.driver.requests().len() < 3 {
            tokio::task::yield_now().await;
        }
        // What is under way is not asked for twice.
        fixture.make_due(slow);
        fixture.make_due(quick);
        assert_eq!(wakes.recv().await.as_ref(), Some(quick.uid()));
        gate.add_permits(1);
        assert_eq!(wakes.recv().await.as_ref(), Some(slow.uid()));
        assert_eq!(fixture.driver.requests().len(), 4);
    };
    tokio::select! {
        () = following => unreachable!("it goes on for ever"),
        () = checks => {}
    }
}

#[tokio::test]
async fn a_container_that_never_restarts_keeps_its_values_and_is_told_of() {
    let mut fixture = Fixture::new([answer("one"), answer("two")]).await;
    let pod = pod("true", "Never");
    fixture.start(&pod).await;
    assert!(!fixture.refresh(&pod).await);
    fixture.check_counted("kept", 1);
    assert_eq!(fixture.csi.rotations.stale_variables(pod.uid(), "app"), ["A".to_owned()].into());
    let (_, message) = fixture.cluster.events(1).await.remove(0);
    assert!(message.ends_with("since its restart policy is Never"), "{message}");
}

#[tokio::test]
async fn only_pods_that_ask_for_it_are_followed() {
    let fixture = Fixture::new([Act::Echo]).await;
    for annotation in ["false", "True", ""] {
        fixture.start(&pod(annotation, "Always")).await;
    }
    fixture.cluster.set_class("still", Value::Null);
    assert_eq!(fixture.csi.rotations.next(), None);
    fixture.start(&pod("true", "Always")).await;
    assert!(fixture.csi.rotations.next().is_some());
    fixture.csi.forget(pod("true", "Always").uid());
    assert_eq!(fixture.csi.rotations.next(), None);
    // And a pod without variables of drivers neither.
    fixture.start(&testing::pod(json!({"containers": [{"name": "app"}]}))).await;
    assert_eq!(fixture.csi.rotations.next(), None);
}

#[test]
fn refreshes_are_spread_and_never_early() {
    let rotations = Rotations::new(None);
    let interval = Duration::from_secs(100);
    let spread = |number: u32| {
        let pod = PodUid::parse(&format!("pod-{number}")).unwrap();
        rotations.spread(&pod, "app", "vault", interval)
    };
    let all: BTreeSet<_> = (0..100).map(spread).collect();
    assert!(all.len() > 90, "{}", all.len());
    assert!(all.iter().all(|it| (interval..=interval * 6 / 5).contains(it)));
}

/// Whoever reads the hashes of one container cannot compare them with those of another.
#[test]
fn hashes_are_nonsense_under_another_key() {
    let value = EnvValue::secret(b"hunter2".to_vec()).unwrap();
    let (one, other) = (Key::random(), Key::random());
    assert_eq!(one.hash_value(&value), one.hash_value(&value));
    assert_ne!(one.hash_value(&value), other.hash_value(&value));
}
