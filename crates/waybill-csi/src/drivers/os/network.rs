//! Interfaces and their addresses, as this process sees them: a driver belongs into the host's network.

use std::{io, net::IpAddr};

use nix::ifaddrs::getifaddrs;

use super::Files;

/// The interface of the default route with the lowest metric; IPv4 first.
pub(super) fn default_interface(host: &Files<'_>) -> io::Result<Option<String>> {
    let routes = host.file("proc/net/route")?.unwrap_or_default();
    if let Some(interface) = lowest(routes.lines().filter_map(default_route)) {
        return Ok(Some(interface.to_owned()));
    }
    let routes = host.file("proc/net/ipv6_route")?.unwrap_or_default();
    Ok(lowest(routes.lines().filter_map(default_route_6)).map(str::to_owned))
}

pub(super) fn of_interface(
    host: &Files<'_>,
    interface: &str,
    fact: &str,
) -> io::Result<Option<String>> {
    if !is_interface(interface) {
        return Ok(None);
    }
    match fact {
        "address" => address(interface, IpAddr::is_ipv4),
        "address6" => address(interface, |address| match address {
            IpAddr::V4(_) => false,
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        }),
        "mac" => line(host, interface, "address"),
        "mtu" => line(host, interface, "mtu"),
        _ => Ok(None),
    }
}

fn address(interface: &str, fits: impl Fn(&IpAddr) -> bool) -> io::Result<Option<String>> {
    let of_interface = getifaddrs()?.filter(|it| it.interface_name == interface);
    let mut addresses = of_interface.filter_map(|it| {
        let address = it.address?;
        let four = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    });
    Ok(addresses.find(|address| fits(address)).map(|address| address.to_string()))
}

fn line(host: &Files<'_>, interface: &str, file: &str) -> io::Result<Option<String>> {
    let text = host.file(&format!("sys/class/net/{interface}/{file}"))?;
    Ok(text.map(|text| text.trim_end().to_owned()))
}

/// Linux takes other names too, but the name becomes part of a path here.
fn is_interface(name: &str) -> bool {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    !name.is_empty() && name.len() < 16 && name.bytes().all(fit) && !name.starts_with('.')
}

/// Interface and metric, if a line of `/proc/net/route` is a default route.
fn default_route(line: &str) -> Option<(&str, u32)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields.as_slice() {
        [interface, "00000000", _, _, _, _, metric, "00000000", ..] => {
            Some((interface, metric.parse().ok()?))
        }
        _ => None,
    }
}

/// The same for `/proc/net/ipv6_route`, where refused destinations are routes through `lo`.
fn default_route_6(line: &str) -> Option<(&str, u32)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields.as_slice() {
        [destination, "00", _, _, _, metric, _, _, _, interface]
            if destination.bytes().all(|digit| digit == b'0') && *interface != "lo" =>
        {
            Some((interface, u32::from_str_radix(metric, 16).ok()?))
        }
        _ => None,
    }
}

fn lowest<'a>(routes: impl Iterator<Item = (&'a str, u32)>) -> Option<&'a str> {
    routes.min_by_key(|(_, metric)| *metric).map(|(interface, _)| interface)
}
