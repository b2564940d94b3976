//! Images as volumes.

use waybill_proto::cri::{
    ContainerConfig, CreateContainerRequest, ImageSpec, Mount, RemoveImageRequest,
};
use waybill_runtime::image::build::ImageBuilder;

use crate::cri_lab::{CriLab, sleeper};

const MODEL: &str = "localhost/model:1";

fn image(sub_path: &str) -> Mount {
    Mount {
        container_path: "/model".into(),
        readonly: true,
        image: Some(ImageSpec { image: MODEL.into(), ..ImageSpec::default() }),
        image_sub_path: sub_path.into(),
        ..Mount::default()
    }
}

fn with(mount: Mount) -> ContainerConfig {
    ContainerConfig { mounts: vec![mount], ..sleeper("c") }
}

async fn open() -> Option<CriLab> {
    let lab = CriLab::open().await?;
    let archive = ImageBuilder::new()
        .file("weights/first", 0o644, "one")
        .file("tool", 0o755, "#!/bin/sh\necho ran\n")
        .symlink("latest", "/weights")
        .archive(MODEL)
        .unwrap();
    lab.import(&archive, "").await;
    Some(lab)
}

#[tokio::test]
async fn an_image_is_seen_used_and_not_written_to() {
    let Some(mut lab) = open().await else { return };
    let (sandbox, id) = lab.run("whole", with(image(""))).await;
    assert_eq!(lab.sh(&id, "cat /model/weights/first").await, "one");
    assert_eq!(lab.sh(&id, "/model/tool").await, "ran");
    assert_ne!(lab.exec(&id, &["touch", "/model/file"]).await.exit_code, 0);
    // Who looks at the status learns which image it is, whatever its name means later.
    let told = lab.status(&id).await.mounts.remove(0).image.unwrap();
    assert_eq!(told.image, MODEL);
    assert!(told.image_ref.starts_with("sha256:"), "{told:?}");

    // Its layers stay while the container runs, also without the image and across a restart.
    let spec = ImageSpec { image: MODEL.into(), ..ImageSpec::default() };
    let request = RemoveImageRequest { image: Some(spec) };
    lab.images().await.remove_image(request).await.unwrap();
    lab.stop().await;
    lab.start().await;
    assert_eq!(lab.sh(&id, "cat /model/weights/first").await, "one");
    lab.remove(&sandbox).await;
    lab.close().await;
}

#[tokio::test]
async fn a_part_of_an_image_is_found_inside_it_or_refused() {
    let Some(lab) = open().await else { return };
    let (sandbox, id) = lab.run("part", with(image("weights"))).await;
    assert_eq!(lab.sh(&id, "cat /model/first").await, "one");
    lab.remove(&sandbox).await;
    // The link is absolute, and means the image's own directory.
    let (sandbox, id) = lab.run("link", with(image("latest"))).await;
    assert_eq!(lab.sh(&id, "ls /model").await, "first");
    lab.remove(&sandbox).await;

    let sandbox = lab.run_sandbox(lab.sandbox_config("refused")).await;
    let writable = Mount { readonly: false, ..image("") };
    let missing =
        Mount { image: Some(ImageSpec { image: "x".into(), ..Default::default() }), ..image("") };
    for mount in [image("none"), image("../etc"), writable, missing] {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.clone(),
            config: Some(with(mount.clone())),
            sandbox_config: None,
        };
        let refused = lab.runtime().await.create_container(request).await;
        assert!(refused.is_err(), "{mount:?}");
    }
    lab.remove(&sandbox).await;
    lab.close().await;
}
