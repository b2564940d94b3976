//! Volumes whose content Kubernetes knows.

use super::{
    container::{OBJECT_FIELD_SELECTOR, RESOURCE_FIELD_SELECTOR},
    meta::{LABEL_SELECTOR, OBJECT_META},
    objects::LOCAL_OBJECT_REFERENCE,
    volume_drivers::{
        AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE, AZURE_DISK_VOLUME_SOURCE, AZURE_FILE_VOLUME_SOURCE,
        CEPH_FS_VOLUME_SOURCE, CINDER_VOLUME_SOURCE, FC_VOLUME_SOURCE, FLEX_VOLUME_SOURCE,
        FLOCKER_VOLUME_SOURCE, GCE_PERSISTENT_DISK_VOLUME_SOURCE, GIT_REPO_VOLUME_SOURCE,
        GLUSTERFS_VOLUME_SOURCE, ISCSI_VOLUME_SOURCE, NFS_VOLUME_SOURCE,
        PHOTON_PERSISTENT_DISK_VOLUME_SOURCE, PORTWORX_VOLUME_SOURCE, QUOBYTE_VOLUME_SOURCE,
        RBD_VOLUME_SOURCE, SCALE_IO_VOLUME_SOURCE, STORAGE_OS_VOLUME_SOURCE,
        VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE,
    },
};
use crate::protobuf::table::{
    Message,
    Type::{Bool, Int32, Int64, Message as Nested, Quantity, Text},
    field, inline, kept, list, map,
};

pub(super) static VOLUME: Message = Message(&[kept(1, "name", Text), inline(2, &VOLUME_SOURCE)]);

static VOLUME_SOURCE: Message = Message(&[
    kept(1, "hostPath", Nested(&HOST_PATH_VOLUME_SOURCE)),
    kept(2, "emptyDir", Nested(&EMPTY_DIR_VOLUME_SOURCE)),
    kept(3, "gcePersistentDisk", Nested(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    kept(4, "awsElasticBlockStore", Nested(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    kept(5, "gitRepo", Nested(&GIT_REPO_VOLUME_SOURCE)),
    kept(6, "secret", Nested(&SECRET_VOLUME_SOURCE)),
    kept(7, "nfs", Nested(&NFS_VOLUME_SOURCE)),
    kept(8, "iscsi", Nested(&ISCSI_VOLUME_SOURCE)),
    kept(9, "glusterfs", Nested(&GLUSTERFS_VOLUME_SOURCE)),
    kept(10, "persistentVolumeClaim", Nested(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    kept(11, "rbd", Nested(&RBD_VOLUME_SOURCE)),
    kept(12, "flexVolume", Nested(&FLEX_VOLUME_SOURCE)),
    kept(13, "cinder", Nested(&CINDER_VOLUME_SOURCE)),
    kept(14, "cephfs", Nested(&CEPH_FS_VOLUME_SOURCE)),
    kept(15, "flocker", Nested(&FLOCKER_VOLUME_SOURCE)),
    kept(16, "downwardAPI", Nested(&DOWNWARD_API_VOLUME_SOURCE)),
    kept(17, "fc", Nested(&FC_VOLUME_SOURCE)),
    kept(18, "azureFile", Nested(&AZURE_FILE_VOLUME_SOURCE)),
    kept(19, "configMap", Nested(&CONFIG_MAP_VOLUME_SOURCE)),
    kept(20, "vsphereVolume", Nested(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE)),
    kept(21, "quobyte", Nested(&QUOBYTE_VOLUME_SOURCE)),
    kept(22, "azureDisk", Nested(&AZURE_DISK_VOLUME_SOURCE)),
    kept(23, "photonPersistentDisk", Nested(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE)),
    kept(24, "portworxVolume", Nested(&PORTWORX_VOLUME_SOURCE)),
    kept(25, "scaleIO", Nested(&SCALE_IO_VOLUME_SOURCE)),
    kept(26, "projected", Nested(&PROJECTED_VOLUME_SOURCE)),
    kept(27, "storageos", Nested(&STORAGE_OS_VOLUME_SOURCE)),
    kept(28, "csi", Nested(&CSI_VOLUME_SOURCE)),
    kept(29, "ephemeral", Nested(&EPHEMERAL_VOLUME_SOURCE)),
    kept(30, "image", Nested(&IMAGE_VOLUME_SOURCE)),
]);

static HOST_PATH_VOLUME_SOURCE: Message = Message(&[kept(1, "path", Text), kept(2, "type", Text)]);

static EMPTY_DIR_VOLUME_SOURCE: Message =
    Message(&[field(1, "medium", Text), field(2, "sizeLimit", Quantity)]);

static SECRET_VOLUME_SOURCE: Message = Message(&[
    field(1, "secretName", Text),
    list(2, "items", Nested(&KEY_TO_PATH)),
    kept(3, "defaultMode", Int32),
    kept(4, "optional", Bool),
]);

static KEY_TO_PATH: Message =
    Message(&[kept(1, "key", Text), kept(2, "path", Text), kept(3, "mode", Int32)]);

static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Message =
    Message(&[kept(1, "claimName", Text), field(2, "readOnly", Bool)]);

static DOWNWARD_API_VOLUME_SOURCE: Message =
    Message(&[list(1, "items", Nested(&DOWNWARD_API_VOLUME_FILE)), kept(2, "defaultMode", Int32)]);

static DOWNWARD_API_VOLUME_FILE: Message = Message(&[
    kept(1, "path", Text),
    kept(2, "fieldRef", Nested(&OBJECT_FIELD_SELECTOR)),
    kept(3, "resourceFieldRef", Nested(&RESOURCE_FIELD_SELECTOR)),
    kept(4, "mode", Int32),
]);

static CONFIG_MAP_VOLUME_SOURCE: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    list(2, "items", Nested(&KEY_TO_PATH)),
    kept(3, "defaultMode", Int32),
    kept(4, "optional", Bool),
]);

static PROJECTED_VOLUME_SOURCE: Message =
    Message(&[list(1, "sources", Nested(&VOLUME_PROJECTION)), kept(2, "defaultMode", Int32)]);

static VOLUME_PROJECTION: Message = Message(&[
    kept(1, "secret", Nested(&SECRET_PROJECTION)),
    kept(2, "downwardAPI", Nested(&DOWNWARD_API_PROJECTION)),
    kept(3, "configMap", Nested(&CONFIG_MAP_PROJECTION)),
    kept(4, "serviceAccountToken", Nested(&SERVICE_ACCOUNT_TOKEN_PROJECTION)),
    kept(5, "clusterTrustBundle", Nested(&CLUSTER_TRUST_BUNDLE_PROJECTION)),
    kept(6, "podCertificate", Nested(&POD_CERTIFICATE_PROJECTION)),
]);

static SECRET_PROJECTION: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    list(2, "items", Nested(&KEY_TO_PATH)),
    kept(4, "optional", Bool),
]);

static DOWNWARD_API_PROJECTION: Message =
    Message(&[list(1, "items", Nested(&DOWNWARD_API_VOLUME_FILE))]);

static CONFIG_MAP_PROJECTION: Message = Message(&[
    inline(1, &LOCAL_OBJECT_REFERENCE),
    list(2, "items", Nested(&KEY_TO_PATH)),
    kept(4, "optional", Bool),
]);

static SERVICE_ACCOUNT_TOKEN_PROJECTION: Message = Message(&[
    field(1, "audience", Text),
    kept(2, "expirationSeconds", Int64),
    kept(3, "path", Text),
]);

static CLUSTER_TRUST_BUNDLE_PROJECTION: Message = Message(&[
    kept(1, "name", Text),
    kept(2, "signerName", Text),
    kept(3, "labelSelector", Nested(&LABEL_SELECTOR)),
    kept(4, "path", Text),
    kept(5, "optional", Bool),
]);

static CSI_VOLUME_SOURCE: Message = Message(&[
    kept(1, "driver", Text),
    kept(2, "readOnly", Bool),
    kept(3, "fsType", Text),
    map(4, "volumeAttributes", Text),
    kept(5, "nodePublishSecretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
]);

static EPHEMERAL_VOLUME_SOURCE: Message =
    Message(&[kept(1, "volumeClaimTemplate", Nested(&PERSISTENT_VOLUME_CLAIM_TEMPLATE))]);

static PERSISTENT_VOLUME_CLAIM_TEMPLATE: Message = Message(&[
    field(1, "metadata", Nested(&OBJECT_META)),
    field(2, "spec", Nested(&PERSISTENT_VOLUME_CLAIM_SPEC)),
]);

static PERSISTENT_VOLUME_CLAIM_SPEC: Message = Message(&[
    list(1, "accessModes", Text),
    field(2, "resources", Nested(&VOLUME_RESOURCE_REQUIREMENTS)),
    field(3, "volumeName", Text),
    kept(4, "selector", Nested(&LABEL_SELECTOR)),
    kept(5, "storageClassName", Text),
    kept(6, "volumeMode", Text),
    kept(7, "dataSource", Nested(&TYPED_LOCAL_OBJECT_REFERENCE)),
    kept(8, "dataSourceRef", Nested(&TYPED_OBJECT_REFERENCE)),
    kept(9, "volumeAttributesClassName", Text),
]);

static VOLUME_RESOURCE_REQUIREMENTS: Message =
    Message(&[map(1, "limits", Quantity), map(2, "requests", Quantity)]);

static TYPED_LOCAL_OBJECT_REFERENCE: Message =
    Message(&[kept(1, "apiGroup", Text), kept(2, "kind", Text), kept(3, "name", Text)]);

static TYPED_OBJECT_REFERENCE: Message = Message(&[
    kept(1, "apiGroup", Text),
    kept(2, "kind", Text),
    kept(3, "name", Text),
    kept(4, "namespace", Text),
]);

static IMAGE_VOLUME_SOURCE: Message =
    Message(&[field(1, "reference", Text), field(2, "pullPolicy", Text)]);

static POD_CERTIFICATE_PROJECTION: Message = Message(&[
    field(1, "signerName", Text),
    field(2, "keyType", Text),
    kept(3, "maxExpirationSeconds", Int32),
    field(4, "credentialBundlePath", Text),
    field(5, "keyPath", Text),
    field(6, "certificateChainPath", Text),
    map(7, "userAnnotations", Text),
]);
