//! The headers of a request that opens a stream.

#![no_main]

use http::{HeaderMap, HeaderValue, Method, header};
use libfuzzer_sys::fuzz_target;
use waybill_stream::{protocol::Protocol, websocket::handshake};

fuzz_target!(|values: Vec<(u8, Vec<u8>)>| {
    let names = [
        header::CONNECTION,
        header::UPGRADE,
        header::SEC_WEBSOCKET_VERSION,
        header::SEC_WEBSOCKET_KEY,
        header::SEC_WEBSOCKET_PROTOCOL,
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in &values {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(&names[usize::from(*name) % names.len()], value);
        }
    }
    if handshake::accept(&Method::GET, &headers).is_ok() {
        assert!(handshake::is_upgrade(&headers));
    }
    assert!(handshake::accept(&Method::POST, &headers).is_err());
    for supported in [Protocol::COMMAND, Protocol::FORWARD] {
        if let Ok(protocol) = Protocol::choose(&headers, supported) {
            assert!(supported.contains(&protocol));
            assert_eq!(Protocol::chosen(protocol.name(), supported), Ok(protocol));
        }
    }
});
