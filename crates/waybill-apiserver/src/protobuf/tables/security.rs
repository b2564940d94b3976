//! Security contexts of pods and containers.

use crate::protobuf::table::{
    Message,
    Type::{Bool, Int64, Message as Nested, Text},
    field, kept, list,
};

pub(super) static SECURITY_CONTEXT: Message = Message(&[
    kept(1, "capabilities", Nested(&CAPABILITIES)),
    kept(2, "privileged", Bool),
    kept(3, "seLinuxOptions", Nested(&SE_LINUX_OPTIONS)),
    kept(4, "runAsUser", Int64),
    kept(5, "runAsNonRoot", Bool),
    kept(6, "readOnlyRootFilesystem", Bool),
    kept(7, "allowPrivilegeEscalation", Bool),
    kept(8, "runAsGroup", Int64),
    kept(9, "procMount", Text),
    kept(10, "windowsOptions", Nested(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    kept(11, "seccompProfile", Nested(&SECCOMP_PROFILE)),
    kept(12, "appArmorProfile", Nested(&APP_ARMOR_PROFILE)),
]);

static CAPABILITIES: Message = Message(&[list(1, "add", Text), list(2, "drop", Text)]);

static SE_LINUX_OPTIONS: Message = Message(&[
    field(1, "user", Text),
    field(2, "role", Text),
    field(3, "type", Text),
    field(4, "level", Text),
]);

static WINDOWS_SECURITY_CONTEXT_OPTIONS: Message = Message(&[
    kept(1, "gmsaCredentialSpecName", Text),
    kept(2, "gmsaCredentialSpec", Text),
    kept(3, "runAsUserName", Text),
    kept(4, "hostProcess", Bool),
]);

static SECCOMP_PROFILE: Message =
    Message(&[kept(1, "type", Text), kept(2, "localhostProfile", Text)]);

static APP_ARMOR_PROFILE: Message =
    Message(&[kept(1, "type", Text), kept(2, "localhostProfile", Text)]);

pub(super) static POD_SECURITY_CONTEXT: Message = Message(&[
    kept(1, "seLinuxOptions", Nested(&SE_LINUX_OPTIONS)),
    kept(2, "runAsUser", Int64),
    kept(3, "runAsNonRoot", Bool),
    list(4, "supplementalGroups", Int64),
    kept(5, "fsGroup", Int64),
    kept(6, "runAsGroup", Int64),
    list(7, "sysctls", Nested(&SYSCTL)),
    kept(8, "windowsOptions", Nested(&WINDOWS_SECURITY_CONTEXT_OPTIONS)),
    kept(9, "fsGroupChangePolicy", Text),
    kept(10, "seccompProfile", Nested(&SECCOMP_PROFILE)),
    kept(11, "appArmorProfile", Nested(&APP_ARMOR_PROFILE)),
    kept(12, "supplementalGroupsPolicy", Text),
    kept(13, "seLinuxChangePolicy", Text),
]);

static SYSCTL: Message = Message(&[kept(1, "name", Text), kept(2, "value", Text)]);
