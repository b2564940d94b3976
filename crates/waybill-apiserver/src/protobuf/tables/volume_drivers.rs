//! Volumes of storage systems that Kubernetes once knew by name.

use super::objects::LOCAL_OBJECT_REFERENCE;
use crate::protobuf::table::{
    Message,
    Type::{Bool, Int32, Message as Nested, Text},
    field, kept, list, map,
};

pub(super) static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "pdName", Text),
    field(2, "fsType", Text),
    field(3, "partition", Int32),
    field(4, "readOnly", Bool),
]);

pub(super) static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumeID", Text),
    field(2, "fsType", Text),
    field(3, "partition", Int32),
    field(4, "readOnly", Bool),
]);

pub(super) static GIT_REPO_VOLUME_SOURCE: Message = Message(&[
    kept(1, "repository", Text),
    field(2, "revision", Text),
    field(3, "directory", Text),
]);

pub(super) static NFS_VOLUME_SOURCE: Message =
    Message(&[kept(1, "server", Text), kept(2, "path", Text), field(3, "readOnly", Bool)]);

pub(super) static ISCSI_VOLUME_SOURCE: Message = Message(&[
    kept(1, "targetPortal", Text),
    kept(2, "iqn", Text),
    kept(3, "lun", Int32),
    field(4, "iscsiInterface", Text),
    field(5, "fsType", Text),
    field(6, "readOnly", Bool),
    list(7, "portals", Text),
    field(8, "chapAuthDiscovery", Bool),
    kept(10, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(11, "chapAuthSession", Bool),
    kept(12, "initiatorName", Text),
]);

pub(super) static GLUSTERFS_VOLUME_SOURCE: Message =
    Message(&[kept(1, "endpoints", Text), kept(2, "path", Text), field(3, "readOnly", Bool)]);

pub(super) static RBD_VOLUME_SOURCE: Message = Message(&[
    list(1, "monitors", Text),
    kept(2, "image", Text),
    field(3, "fsType", Text),
    field(4, "pool", Text),
    field(5, "user", Text),
    field(6, "keyring", Text),
    kept(7, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(8, "readOnly", Bool),
]);

pub(super) static FLEX_VOLUME_SOURCE: Message = Message(&[
    kept(1, "driver", Text),
    field(2, "fsType", Text),
    kept(3, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(4, "readOnly", Bool),
    map(5, "options", Text),
]);

pub(super) static CINDER_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumeID", Text),
    field(2, "fsType", Text),
    field(3, "readOnly", Bool),
    kept(4, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
]);

pub(super) static CEPH_FS_VOLUME_SOURCE: Message = Message(&[
    list(1, "monitors", Text),
    field(2, "path", Text),
    field(3, "user", Text),
    field(4, "secretFile", Text),
    kept(5, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(6, "readOnly", Bool),
]);

pub(super) static FLOCKER_VOLUME_SOURCE: Message =
    Message(&[field(1, "datasetName", Text), field(2, "datasetUUID", Text)]);

pub(super) static FC_VOLUME_SOURCE: Message = Message(&[
    list(1, "targetWWNs", Text),
    kept(2, "lun", Int32),
    field(3, "fsType", Text),
    field(4, "readOnly", Bool),
    list(5, "wwids", Text),
]);

pub(super) static AZURE_FILE_VOLUME_SOURCE: Message =
    Message(&[kept(1, "secretName", Text), kept(2, "shareName", Text), field(3, "readOnly", Bool)]);

pub(super) static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "volumePath", Text),
    field(2, "fsType", Text),
    field(3, "storagePolicyName", Text),
    field(4, "storagePolicyID", Text),
]);

pub(super) static QUOBYTE_VOLUME_SOURCE: Message = Message(&[
    kept(1, "registry", Text),
    kept(2, "volume", Text),
    field(3, "readOnly", Bool),
    field(4, "user", Text),
    field(5, "group", Text),
    field(6, "tenant", Text),
]);

pub(super) static AZURE_DISK_VOLUME_SOURCE: Message = Message(&[
    kept(1, "diskName", Text),
    kept(2, "diskURI", Text),
    kept(3, "cachingMode", Text),
    kept(4, "fsType", Text),
    kept(5, "readOnly", Bool),
    kept(6, "kind", Text),
]);

pub(super) static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Message =
    Message(&[kept(1, "pdID", Text), field(2, "fsType", Text)]);

pub(super) static PORTWORX_VOLUME_SOURCE: Message =
    Message(&[kept(1, "volumeID", Text), field(2, "fsType", Text), field(3, "readOnly", Bool)]);

pub(super) static SCALE_IO_VOLUME_SOURCE: Message = Message(&[
    kept(1, "gateway", Text),
    kept(2, "system", Text),
    kept(3, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
    field(4, "sslEnabled", Bool),
    field(5, "protectionDomain", Text),
    field(6, "storagePool", Text),
    field(7, "storageMode", Text),
    field(8, "volumeName", Text),
    field(9, "fsType", Text),
    field(10, "readOnly", Bool),
]);

pub(super) static STORAGE_OS_VOLUME_SOURCE: Message = Message(&[
    field(1, "volumeName", Text),
    field(2, "volumeNamespace", Text),
    field(3, "fsType", Text),
    field(4, "readOnly", Bool),
    kept(5, "secretRef", Nested(&LOCAL_OBJECT_REFERENCE)),
]);
