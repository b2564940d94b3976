//! Facts of a host that is a directory, and of this machine.

use std::{fs, process::Command};

use tempfile::TempDir;

use super::*;
use crate::driver::FailureKind;

/// A host with these files.
fn host(files: &[(&str, &str)]) -> (TempDir, Os) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let os = Os::new(dir.path());
    (dir, os)
}

fn fact(os: &Os, key: &str) -> Result<String, FetchError> {
    os.files().fact(key).map(|value| String::from_utf8(value.expose().to_vec()).unwrap())
}

#[track_caller]
fn check(files: &[(&str, &str)], expected: &[(&str, &str)]) {
    let (_dir, os) = host(files);
    for (key, value) in expected {
        assert_eq!(fact(&os, key).as_deref(), Ok(*value), "{key}");
    }
}

/// CSI-50
#[test]
fn facts_of_the_kernel_csi_50() {
    check(
        &[
            ("proc/sys/kernel/hostname", "box\n"),
            ("proc/sys/kernel/domainname", "(none)\n"),
            ("proc/sys/kernel/ostype", "Linux\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("proc/sys/kernel/version", "#1 SMP Debian 6.1.76-1\n"),
            ("proc/sys/kernel/random/boot_id", "b\n"),
            ("proc/stat", "cpu 1 2\nbtime 1700000000\nprocesses 3\n"),
            (
                "proc/cpuinfo",
                "processor\t: 0\nvendor_id\t: V\nmodel name\t: M: x\n\nprocessor\t: 1\n",
            ),
            ("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nSwapTotal: 0 kB\n"),
        ],
        &[
            ("os/basic/hostname", "box"),
            ("os/basic/domainname", "(none)"),
            ("os/basic/boot-id", "b"),
            ("os/basic/boot-time", "1700000000"),
            ("os/kernel/name", "Linux"),
            ("os/kernel/release", "6.1.0-18-amd64"),
            ("os/kernel/version", "#1 SMP Debian 6.1.76-1"),
            ("os/cpu/count", "2"),
            ("os/cpu/model", "M: x"),
            ("os/cpu/vendor", "V"),
            ("os/memory/total", "1024000"),
            ("os/memory/swap-total", "0"),
        ],
    );
}

#[test]
fn fields_of_os_release_are_unquoted() {
    let text =
        "# NAME=comment\nNAME=\"A \\\"B\\\" \\$C\"\nID=old\nID=debian\nSINGLE='a\"b\\c'\nEMPTY=\n";
    let expected = [
        ("os/basic/os-release/NAME", "A \"B\" $C"),
        ("os/basic/os-release/ID", "debian"),
        ("os/basic/os-release/SINGLE", "a\"b\\c"),
        ("os/basic/os-release/EMPTY", ""),
    ];
    check(&[("etc/os-release", text)], &expected);
    check(&[("usr/lib/os-release", text)], &expected);
}

#[test]
fn the_default_route_with_the_lowest_metric_counts() {
    let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n";
    let routes = format!(
        "{head}wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\neth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\n\
         eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
    );
    check(&[("proc/net/route", &routes)], &[("os/network/default-interface", "eth0")]);
    let zero = "0".repeat(32);
    let routes = format!(
        "{zero} 00 {zero} 00 {zero} ffffffff 1 0 200200 lo\n{zero} 00 {zero} 00 {zero} 00000400 3 0 3 eth6\n"
    );
    check(&[("proc/net/ipv6_route", &routes)], &[("os/network/default-interface", "eth6")]);
}

#[test]
fn keys_that_there_are_not_are_not_found() {
    let (_dir, os) = host(&[("secret", "x")]);
    for key in [
        "os",
        "os/basic",
        "os/basic/uptime",
        "os/basic/hostname/x",
        "/os/basic/hostname",
        "os/network/../../../secret/mtu",
        "os/network/../mtu",
        "os/network//mtu",
        "secret",
        "../secret",
        "",
    ] {
        let error = fact(&os, key).unwrap_err();
        assert_eq!(error.kind, FailureKind::NotFound, "{key}");
    }
    let unknown = fact(&os, "os/x").unwrap_err().message;
    assert_eq!(unknown, "there is no key \"os/x\"; `waybill driver os --help` lists them");
    let missing = fact(&os, "os/cpu/model").unwrap_err().message;
    assert_eq!(missing, "this host has nothing for the key \"os/cpu/model\"");
}

/// CSI-50: against the programs that people would ask.
#[test]
fn this_machine_says_the_same_as_its_programs_csi_50() {
    let os = Os::new("/");
    let said = |program: &str, flags: &[&str]| {
        let output = Command::new(program).args(flags).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(fact(&os, "os/basic/hostname").unwrap(), said("uname", &["-n"]));
    assert_eq!(fact(&os, "os/basic/architecture").unwrap(), said("uname", &["-m"]));
    assert_eq!(fact(&os, "os/kernel/release").unwrap(), said("uname", &["-r"]));
    assert_eq!(fact(&os, "os/kernel/version").unwrap(), said("uname", &["-v"]));
    assert_eq!(fact(&os, "os/cpu/count").unwrap(), said("getconf", &["_NPROCESSORS_ONLN"]));
    assert_eq!(fact(&os, "os/network/lo/address").unwrap(), "127.0.0.1");
    assert_eq!(fact(&os, "os/network/lo/mac").unwrap(), "00:00:00:00:00:00");
}
