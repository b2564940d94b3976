//! Which name servers a pod asks. There is no name service of the cluster, so every policy but `None`
//! begins with what the machine itself uses.

use waybill_proto::cri::DnsConfig;

use crate::pod::Pod;

/// Reads a `resolv.conf`.
pub(crate) fn parse(text: &str) -> DnsConfig {
    let mut found = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let keyword = words.next();
        let rest = words.take_while(|word| !word.starts_with(['#', ';'])).map(str::to_owned);
        match keyword {
            Some("nameserver") => found.servers.extend(rest.take(1)),
            // The last one counts.
            Some("search" | "domain") => found.searches = rest.collect(),
            Some("options") => found.options = rest.collect(),
            _ => {}
        }
    }
    found
}

/// The resolver configuration of a pod.
pub(super) fn config(pod: &Pod, machine: &DnsConfig) -> DnsConfig {
    let spec = pod.spec();
    let mut dns = match spec.dns_policy.as_deref() {
        Some("None") => DnsConfig::default(),
        _ => machine.clone(),
    };
    let Some(own) = &spec.dns_config else { return dns };
    dns.servers.extend(own.nameservers.iter().flatten().cloned());
    dns.searches.extend(own.searches.iter().flatten().cloned());
    for option in own.options.iter().flatten() {
        let Some(name) = &option.name else { continue };
        dns.options.retain(|other| other.split(':').next() != Some(name));
        dns.options.push(match &option.value {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        });
    }
    for list in [&mut dns.servers, &mut dns.searches] {
        deduplicate(list);
    }
    dns
}

fn deduplicate(list: &mut Vec<String>) {
    let mut seen = Vec::with_capacity(list.len());
    list.retain(|word| {
        let is_new = !seen.contains(word);
        seen.push(word.clone());
        is_new
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::testing::pod;

    fn of(spec: Value) -> DnsConfig {
        let machine = parse(
            "# made by hand\nnameserver 10.0.0.1 # first\nnameserver 10.0.0.2\n\
             search old\nsearch example.org corp\noptions ndots:2 rotate\n",
        );
        config(&pod(spec), &machine)
    }

    fn dns(servers: &[&str], searches: &[&str], options: &[&str]) -> DnsConfig {
        let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        DnsConfig { servers: owned(servers), searches: owned(searches), options: owned(options) }
    }

    #[test]
    fn a_pod_asks_whom_the_machine_asks() {
        let machine =
            dns(&["10.0.0.1", "10.0.0.2"], &["example.org", "corp"], &["ndots:2", "rotate"]);
        for policy in ["Default", "ClusterFirst", "ClusterFirstWithHostNet"] {
            assert_eq!(of(json!({ "dnsPolicy": policy })), machine);
        }
    }

    #[test]
    fn what_the_pod_says_is_added_and_wins() {
        let own = json!({
            "nameservers": ["10.0.0.2", "10.0.0.3"],
            "searches": ["pod"],
            "options": [{ "name": "ndots", "value": "5" }, { "name": "edns0" }],
        });
        assert_eq!(
            of(json!({ "dnsPolicy": "ClusterFirst", "dnsConfig": own })),
            dns(
                &["10.0.0.1", "10.0.0.2", "10.0.0.3"],
                &["example.org", "corp", "pod"],
                &["rotate", "ndots:5", "edns0"]
            )
        );
        assert_eq!(
            of(json!({ "dnsPolicy": "None", "dnsConfig": own })),
            dns(&["10.0.0.2", "10.0.0.3"], &["pod"], &["ndots:5", "edns0"])
        );
    }
}
