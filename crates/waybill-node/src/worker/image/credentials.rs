//! Pull secrets: the credentials for a registry that a pod brings along.

use std::collections::BTreeMap;

use serde::Deserialize;
use tracing::debug;
use waybill_proto::cri::AuthConfig;

use super::name;
use crate::{objects::Wanted, pod::Pod, worker::surroundings::Surroundings};

/// The two forms in which secrets hold the configuration of docker.
const KEYS: [&str; 2] = [".dockerconfigjson", ".dockercfg"];
/// What docker calls its own registry.
const DOCKER_HUB: &str = "index.docker.io";

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    auths: BTreeMap<String, Account>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Account {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
    registrytoken: String,
}

/// The credentials in the pull secrets of `pod` that are meant for the registry of `image`. Secrets that
/// are missing or unreadable are as good as none: the registry has the last word.
pub(super) async fn of(around: &Surroundings, pod: &Pod, image: &str) -> Vec<AuthConfig> {
    let mut found = Vec::new();
    for reference in pod.spec().image_pull_secrets.iter().flatten() {
        match around.resolver.objects.secret(Wanted::by(pod, &reference.name)).await {
            Ok(secret) => {
                let content = KEYS.iter().filter_map(|key| Some((*key, secret.data.get(*key)?)));
                for (key, content) in content {
                    found.extend(accounts(key, content.expose(), name::registry(image)));
                }
            }
            Err(error) => debug!(secret = reference.name, %error, "a pull secret is not there"),
        }
    }
    found
}

fn accounts(key: &str, content: &[u8], registry: &str) -> Vec<AuthConfig> {
    let configuration = if key == ".dockercfg" {
        serde_json::from_slice(content).map(|auths| Configuration { auths })
    } else {
        serde_json::from_slice(content)
    };
    // The text of the error could hold a part of the secret.
    let Ok(configuration) = configuration else { return Vec::new() };
    let meant =
        configuration.auths.into_iter().filter(|(server, _)| host(server) == host(registry));
    meant
        .map(|(server_address, account)| AuthConfig {
            username: account.username,
            password: account.password,
            auth: account.auth,
            server_address,
            identity_token: account.identitytoken,
            registry_token: account.registrytoken,
        })
        .collect()
}

/// The host of a registry, however it is written.
fn host(server: &str) -> &str {
    let bare = server.trim_start_matches("https://").trim_start_matches("http://");
    match bare.split('/').next().unwrap_or_default() {
        "docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(key: &str, content: &str, registry: &str) -> Vec<String> {
        accounts(key, content.as_bytes(), registry).into_iter().map(|it| it.username).collect()
    }

    #[test]
    fn only_the_accounts_of_the_registry_are_used() {
        let content =
            r#"{"auths": {"https://r.io/v2/": {"username": "a"}, "s.io": {"username": "b"}}}"#;
        assert_eq!(users(".dockerconfigjson", content, "r.io"), ["a"]);
        assert_eq!(users(".dockerconfigjson", content, "x.io"), Vec::<String>::new());
        let old = r#"{"https://index.docker.io/v1/": {"username": "c", "auth": "eA=="}}"#;
        assert_eq!(users(".dockercfg", old, "docker.io"), ["c"]);
        assert_eq!(users(".dockerconfigjson", "no json", "r.io"), Vec::<String>::new());
    }
}
