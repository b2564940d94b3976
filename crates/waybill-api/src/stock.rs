//! What gate, wrapper, agent and client say to one another on a stock cluster.
//!
//! Gate signs an exec session into the words of its command; `waybill-oci`, the wrapper around the node's
//! OCI runtime, judges them below the kubelet and the container runtime, which pass them on unread; the
//! agent keeps what the wrapper needs in a directory of memory. All of them share this module, so that
//! none understands a byte otherwise than the rest. Pure: hashes, signatures and files are the callers'.

mod asked;
mod base64url;
mod claims;
mod keys;
mod layout;
mod record;
mod reference;
mod refusal;
mod sealed;
mod sessions;
mod words;

pub use self::{
    asked::{
        Answer, AnsweredValue, AskedReference, AskedValues, LineError, SOCKET_LINE_BYTES,
        SOCKET_SECONDS,
    },
    base64url::{decode as decode_base64url, encode as encode_base64url},
    claims::{
        AUDIT_ANNOTATION, CGROUP_PREFIX, DEBUG_VARIABLE, SESSION_VARIABLE, STOCK_SECONDS,
        SessionId, SessionIdError, StockClaims, StockKind,
    },
    keys::{KeySet, PublicKey, SealingKey},
    layout::{
        CONFIG_FILE, ContainerFacts, Engine, Layout, MARKER_SECONDS, Mode, NODE_CONFIG_MAP_KEY,
        NODE_CONFIG_MAP_PREFIX, PodFacts, STOCK_GROUP, STOCK_VERSION, WrapperConfig,
    },
    record::{RECORD_ARGV_BYTES, SessionRecord, Verdict, cut_argv},
    reference::{Reference, ReferenceError, literal},
    refusal::Refusal,
    sealed::{SEALED_INFO, SEALED_PREFIX, SEALED_SECONDS, SealedError, SealedVariables},
    sessions::{
        GATES, GateRecord, GateVerdict, MissingRecords, NODE_RECORDS_KEY, NodeSession,
        NodeSessions, RECORDS_SECONDS, RecordedUser, RecordsClaims, RecordsEndpoint, SessionList,
        SessionProcess,
    },
    words::{
        EXEC_PREFIX, ExecWords, FrameError, NOT_SEALED, WordsError, framed, stamped, unframed,
    },
};

/// Names that no caller may give to a variable on a stock cluster, whatever their case.
pub const RESERVED_NAMES: [&str; 3] =
    [crate::exec::AUDIT_ID_VARIABLE, DEBUG_VARIABLE, SESSION_VARIABLE];
