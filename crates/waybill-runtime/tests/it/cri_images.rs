//! Images over CRI and over our own service.

use tonic::Code;
use waybill_proto::{
    cri::{
        ImageFilter, ImageFsInfoRequest, ImageSpec, ImageStatusRequest, ListImagesRequest,
        RemoveImageRequest,
    },
    runtime::ExportRequest,
};

use crate::cri_lab::{CriLab, IMAGE};

fn spec(image: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: image.into(), ..ImageSpec::default() })
}

#[tokio::test]
async fn an_image_is_imported_listed_exported_and_removed() {
    let Some(lab) = CriLab::open().await else { return };
    let mut images = lab.images().await;
    let filter = Some(ImageFilter { image: spec(IMAGE) });
    let found = images.list_images(ListImagesRequest { filter }).await.unwrap().into_inner().images;
    assert_eq!(found.len(), 1);
    assert!(found[0].id.starts_with("sha256:") && found[0].size > 0);
    assert_eq!(found[0].repo_tags, [IMAGE]);

    let archive = lab.export(IMAGE).await;
    let remove = || RemoveImageRequest { image: spec(IMAGE) };
    images.remove_image(remove()).await.unwrap();
    images.remove_image(remove()).await.unwrap();
    let status = ImageStatusRequest { image: spec(IMAGE), verbose: false };
    assert!(images.image_status(status).await.unwrap().into_inner().image.is_none());

    assert_eq!(lab.import(&archive, "localhost/again:2").await, ["localhost/again:2"]);
    let status = ImageStatusRequest { image: spec("localhost/again:2"), verbose: true };
    let response = images.image_status(status).await.unwrap().into_inner();
    assert_eq!(response.image.unwrap().id, found[0].id);
    assert!(response.info["info"].contains("imageSpec"));
    let usage = images.image_fs_info(ImageFsInfoRequest {}).await.unwrap().into_inner();
    assert!(usage.image_filesystems[0].used_bytes.as_ref().unwrap().value > 0);
    lab.close().await;
}

/// As kubelets expect: one call, whichever of its names is given.
#[tokio::test]
async fn an_image_has_all_its_names_and_goes_with_them() {
    let Some(lab) = CriLab::open().await else { return };
    let mut images = lab.images().await;
    let archive = lab.export(IMAGE).await;
    let names = ["localhost/again:2", "localhost/again:3", IMAGE];
    let list = || ListImagesRequest { filter: None };
    for by_id in [true, false] {
        for name in names {
            lab.import(&archive, name).await;
        }
        let found = images.list_images(list()).await.unwrap().into_inner().images;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].repo_tags, names);
        let image = spec(if by_id { &found[0].id } else { "localhost/again:3" });
        images.remove_image(RemoveImageRequest { image }).await.unwrap();
        let left = images.list_images(list()).await.unwrap().into_inner().images;
        assert!(left.is_empty(), "{left:?}");
    }
    lab.close().await;
}

#[tokio::test]
async fn what_is_not_an_image_is_refused() {
    let Some(lab) = CriLab::open().await else { return };
    let mut images = lab.images().await;
    let empty = ImageStatusRequest { image: None, verbose: false };
    assert_eq!(images.image_status(empty).await.unwrap_err().code(), Code::InvalidArgument);
    let pieces = futures_util::stream::iter([waybill_proto::runtime::ImportRequest {
        data: b"not an archive".to_vec(),
        ..Default::default()
    }]);
    let refused = lab.archives().await.import(pieces).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
    let missing = ExportRequest { image: "localhost/none:1".into() };
    assert_eq!(lab.archives().await.export(missing).await.unwrap_err().code(), Code::NotFound);
    lab.close().await;
}
