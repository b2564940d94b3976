//! The name by which a browser called us. A page of somebody else may have a name that leads to this machine; under such a name we are
//! not there, or its scripts could read what we answer.

use std::net::IpAddr;

/// Whether `host`, as in a `Host` header, is a name of this machine that nobody else can give out. The port may be another: of a tunnel.
pub(super) fn is_own(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        Some(_) | None => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let address = bare
        .map_or_else(|| name.parse::<IpAddr>().ok().filter(IpAddr::is_ipv4), |it| it.parse().ok());
    address.is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_ours() {
        for own in [
            "127.0.0.1:7434",
            "127.0.0.1",
            "127.8.9.1:1",
            "localhost:7434",
            "LocalHost",
            "[::1]:7434",
            "[::1]",
        ] {
            assert!(is_own(own), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "evil.example:7434",
            "127.0.0.1.evil.example:7434",
            "localhost.evil.example",
            "10.0.0.1:7434",
            "0.0.0.0:7434",
            "[::]:7434",
            "::1",
            "127.0.0.1:x",
            "127.0.0.1:7434:7434",
            "localhost:99999",
            "2130706433:7434",
            "0x7f.1",
            "127.1:7434",
            "[::ffff:127.0.0.1]:1",
            "localhost.",
            " localhost",
        ] {
            assert!(!is_own(foreign), "{foreign}");
        }
    }
}
