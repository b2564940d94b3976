//! Where each fact stands.

use std::io;

use rustix::system::uname;

use super::{Files, network};

/// The value of `key`; nothing if there is no such key, or this host has nothing to say about it.
pub(super) fn read(host: &Files<'_>, key: &str) -> io::Result<Option<String>> {
    let parts: Vec<&str> = key.split('/').collect();
    match parts.as_slice() {
        ["os", "basic", fact] => basic(host, fact),
        ["os", "basic", "os-release", field] => os_release(host, field),
        ["os", "kernel", fact] => kernel(host, fact),
        ["os", "cpu", fact] => cpu(host, fact),
        ["os", "memory", fact] => memory(host, fact),
        ["os", "network", "default-interface"] => network::default_interface(host),
        ["os", "network", interface, fact] => network::of_interface(host, interface, fact),
        _ => Ok(None),
    }
}

fn basic(host: &Files<'_>, fact: &str) -> io::Result<Option<String>> {
    match fact {
        "hostname" => line(host, "proc/sys/kernel/hostname"),
        "domainname" => line(host, "proc/sys/kernel/domainname"),
        "architecture" => Ok(Some(uname().machine().to_string_lossy().into_owned())),
        "boot-id" => line(host, "proc/sys/kernel/random/boot_id"),
        "boot-time" => {
            let stat = host.file("proc/stat")?.unwrap_or_default();
            Ok(stat.lines().find_map(|line| line.strip_prefix("btime ")).map(str::to_owned))
        }
        _ => Ok(None),
    }
}

fn kernel(host: &Files<'_>, fact: &str) -> io::Result<Option<String>> {
    match fact {
        "name" => line(host, "proc/sys/kernel/ostype"),
        "release" => line(host, "proc/sys/kernel/osrelease"),
        "version" => line(host, "proc/sys/kernel/version"),
        _ => Ok(None),
    }
}

fn cpu(host: &Files<'_>, fact: &str) -> io::Result<Option<String>> {
    let field = match fact {
        "count" => "processor",
        "model" => "model name",
        "vendor" => "vendor_id",
        _ => return Ok(None),
    };
    let text = host.file("proc/cpuinfo")?.unwrap_or_default();
    let mut values = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim_end() == field)
        .map(|(_, value)| value.trim());
    if fact == "count" {
        let count = values.count();
        return Ok((count > 0).then(|| count.to_string()));
    }
    Ok(values.next().map(str::to_owned))
}

fn memory(host: &Files<'_>, fact: &str) -> io::Result<Option<String>> {
    let field = match fact {
        "total" => "MemTotal:",
        "swap-total" => "SwapTotal:",
        _ => return Ok(None),
    };
    let text = host.file("proc/meminfo")?.unwrap_or_default();
    let kibibytes = text.lines().find_map(|line| {
        line.strip_prefix(field)?.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()
    });
    Ok(kibibytes.map(|number| number.saturating_mul(1024).to_string()))
}

/// The distribution's own file comes second, as os-release(5) says.
fn os_release(host: &Files<'_>, field: &str) -> io::Result<Option<String>> {
    let text = match host.file("etc/os-release")? {
        Some(text) => Some(text),
        None => host.file("usr/lib/os-release")?,
    };
    let text = text.unwrap_or_default();
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    // As in a shell, the last one counts.
    let mut fields = lines.rev().filter_map(|line| line.split_once('='));
    Ok(fields.find(|(name, _)| *name == field).map(|(_, value)| unquoted(value)))
}

/// The little that os-release(5) takes from shells: one pair of quotes, and `\` before a few characters.
fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        let inner = value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
        match inner {
            Some(inner) if quote == '"' => return unescaped(inner),
            Some(inner) => return inner.to_owned(),
            None => {}
        }
    }
    unescaped(value)
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next()),
            other => plain.push(other),
        }
    }
    plain
}

fn line(host: &Files<'_>, path: &str) -> io::Result<Option<String>> {
    Ok(host.file(path)?.map(|text| text.trim_end_matches('\n').to_owned()))
}
