//! What a node sees of a request.

use super::*;

/// EXEC-19 EXEC-55
#[tokio::test]
async fn the_node_gets_the_audit_id_for_websocket_and_spdy() {
    for (method, headers) in [("GET", WEBSOCKET), ("POST", SPDY)] {
        let line = format!("{method} /exec?command=id&stdin=true&env=A=b&x=y");
        let seen = seen(FeatureGates::all_on(), &line, headers).await;
        assert_eq!((seen.method.as_str(), seen.path.as_str()), (method, "/exec/default/web/main"));
        let expected = "input=1&command=id&env=A=b&env=KUBERNETES_EXEC_AUDIT_ID=the-audit-id";
        assert_eq!(seen.query, expected);
        assert_eq!(seen.peer, "kube-apiserver");
    }
}

/// EXEC-23 EXEC-55
#[tokio::test]
async fn the_node_gets_no_audit_id_while_the_gate_is_off() {
    let gates = FeatureGates::all_on().with(FeatureGate::ExecRequestId, false).unwrap();
    let seen = seen(gates, "GET /exec?command=id", WEBSOCKET).await;
    assert_eq!(seen.query, "command=id");
}

/// EXEC-22
#[tokio::test]
async fn credentials_of_the_client_do_not_reach_the_node() {
    let headers = format!(
        "{WEBSOCKET}Authorization: Bearer hunter2\r\nCookie: hunter2\r\nImpersonate-User: \
         hunter2\r\nAudit-ID: hunter2\r\nX-Forwarded-For: hunter2\r\nUser-Agent: hunter2\r\n\
         Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.hunter2\r\n"
    );
    let seen = seen(FeatureGates::all_on(), "GET /exec?token=hunter2", &headers).await;
    let text = format!("{:?} {}", seen.headers, seen.query);
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(
        names(&seen.headers),
        [
            "connection",
            "host",
            "sec-websocket-key",
            "sec-websocket-protocol",
            "sec-websocket-version",
            "upgrade",
            "waybill-exec-session",
        ]
    );
}

#[tokio::test]
async fn the_token_of_a_session_is_ours_and_never_the_clients() {
    for headers in [WEBSOCKET, SPDY] {
        let headers = format!(
            "{headers}Waybill-Exec-Session: forged\r\nwaybill-exec-session: forged\r\n\
             Connection: waybill-exec-session\r\n"
        );
        let signed = seen(FeatureGates::all_on(), "GET /exec?command=id", &headers).await;
        let found: Vec<_> = signed.headers.get_all("waybill-exec-session").iter().collect();
        assert_eq!(found, ["the-token"]);
        let unsigned = seen(FeatureGates::all_on(), "GET /unsigned?command=id", &headers).await;
        assert!(!format!("{:?}", unsigned.headers).contains("forged"));
        assert!(!unsigned.headers.contains_key("waybill-exec-session"));
    }
}

/// EXEC-40
#[tokio::test]
async fn request_lines_of_128_kib_pass_both_hops() {
    let gates = FeatureGates::all_on().with(FeatureGate::ExecRequestId, false).unwrap();
    // 32,768 bytes in all, each in the longest encoding.
    let value = "%0A".repeat(32_766);
    let padding = "c".repeat(128 * 1024 - value.len());
    let line = format!("POST /exec?command={padding}&env=AB={value}");
    let seen = seen(gates, &line, SPDY).await;
    assert!(seen.query == format!("command={padding}&env=AB={value}"));
}

#[tokio::test]
async fn longer_request_lines_are_refused() {
    let (_node, server) = pair(Script::Echo).await;
    let line = format!("POST /exec?command={}", "c".repeat(REQUEST_LINE_LIMIT));
    let client = server.ask(&line, SPDY).await;
    assert!(client.answer.starts_with("HTTP/1.1 414 "), "{}", client.answer);
}
