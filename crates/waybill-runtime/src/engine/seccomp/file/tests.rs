//! Files, and the programs that become of them.

use serde_json::{Value, json};

use super::*;
use crate::engine::seccomp::{
    policy::Action,
    tests::{Asked, EDGES, check as check_program, judged},
};

const X86: &[Abi] = &[Abi::X86_64, Abi::I386];
const ADMIN: u64 = 1 << 21;

fn place(capabilities: u64) -> Place<'static> {
    Place { abis: X86, capabilities, kernel: (6, 1) }
}

fn parsed(profile: &Value, capabilities: u64) -> Result<Policy, String> {
    let profile: Profile =
        serde_json::from_value(profile.clone()).map_err(|error| error.to_string())?;
    policy(&profile, &place(capabilities)).map_err(|fault| fault.to_string())
}

/// Both ABIs listed, and every other call forbidden.
fn allowing(syscalls: &Value) -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": syscalls,
    })
}

fn number(abi: Abi, name: &str) -> u32 {
    calls::all().find(|call| call.name == name).unwrap().number(abi).unwrap()
}

/// What becomes of a call of x86-64 with a first argument.
#[track_caller]
fn check(profile: &Value, capabilities: u64, (name, first): (&str, u64), expected: Action) {
    let policy = parsed(profile, capabilities).unwrap();
    check_program(&policy, &EDGES);
    let asked = Asked::new(Abi::X86_64, number(Abi::X86_64, name), first);
    assert_eq!(judged(&program::compile(&policy), asked), expected, "{name} {first:#x}");
}

#[test]
fn each_action_is_that_of_the_kernel() {
    for (action, errno, expected) in [
        ("SCMP_ACT_ALLOW", None, Action::ALLOW),
        ("SCMP_ACT_LOG", None, Action::LOG),
        ("SCMP_ACT_TRAP", None, Action::TRAP),
        ("SCMP_ACT_KILL", None, Action::KILL_THREAD),
        ("SCMP_ACT_KILL_THREAD", None, Action::KILL_THREAD),
        ("SCMP_ACT_KILL_PROCESS", None, Action::KILL_PROCESS),
        ("SCMP_ACT_ERRNO", None, Action::FORBIDDEN),
        ("SCMP_ACT_ERRNO", Some(38), Action::UNKNOWN),
        ("SCMP_ACT_ERRNO", Some(0), Action::errno(0)),
    ] {
        let mut entry = json!({ "names": ["chmod"], "action": action });
        if let Some(errno) = errno {
            entry["errnoRet"] = json!(errno);
        }
        let profile = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [entry] });
        check(&profile, 0, ("chmod", 0), expected);
        check(&profile, 0, ("read", 0), Action::ALLOW);
    }
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let entry = |entry: Value| allowing(&json!([entry]));
    let argument = |argument: Value| {
        entry(json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [argument] }))
    };
    for (profile, expected) in [
        (json!({}), "missing field `defaultAction`"),
        (json!([]), "invalid length 0"),
        (json!({ "defaultAction": "ALLOW" }), "defaultAction: \"ALLOW\" is no action"),
        (json!({ "defaultAction": "SCMP_ACT_NOTIFY" }), "SCMP_ACT_NOTIFY is not supported"),
        (json!({ "defaultAction": "SCMP_ACT_TRACE" }), "SCMP_ACT_TRACE is not supported"),
        (json!({ "defaultAction": "SCMP_ACT_ALLOW", "defaultErrnoRet": 1 }), "has no errno"),
        (json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscall": [] }), "unknown field `syscall`"),
        (json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/x" }), "listenerPath"),
        (
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["amd64"] }),
            "architectures: \"amd64\" is no architecture",
        ),
        (
            entry(json!({ "action": "SCMP_ACT_ALLOW" })),
            "syscalls[0].names: no system call is named",
        ),
        (
            entry(json!({ "names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 4096 })),
            "syscalls[0].action: errno 4096",
        ),
        (
            entry(json!({ "names": ["read"], "action": "SCMP_ACT_ALLOW", "arg": [] })),
            "unknown field `arg`",
        ),
        (argument(json!({ "index": 6, "value": 0, "op": "SCMP_CMP_EQ" })), "args[0].index"),
        (argument(json!({ "index": 0, "value": 0, "op": "EQ" })), "args[0].op: \"EQ\""),
        (argument(json!({ "index": 0, "value": -1, "op": "SCMP_CMP_EQ" })), "invalid value"),
        (
            entry(json!({
                "names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": { "caps": ["ADMIN"] },
            })),
            "syscalls[0].includes.caps: \"ADMIN\" is no capability",
        ),
        (
            entry(json!({
                "names": ["read"], "action": "SCMP_ACT_ALLOW", "excludes": { "minKernel": "x" },
            })),
            "syscalls[0].excludes.minKernel",
        ),
    ] {
        let found = parsed(&profile, 0).unwrap_err();
        assert!(found.contains(expected), "{expected:?} is not in {found:?}");
    }
}

#[test]
fn conditions_hold_together_and_those_on_one_argument_each_for_itself() {
    let with = |args: Value| {
        allowing(&json!([{ "names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": args }]))
    };
    let argument =
        |index: u8, op: &str, value: u64| json!({ "index": index, "value": value, "op": op });
    let both = with(json!([argument(0, "SCMP_CMP_GE", 8), argument(1, "SCMP_CMP_EQ", 0)]));
    check(&both, 0, ("ioctl", 8), Action::ALLOW);
    check(&both, 0, ("ioctl", 7), Action::FORBIDDEN);
    let never = with(json!([argument(0, "SCMP_CMP_GE", 8), argument(1, "SCMP_CMP_EQ", 1)]));
    check(&never, 0, ("ioctl", 8), Action::FORBIDDEN);
    let either = with(json!([argument(0, "SCMP_CMP_EQ", 1), argument(0, "SCMP_CMP_GT", 1 << 40)]));
    check(&either, 0, ("ioctl", 1), Action::ALLOW);
    check(&either, 0, ("ioctl", 1 << 41), Action::ALLOW);
    check(&either, 0, ("ioctl", 2), Action::FORBIDDEN);
    let masked = with(json!([
        { "index": 0, "value": 0x7e02_0000_u64, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" },
    ]));
    check(&masked, 0, ("ioctl", 0x80), Action::ALLOW);
    check(&masked, 0, ("ioctl", 0x1000_0000), Action::FORBIDDEN);
}

#[test]
fn an_entry_without_conditions_decides_alone() {
    let condition = json!([{ "index": 0, "value": 1, "op": "SCMP_CMP_EQ" }]);
    let profile = allowing(&json!([
        { "names": ["chmod"], "action": "SCMP_ACT_LOG", "args": condition },
        { "names": ["chmod"], "action": "SCMP_ACT_ALLOW", "args": null },
        { "names": ["fchmod"], "action": "SCMP_ACT_ERRNO", "args": condition },
        { "names": ["fchmod"], "action": "SCMP_ACT_ALLOW" },
    ]));
    check(&profile, 0, ("chmod", 1), Action::ALLOW);
    // A rule that says what is said anyway is none.
    check(&profile, 0, ("fchmod", 1), Action::ALLOW);
}

#[test]
fn entries_hold_by_machine_capabilities_and_kernel() {
    for (conditions, capabilities, expected) in [
        (json!({ "includes": { "caps": ["CAP_SYS_ADMIN"] } }), 0, false),
        (json!({ "includes": { "caps": ["CAP_SYS_ADMIN"] } }), ADMIN, true),
        (json!({ "includes": { "caps": ["CAP_SYS_ADMIN", "CAP_BPF"] } }), ADMIN, false),
        (json!({ "excludes": { "caps": ["CAP_SYS_ADMIN"] } }), ADMIN, false),
        (json!({ "excludes": { "caps": ["CAP_SYS_ADMIN"] } }), 0, true),
        (json!({ "includes": { "arches": ["amd64", "x32"] } }), 0, true),
        (json!({ "includes": { "arches": ["arm64"] } }), 0, false),
        (json!({ "excludes": { "arches": ["amd64"] } }), 0, false),
        (json!({ "includes": { "minKernel": "4.8" } }), 0, true),
        (json!({ "includes": { "minKernel": "6.2" } }), 0, false),
        (json!({ "excludes": { "minKernel": "6.1" } }), 0, false),
        (json!({ "includes": {}, "excludes": {} }), 0, true),
    ] {
        let mut entry = json!({ "names": ["mount"], "action": "SCMP_ACT_ALLOW" });
        entry.as_object_mut().unwrap().extend(conditions.as_object().unwrap().clone());
        let expected = if expected { Action::ALLOW } else { Action::FORBIDDEN };
        let profile = allowing(&json!([entry, { "names": ["statx"], "action": "SCMP_ACT_ALLOW" }]));
        check(&profile, capabilities, ("mount", 0), expected);
    }
}

#[test]
fn calls_that_are_newer_than_a_profile_are_unknown_where_the_rest_is_denied() {
    let entry = json!([{ "names": ["statx", "read"], "action": "SCMP_ACT_ALLOW" }]);
    let profile = allowing(&entry);
    check(&profile, 0, ("write", 0), Action::FORBIDDEN);
    check(&profile, 0, ("faccessat2", 0), Action::UNKNOWN);
    let open = json!({ "defaultAction": "SCMP_ACT_LOG", "syscalls": entry });
    check(&open, 0, ("faccessat2", 0), Action::LOG);
}

#[test]
fn only_the_abis_of_a_profile_can_be_used() {
    let entry = json!([{ "names": ["read"], "action": "SCMP_ACT_ERRNO" }]);
    let asked = |profile: &Value, abi, number| {
        let policy = parsed(profile, 0).unwrap();
        judged(&program::compile(&policy), Asked::new(abi, number, 0))
    };
    let alone = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": entry });
    assert_eq!(asked(&alone, Abi::I386, 3), Action::KILL_PROCESS);
    assert_eq!(asked(&alone, Abi::X86_64, 0), Action::FORBIDDEN);
    // x32 is never a way around.
    assert_eq!(asked(&alone, Abi::X86_64, 0x4000_0000), Action::UNKNOWN);
    for (field, value) in [
        ("architectures", json!(["SCMP_ARCH_X86"])),
        (
            "archMap",
            json!([
                { "architecture": "SCMP_ARCH_AARCH64", "subArchitectures": null },
                { "architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"] },
            ]),
        ),
    ] {
        let mut both = alone.clone();
        both[field] = value;
        assert_eq!(asked(&both, Abi::I386, 3), Action::FORBIDDEN, "{field}");
        assert_eq!(asked(&both, Abi::I386, 4), Action::ALLOW, "{field}");
    }
}

#[test]
fn a_rule_about_a_call_is_also_about_its_second_way() {
    let condition = json!([{ "index": 0, "value": 38, "op": "SCMP_CMP_EQ" }]);
    let asked = |profile: &Value, name: &str, first| {
        let policy = parsed(profile, 0).unwrap();
        let asked = Asked::new(Abi::I386, number(Abi::I386, name), first);
        judged(&program::compile(&policy), asked)
    };
    let denied = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86"],
        "syscalls": [
            { "names": ["socket"], "action": "SCMP_ACT_ERRNO", "args": condition },
            { "names": ["shmget"], "action": "SCMP_ACT_ERRNO" },
        ],
    });
    assert_eq!(asked(&denied, "socketcall", 1), Action::FORBIDDEN);
    assert_eq!(asked(&denied, "socketcall", 2), Action::ALLOW);
    assert_eq!(asked(&denied, "ipc", 23 | 1 << 16), Action::FORBIDDEN);
    let allowed = allowing(&json!([
        { "names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": condition },
        { "names": ["connect"], "action": "SCMP_ACT_ALLOW" },
    ]));
    assert_eq!(asked(&allowed, "socketcall", 1), Action::FORBIDDEN);
    assert_eq!(asked(&allowed, "socketcall", 3), Action::ALLOW);
}

#[test]
fn a_file_is_read_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("good"), r#"{ "defaultAction": "SCMP_ACT_ALLOW", "comment": "all" }"#)
        .unwrap();
    std::fs::write(at("bad"), r#"{ "defaultAction": "SCMP_ACT_ALLOW" "#).unwrap();
    File::create(at("huge")).unwrap().set_len(LONGEST + 1).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let read = |path: &Path| filter(path, X86, 0);
    assert_eq!(read(&at("good")).unwrap().flags, SPECULATION_ALLOWED);
    assert!(matches!(read(&at("bad")), Err(SeccompFault::Json(_))));
    assert!(matches!(read(&at("huge")), Err(SeccompFault::Long)));
    assert!(matches!(read(&at("pipe")), Err(SeccompFault::Kind)));
    assert!(matches!(read(directory.path()), Err(SeccompFault::Kind)));
    assert!(matches!(read(&at("none")), Err(SeccompFault::Read(_))));
    assert!(matches!(read(&at("../good")), Err(SeccompFault::Path)));
    assert!(matches!(read(Path::new("good")), Err(SeccompFault::Path)));
}

#[test]
fn flags_are_those_of_the_file() {
    let of = |value: Value| {
        let mut profile = json!({ "defaultAction": "SCMP_ACT_ALLOW" });
        profile["flags"] = value;
        flags(&serde_json::from_value(profile).unwrap())
    };
    let flag = |name: &str| format!("SECCOMP_FILTER_FLAG_{name}");
    assert_eq!(of(Value::Null).unwrap(), SPECULATION_ALLOWED);
    assert_eq!(of(json!([])).unwrap(), 0);
    assert_eq!(of(json!([flag("LOG"), flag("TSYNC")])).unwrap(), 2);
    assert!(of(json!([flag("WAIT_KILLABLE_RECV")])).is_err());
}
