//! Certificates that clients of the API server ask for.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;

use super::TestServer;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Hole: an approver who looks at the name of the user alone made somebody an administrator.
#[tokio::test]
async fn nobody_asks_to_be_an_administrator() {
    let server = TestServer::start_with_account().await;
    let ask = async |name: &str, group: &str, signer: &str| {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ann");
        params.distinguished_name.push(DnType::OrganizationName, group);
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {"request": STANDARD.encode(request.pem().unwrap()), "signerName": signer,
                "usages": ["client auth"]},
        });
        server.send("admin", "POST", REQUESTS, &object.to_string()).await
    };
    let client = "kubernetes.io/kube-apiserver-client";
    ask("a", "developers", client).await.created();
    // Others decide for themselves what they sign.
    ask("b", "system:masters", "example.com/signer").await.created();
    let refused = ask("c", "system:masters", client).await;
    assert_eq!(refused.code, 403, "{refused:?}");
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.ends_with(
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        ),
        "{message}"
    );
}
