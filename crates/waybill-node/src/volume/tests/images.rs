//! Images as volumes.

use waybill_proto::cri::{ImageSpec, MountPropagation};

use super::*;

/// A pod that mounts an image as `v`.
fn with_mount(mut mount: Value) -> Pod {
    mount["name"] = "v".into();
    pod(json!({
        "volumes": [{ "name": "v", "image": { "reference": "tools:1", "pullPolicy": "Never" } }],
        "containers": [{ "name": "a", "image": "i", "volumeMounts": [mount] }],
    }))
}

async fn mount(mount: Value) -> Result<Mount, VolumeError> {
    let fixture = Fixture::new(FakeObjects::default());
    let pod = with_mount(mount);
    fixture.volumes.prepare(&pod).await?;
    let container = pod.containers().next().unwrap();
    let image = ImageSpec {
        image: "sha256:1".to_owned(),
        user_specified_image: "tools:1".to_owned(),
        ..ImageSpec::default()
    };
    let images = VolumeImages::from([("v".to_owned(), image)]);
    let mounts = fixture.volumes.mounts(&pod, container, &Environment::new(), &images).await?;
    assert!(!fixture.pod_directory().exists(), "the node has no files of it");
    Ok(mounts.into_iter().next().unwrap())
}

#[tokio::test]
async fn the_runtime_gets_the_image_and_mounts_it_read_only() {
    let whole = mount(json!({ "mountPath": "tools" })).await.unwrap();
    assert_eq!(whole.image.unwrap().image, "sha256:1");
    assert_eq!((whole.container_path.as_str(), whole.host_path.as_str()), ("/tools", ""));
    assert!(whole.readonly && whole.image_sub_path.is_empty());
    assert_eq!(whole.propagation, i32::from(MountPropagation::PropagationPrivate));
    let part = mount(json!({ "mountPath": "/t", "subPath": "usr/bin", "readOnly": false })).await;
    let part = part.unwrap();
    assert_eq!(part.image_sub_path, "usr/bin");
    assert!(part.readonly);
}

#[tokio::test]
async fn a_part_outside_of_the_image_is_refused() {
    for path in ["../etc", "/etc", "a/../../b"] {
        let refused = mount(json!({ "mountPath": "/t", "subPath": path })).await;
        assert!(refused.is_err(), "{path}");
    }
}

/// Env files are read from volumes of the node's own.
#[test]
fn an_image_has_no_place_on_the_machine() {
    let fixture = Fixture::new(FakeObjects::default());
    let pod = with_mount(json!({ "mountPath": "/t" }));
    assert_eq!(host_path(&fixture.volumes.directories, &pod, "v"), None);
}
