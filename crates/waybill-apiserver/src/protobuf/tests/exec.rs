//! The options of exec sessions.

use waybill_api::exec::PodExecOptions;

use super::*;

/// EXEC-17: `env` has number 7, and the three forms of the options mean the same.
#[test]
fn options_of_exec_sessions_are_the_same_in_protobuf_json_and_query_exec_17() {
    let variable = |name: &[u8], value: &[u8]| {
        bytes_field(7, &[bytes_field(1, name), bytes_field(2, value)].concat())
    };
    let message = [
        int_field(1, 1),
        int_field(2, 1),
        int_field(4, 1),
        bytes_field(5, b"main"),
        bytes_field(6, b"sh"),
        bytes_field(6, b"-c"),
        variable(b"A", b"b c"),
        variable(b"E", b""),
    ];
    let document = decode(&body("v1", "PodExecOptions", &message.concat())).unwrap();
    let options: PodExecOptions = serde_json::from_value(document.clone()).unwrap();
    let query = "stdin=true&stdout=true&tty=true&container=main&command=sh&command=-c\
                 &env=A=b%20c&env=E=";
    assert_eq!(options, PodExecOptions::from_query(query).unwrap());
    let json = serde_json::to_value(&options).unwrap();
    assert_eq!(serde_json::from_value::<PodExecOptions>(json).unwrap(), options);
}
