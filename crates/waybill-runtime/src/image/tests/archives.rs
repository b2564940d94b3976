//! Archives of every kind, and what is wrong with some.

use serde_json::json;

use super::{testing::oci_archive, *};

fn import(archive: &[u8]) -> Result<Vec<Image>> {
    Fixture::new().images.import(archive, None)
}

#[track_caller]
fn check_refused(archive: &[u8], expected: &str) {
    let fixture = Fixture::new();
    let error = fixture.images.import(archive, None).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert_eq!(fixture.counts(), (0, 0, 0), "{error}");
    assert!(fixture.images.list().is_empty());
}

/// As `docker save` of old wrote it: layers in directories, the same one by a link.
fn docker_archive(samples: &[(&Sample, &[&str])]) -> Tarball {
    let mut archive = Tarball::new();
    let mut entries = Vec::new();
    for (sample, tags) in samples {
        let config = format!("{}.json", sample.id().hex());
        archive = archive.file(&config, &sample.configuration);
        let mut layers = Vec::new();
        for (at, layer) in sample.layers.iter().enumerate() {
            let directory = format!("{}-{at}", &sample.id().hex()[..20]);
            let path = format!("{directory}/layer.tar");
            let target = format!("../{}/layer.tar", Digest::of(layer).hex());
            archive = archive.file(&target[3..], layer).symlink(&path, &target);
            layers.push(path);
        }
        entries.push(json!({ "Config": config, "RepoTags": tags, "Layers": layers }));
    }
    archive.file("manifest.json", &serde_json::to_vec(&entries).unwrap())
}

#[test]
fn the_output_of_docker_save_is_imported() {
    let Some(fixture) = Fixture::open() else { return };
    let one = Sample::new("one", &[layer("base"), layer("one")]);
    let two = Sample::new("two", &[layer("base"), layer("two")]);
    let archive =
        docker_archive(&[(&one, &["one:1", "one:latest"]), (&two, &["example.com/two:2"])]);
    let images = fixture.images.import(archive.finish().as_slice(), None).unwrap();
    assert_eq!(images.len(), 2);
    assert_eq!(images[0].id, one.id());
    let tags = ["docker.io/library/one:1", "docker.io/library/one:latest"];
    assert_eq!(images[0].tags, tags);
    assert_eq!(fixture.images.find("example.com/two:2").unwrap().id, two.id());
    // Layers once, and for each image a configuration and a manifest.
    assert_eq!(fixture.counts(), (3 + 4, 3, 0));
}

#[test]
fn old_archives_name_images_in_another_file() {
    if !is_root() {
        return;
    }
    let sample = Sample::new("a", &[layer("a")]);
    let top = format!("{}-0", &sample.id().hex()[..20]);
    let repositories = json!({ "old": { "1.0": top, "2.0": "another" } });
    let archive = docker_archive(&[(&sample, &[])])
        .file("repositories", &serde_json::to_vec(&repositories).unwrap());
    assert_eq!(import(&archive.finish()).unwrap()[0].tags, ["docker.io/library/old:1.0"]);
}

#[test]
fn archives_may_be_compressed() {
    if !is_root() {
        return;
    }
    let sample = Sample::new("a", &[testing::gzip(&layer("a"))]);
    let archive = oci_archive_of(&sample, Some("app"));
    for packed in
        [testing::gzip(&archive), compress_to_vec(archive.as_slice(), CompressionLevel::Fastest)]
    {
        assert_eq!(import(&packed).unwrap()[0].id, sample.id());
    }
}

#[test]
fn a_given_name_replaces_those_of_the_archive_if_it_holds_one_image() {
    let Some(fixture) = Fixture::open() else { return };
    let one = Sample::new("one", &[layer("one")]);
    let archive = oci_archive_of(&one, Some("app"));
    let images = fixture.images.import(archive.as_slice(), Some("other:2")).unwrap();
    assert_eq!(images[0].tags, ["docker.io/library/other:2"]);
    assert!(fixture.images.find("app").is_none());
    let two = Sample::new("two", &[layer("two")]);
    let both = docker_archive(&[(&one, &[]), (&two, &[])]).finish();
    let error = fixture.images.import(both.as_slice(), Some("x")).unwrap_err().to_string();
    assert!(error.contains("holds 2 images"), "{error}");
    let error = fixture.images.import(archive.as_slice(), Some("X")).unwrap_err().to_string();
    assert!(error.contains("`X` does not name an image"), "{error}");
}

#[test]
fn an_archive_without_names_is_imported_by_id() {
    let Some(fixture) = Fixture::open() else { return };
    let sample = Sample::new("a", &[layer("a")]);
    let mut descriptor = sample.descriptor(None, None);
    // A tag alone names no repository.
    descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": "latest" });
    let blobs: Vec<_> = sample.blobs().map(Vec::as_slice).collect();
    let archive = oci_archive(&[descriptor.clone()], &blobs).finish();
    let image = fixture.images.import(archive.as_slice(), None).unwrap().remove(0);
    assert_eq!((image.tags.len(), image.digests.len()), (0, 0));
    assert!(fixture.images.find(&image.id.to_string()).is_some());
    descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": "app:2" });
    let archive = oci_archive(&[descriptor], &blobs).finish();
    let image = fixture.images.import(archive.as_slice(), None).unwrap().remove(0);
    assert_eq!(image.tags, ["docker.io/library/app:2"]);
}

#[test]
fn of_several_platforms_this_machine_gets_its_own() {
    if !is_root() {
        return;
    }
    let here = manifest::Platform::HERE.name();
    let other = Sample::new("other", &[layer("other")]);
    let ours = Sample::new("ours", &[layer("ours")]);
    let manifests =
        [other.descriptor(None, Some("linux/mips")), ours.descriptor(None, Some(&here))];
    let mut blobs: Vec<&[u8]> = ours.blobs().map(Vec::as_slice).collect();
    // Side by side in the layout itself; those of other platforms need not even be there.
    let flat = oci_archive(&manifests, &blobs).finish();
    assert_eq!(import(&flat).unwrap()[0].id, ours.id());
    // Or in an index of their own, beside an attestation.
    let mut attestation = other.descriptor(None, Some("unknown/unknown"));
    attestation["annotations"] = json!({ "vnd.docker.reference.type": "attestation-manifest" });
    let inner =
        json!({ "schemaVersion": 2, "manifests": [attestation, manifests[0], manifests[1]] });
    let inner = serde_json::to_vec(&inner).unwrap();
    blobs.push(&inner);
    let outer = json!({
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "digest": Digest::of(&inner),
        "size": inner.len(),
        "annotations": { "io.containerd.image.name": "docker.io/library/app:3" },
    });
    let image = import(&oci_archive(&[outer], &blobs).finish()).unwrap().remove(0);
    assert_eq!((image.id, image.tags), (ours.id(), vec!["docker.io/library/app:3".to_owned()]));
    let foreign: Vec<_> = other.blobs().map(Vec::as_slice).collect();
    let descriptor = other.descriptor(None, Some("linux/mips"));
    check_refused(&oci_archive(&[descriptor], &foreign).finish(), "there are: linux/mips");
}

#[test]
fn what_was_exported_can_be_imported_as_either_kind() {
    let Some(fixture) = Fixture::open() else { return };
    let image = fixture.import(&Sample::new("a", &[layer("a"), layer("b")]), "one:1");
    fixture.import(&Sample::new("b", &[layer("a")]), "two:2");
    let mut archive = Vec::new();
    fixture.images.export(&["one:1".into(), image.id.hex(), "two:2".into()], &mut archive).unwrap();
    let other = Fixture::new();
    other.images.import(archive.as_slice(), None).unwrap();
    assert_eq!(other.images.find("one:1").unwrap().id, image.id);
    assert_eq!(other.images.find("one:1").unwrap().digests, image.digests);
    assert!(other.images.find("two:2").is_some());
    // The way of docker: the manifest at the top, which names paths.
    let as_docker = without(&archive, "index.json");
    let third = Fixture::new();
    third.images.import(as_docker.as_slice(), None).unwrap();
    assert_eq!(third.images.find("one:1").unwrap().id, image.id);
    let error = fixture.images.export(&["three".into()], Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "there is no image `three`");
}

/// The archive with one file less.
fn without(archive: &[u8], path: &str) -> Vec<u8> {
    let mut reader = tar::Archive::new(archive);
    let mut writer = tar::Builder::new(Vec::new());
    for entry in reader.entries().unwrap() {
        let entry = entry.unwrap();
        if entry.path().unwrap() != Path::new(path) {
            writer.append(&entry.header().clone(), entry).unwrap();
        }
    }
    writer.into_inner().unwrap()
}

#[test]
fn damaged_and_hostile_archives_leave_nothing_behind() {
    if !is_root() {
        return;
    }
    let sample = Sample::new("a", &[layer("a")]);
    let descriptor = sample.descriptor(Some("app"), None);
    let blobs: Vec<_> = sample.blobs().map(Vec::as_slice).collect();
    let only = [descriptor.clone()];
    let with = |descriptor: &serde_json::Value| {
        oci_archive(std::slice::from_ref(descriptor), &blobs).finish()
    };
    check_refused(b"", "not an archive of images");
    check_refused(&[b'x'; 2000], "no tar archive");
    check_refused(&Tarball::new().file("a", b"").finish(), "not an archive of images");
    check_refused(&oci_archive(&[], &blobs).finish(), "holds no image");
    check_refused(&oci_archive(&only, &blobs[1..]).finish(), "lacks the blob");
    let mut wrong = descriptor.clone();
    wrong["size"] = json!(5);
    check_refused(&with(&wrong), "bytes and not 5");
    wrong["size"] = json!(-1);
    check_refused(&with(&wrong), "malformed");
    let mut wrong = descriptor.clone();
    wrong["mediaType"] = json!("text/plain");
    check_refused(&with(&wrong), "something else than images");
    let mut wrong = descriptor.clone();
    wrong["annotations"]["io.containerd.image.name"] = json!("../../x");
    check_refused(&with(&wrong), "does not name an image");
    let path = format!("blobs/sha256/{}", Digest::of(&sample.layers[0]).hex());
    let swapped = oci_archive(&only, &blobs[1..]).file(&path, &layer("b")).finish();
    check_refused(&swapped, "changed or damaged");
    let twice = oci_archive(&only, &blobs).file(&path, &layer("b")).finish();
    check_refused(&twice, "twice, with different contents");
    let lied = Sample::with_diffs("a", &[layer("a")], &[Digest::of(b"b")]);
    check_refused(&oci_archive_of(&lied, None), "changed or damaged");
    let few = Sample::with_diffs("a", &[layer("a")], &[]);
    check_refused(&oci_archive_of(&few, None), "1 layers and the digests of 0");
    let inner = Sample::new("a", &[Tarball::new().file("../x", b"").finish()]);
    check_refused(&oci_archive_of(&inner, None), "`..`");
    let upwards = oci_archive(&only, &blobs).file("../x", b"").finish();
    check_refused(&upwards, "the path `../x`");
    let device = oci_archive(&only, &blobs).device("x", b'3', 0, 0).finish();
    check_refused(&device, "which is no file");
    let links = Tarball::new().file("manifest.json", br#"[{"Config":"a","Layers":[]}]"#);
    check_refused(&links.symlink("a", "b").symlink("b", "a").finish(), "lacks its file");
    let outside = Tarball::new().file("manifest.json", br#"[{"Config":"/etc/hostname"}]"#);
    check_refused(&outside.finish(), "lacks its file `etc/hostname`");
    let deep = deep_index();
    check_refused(&deep, "too deep");
}

/// An index in an index in an index.
fn deep_index() -> Vec<u8> {
    let mut blobs: Vec<Vec<u8>> = Vec::new();
    let mut descriptor = json!({});
    for _ in 0..9 {
        let manifests = if blobs.is_empty() { vec![] } else { vec![descriptor] };
        let index =
            serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": manifests })).unwrap();
        descriptor = json!({
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "digest": Digest::of(&index),
            "size": index.len(),
        });
        blobs.push(index);
    }
    let blobs: Vec<_> = blobs.iter().map(Vec::as_slice).collect();
    oci_archive(&[descriptor], &blobs).finish()
}

#[test]
fn an_archive_cannot_fill_the_disk() {
    if !is_root() {
        return;
    }
    let archive = oci_archive_of(&Sample::new("a", &[layer("a")]), None);
    let check = |limits: Limits, expected: &str| {
        let state = tempfile::tempdir().unwrap();
        let images = Images::open_with(state.path(), limits).unwrap();
        let error = images.import(archive.as_slice(), None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let usual = Limits::default();
    check(Limits { archive_bytes: 3000, ..usual }, "the archive has more than 3000 bytes");
    check(Limits { archive_entries: 3, ..usual }, "the archive has more than 3 files");
    check(Limits { metadata_bytes: 10, ..usual }, "has more than 10 bytes");
    check(
        Limits { layer_entries: 0, layer_bytes: 1 << 20, ..usual },
        "a layer has more than 0 files",
    );
}
