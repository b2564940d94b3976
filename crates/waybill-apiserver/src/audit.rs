//! What is recorded: one `audit.k8s.io/v1` event per request and stage, as far as the policy asks.
//!
//! A request's way: [`choose_id`] names it, [`Recorder::begin`] judges it by the [`Policy`] and
//! keeps places in the queue for all its events, [`RequestAudit`] gathers what becomes known, and
//! [`AuditLog`] writes. Values of variables never leave this module below level `Request`, and what
//! is a credential by itself never leaves it at all.
//!
//! # What is promised
//!
//! - Every request that began is recorded exactly once per stage, however it ends: answered,
//!   abandoned by its client, or by a panic.
//! - [`RequestAudit::complete`] is awaited before the answer is sent. For a request that may change
//!   something it returns after `write` took the event, so an acknowledged change is in the file
//!   even if this process is killed in the next instant. It waits no longer than
//!   [`LogOptions::write_wait`]: a disk that hangs must not stop the cluster. Against loss of power
//!   it holds only with [`Durability::Disk`], which costs one `fdatasync` per batch.
//! - A session is in the file before anything is started for it, in the same sense. If it cannot be
//!   recorded it is refused, whatever the policy says about stages. What becomes of other requests is
//!   the choice of [`OnFailure`].
//! - Events of reads are in the file soon after; a kill may lose those of the last batch.
//! - If the disk does not keep up, requests wait a short while for a place. What happens then is
//!   the choice of [`Overflow`]; an event that is lost is counted and the loss is logged.
//! - What strangers cause goes to a log of its own, with a size and a rate of its own; what users are
//!   refused, and what they read, has a rate for each of them ([`budget`]); the first read of a Secret in a day has one of its own
//!   ([`given`]). No string that a client chose makes a record long
//!   ([`bound`]). So nobody without rights can push out what others did.
//! - Events that are left out, and full files that are removed while they are young, are told of in the log.
//! - Events that the disk does not take are kept in memory, as far as a bound allows, and written when it
//!   takes them. What is lost beyond that, a [`Notice`](notice::Notice) in the log tells.
//! - Another service may get the events too ([`webhook`]); the file has them first, and no request fails for its sake.

mod bound;
mod budget;
mod event;
mod file;
mod given;
mod id;
mod log;
mod logs;
mod mask;
mod metrics;
mod notes;
mod notice;
mod policy;
mod recorder;
mod webhook;

#[cfg(test)]
pub(crate) use self::recorder::tests::{memory_recorder, silent_recorder};

pub(crate) use self::{
    budget::Budget,
    event::ResponseStatus,
    file::{RotatingFile, Rotation},
    id::{Peer, choose_id, mint_id},
    log::{AuditLog, Durability, LogOptions, Overflow, Unwritten},
    logs::Logs,
    metrics::AuditMetrics,
    notes::{AuditNotes, CSI_DENIED},
    policy::Policy,
    recorder::{
        AuditUnavailable, Lifetime, OnFailure, Recorder, RequestAudit, RequestFacts, is_stranger,
    },
    webhook::{Mode, Tee, Webhook, WebhookMetrics, WebhookOptions, WebhookTarget},
};
