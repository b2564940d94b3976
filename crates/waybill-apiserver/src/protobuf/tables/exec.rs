//! The options of exec sessions.

use super::container::ENV_VAR;
use crate::protobuf::table::{
    Message,
    Type::{Bool, Message as Nested, Text},
    field, list,
};

/// Clients send them as a query. This is their form where objects are kept or passed on whole; number
/// 7 is the proposal's (EXEC-17, OP-5).
pub(super) static POD_EXEC_OPTIONS: Message = Message(&[
    field(1, "stdin", Bool),
    field(2, "stdout", Bool),
    field(3, "stderr", Bool),
    field(4, "tty", Bool),
    field(5, "container", Text),
    list(6, "command", Text),
    list(7, "env", Nested(&ENV_VAR)),
]);
