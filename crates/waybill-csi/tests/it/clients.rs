//! Our servers of `clouds`, and what our driver asks them, judged by the clients of Google and Microsoft: those take
//! what the servers say, and ask for it in the same words as the driver does.

use std::{
    process::{Command, Stdio},
    slice,
};

use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use waybill_csi::{driver::Driver, drivers::metadata::Metadata};
use waybill_testkit::program::CLOUD_CLIENTS;

use crate::{
    account::{only, query, values},
    clouds::{AZURE_TOKEN, GCE_IDENTITY, GCE_TOKEN, azure, gce},
    metadata::class,
    web::Web,
};

/// Finds out that it runs on GCE, and asks for what programs there ask for.
const GOOGLE: &str = r#"
import json
import google.auth
from google.auth import compute_engine
from google.auth.compute_engine import _metadata
from google.auth.transport.requests import Request

request = Request()
credentials, project = google.auth.default()
credentials.refresh(request)
identity = compute_engine.IDTokenCredentials(
    request, "https://shop.example.com", use_metadata_identity_endpoint=True)
identity.refresh(request)
print(json.dumps({
    "ping": _metadata.ping(request),
    "kind": type(credentials).__module__,
    "project": project,
    "account": credentials.service_account_email,
    "token": credentials.token,
    "identity": identity.token,
    "zone": _metadata.get(request, "instance/zone"),
    "none": _metadata.get(request, "no/such/thing", return_none_for_not_found_error=True),
}))
"#;

/// The token of the machine, and that of an identity which it has not.
const MICROSOFT: &str = r#"
import json
from azure.identity import CredentialUnavailableError, ManagedIdentityCredential

scope = "https://vault.azure.net/.default"
token = ManagedIdentityCredential().get_token(scope)
try:
    ManagedIdentityCredential(client_id="00000000-0000-0000-0000-000000000002").get_token(scope)
    other = "given"
except CredentialUnavailableError as error:
    other = error.message
print(json.dumps({"token": token.token, "other": other}))
"#;

/// Runs a script where the metadata service is `web`; `None` if this machine has not these clients.
async fn run(script: &'static str, web: &Web) -> Option<Value> {
    let python = CLOUD_CLIENTS.find()?;
    let host = web.address.trim_start_matches("http://").to_owned();
    let address = web.address.clone();
    let ran = move || {
        let home = tempfile::tempdir().unwrap();
        Command::new(python)
            .args(["-c", script])
            .env_clear()
            .env("HOME", home.path())
            .env("GCE_METADATA_HOST", &host)
            .env("GCE_METADATA_IP", &host)
            .env("AZURE_POD_IDENTITY_AUTHORITY_HOST", &address)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let output = spawn_blocking(ran).await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the client failed: {error}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// CSI-50
#[tokio::test]
async fn googles_client_takes_our_server_for_gce_and_asks_as_the_driver_does_csi_50() {
    let web = Web::start(gce).await;
    let Some(told) = run(GOOGLE, &web).await else { return };
    assert_eq!(
        told,
        json!({
            "ping": true,
            "kind": "google.auth.compute_engine.credentials",
            "project": "shop-1",
            "account": "1-compute@developer.gserviceaccount.com",
            "token": GCE_TOKEN,
            "identity": GCE_IDENTITY,
            "zone": "projects/1/zones/europe-west3-a",
            "none": null,
        })
    );
    let by_client = web.asked();
    let call = class("gce", &web.address, &[("allowCredentials", "true")]);
    let account = "instance/service-accounts/default";
    let token = query(&format!("{account}/token"), &[("field", "access_token")]);
    let audience = [("audience", "https://shop.example.com")];
    let identity = query(&format!("{account}/identity"), &audience);
    for (query, value) in [
        (token, GCE_TOKEN),
        (identity, GCE_IDENTITY),
        (query("instance/zone", &[]), "projects/1/zones/europe-west3-a"),
    ] {
        let answers =
            Metadata::new().at(only(&web.address)).fetch(&call, slice::from_ref(&query)).await;
        assert_eq!(values(answers), [value]);
        let [asked] = &*web.asked() else { panic!("one request is enough") };
        // The client adds what it could leave out: scopes and a format.
        let is_same = |line: &String| line.starts_with(asked.as_str());
        assert!(by_client.iter().any(is_same), "{asked} is not in {by_client:#?}");
    }
}

/// CSI-50
#[tokio::test]
async fn microsofts_client_takes_our_server_for_azure_and_asks_as_the_driver_does_csi_50() {
    let web = Web::start(azure).await;
    let Some(told) = run(MICROSOFT, &web).await else { return };
    assert_eq!(told["token"], AZURE_TOKEN);
    assert!(told["other"].as_str().unwrap().contains("Identity not found"), "{told}");
    let by_client = web.asked();
    let call = class("azure", &web.address, &[("allowCredentials", "true")]);
    let parameters = [("resource", "https://vault.azure.net"), ("field", "access_token")];
    let token = query("identity/oauth2/token", &parameters);
    assert_eq!(
        values(Metadata::new().at(only(&web.address)).fetch(&call, &[token]).await),
        [AZURE_TOKEN]
    );
    assert_eq!(web.asked(), by_client[..1]);
}
