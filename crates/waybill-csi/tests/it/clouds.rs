//! The metadata services of Google and Microsoft as their documentation describes them, as far as we use them. Nobody
//! ships a server for either; `clients` asks these ones with the clients of their makers.

use http::{Request, StatusCode};
use hyper::body::Incoming;

use crate::web::{Page, decoded_query, header, page, with_header};

/// Access tokens of the machine.
pub(crate) const GCE_TOKEN: &str = "ya29.canary";
pub(crate) const AZURE_TOKEN: &str = "eyJ.canary";

/// A token for `https://shop.example.com`: header, claims and a signature that nobody checks here.
pub(crate) const GCE_IDENTITY: &str = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJhdWQiOiJodHRwczovL3Nob3AuZXhhbXBsZS5jb20iLCJleHAiOjQxMDI0NDQ4MDB9.c2lnbmF0dXJl";

/// `metadata.google.internal`. Each answer says whose it is, so that a client knows where it runs.
pub(crate) fn gce(request: &Request<Incoming>) -> Page {
    with_header(
        with_header(gce_page(request), "metadata-flavor", "Google"),
        "server",
        "Metadata Server for VM",
    )
}

fn gce_page(request: &Request<Incoming>) -> Page {
    if header(request, "metadata-flavor") != "Google" {
        return page(StatusCode::FORBIDDEN, "Missing Metadata-Flavor:Google header.");
    }
    let text = |text| with_header(page(StatusCode::OK, text), "content-type", "application/text");
    let json = |text| with_header(page(StatusCode::OK, text), "content-type", "application/json");
    let query = decoded_query(request);
    let Some(key) = request.uri().path().strip_prefix("/computeMetadata/v1/") else {
        return text("computeMetadata/\n");
    };
    match key {
        "instance/zone" => text("projects/1/zones/europe-west3-a"),
        "project/project-id" => text("shop-1"),
        "universe/universe-domain" => text("googleapis.com"),
        "instance/service-accounts/default/" if query == "recursive=true" => json(
            r#"{"aliases":["default"],"email":"1-compute@developer.gserviceaccount.com",
                "scopes":["https://www.googleapis.com/auth/cloud-platform"]}"#,
        ),
        "instance/service-accounts/default/email" => {
            text("1-compute@developer.gserviceaccount.com")
        }
        "instance/service-accounts/default/token" => {
            json(r#"{"access_token":"ya29.canary","expires_in":3599,"token_type":"Bearer"}"#)
        }
        "instance/service-accounts/default/identity"
            if query.contains("audience=https://shop.example.com") =>
        {
            text(GCE_IDENTITY)
        }
        "instance/service-accounts/default/identity" => {
            page(StatusCode::BAD_REQUEST, "non-empty audience parameter required")
        }
        "instance" => page(StatusCode::MOVED_PERMANENTLY, ""),
        _ => page(StatusCode::NOT_FOUND, ""),
    }
}

/// Azure's service.
pub(crate) fn azure(request: &Request<Incoming>) -> Page {
    with_header(azure_page(request), "server", "IMDS/150.870.65.1325")
}

fn azure_page(request: &Request<Incoming>) -> Page {
    let uri = request.uri();
    let query = decoded_query(request);
    let json = |status, text| {
        with_header(page(status, text), "content-type", "application/json; charset=utf-8")
    };
    if header(request, "metadata") != "true" {
        return json(
            StatusCode::BAD_REQUEST,
            r#"{"error":"invalid_request","error_description":"Required metadata header not specified"}"#,
        );
    }
    match uri.path() {
        "/metadata/instance/compute/location"
            if query.contains("api-version=2021-02-01") && query.contains("format=text") =>
        {
            with_header(
                page(StatusCode::OK, "germanywestcentral"),
                "content-type",
                "text/plain; charset=utf-8",
            )
        }
        "/metadata/identity/oauth2/token" if query.contains("client_id=") => json(
            StatusCode::BAD_REQUEST,
            r#"{"error":"invalid_request","error_description":"Identity not found"}"#,
        ),
        "/metadata/identity/oauth2/token"
            if query.contains("api-version=2018-02-01")
                && query.contains("resource=https://vault.azure.net") =>
        {
            json(
                StatusCode::OK,
                r#"{"access_token":"eyJ.canary","client_id":"00000000-0000-0000-0000-000000000001",
                    "expires_in":"86399","expires_on":"4102444800","ext_expires_in":"86399",
                    "not_before":"1506480273","resource":"https://vault.azure.net","token_type":"Bearer"}"#,
            )
        }
        "/metadata/identity/oauth2/token" => json(
            StatusCode::BAD_REQUEST,
            r#"{"error":"invalid_request","error_description":"Required query variable 'resource' is missing"}"#,
        ),
        _ => page(StatusCode::NOT_FOUND, ""),
    }
}
