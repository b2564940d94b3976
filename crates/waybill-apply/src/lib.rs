//! Server-side apply, as pure code: objects and sets of fields in, objects and sets of fields out.
//!
//! An object remembers in `metadata.managedFields` who set which of its fields. [`Tracker::track`]
//! keeps that up to date for every write; [`Tracker::apply`] merges what one manager wants into an
//! object, refuses to take fields from other managers unless it is told to, and removes what the
//! manager no longer wants. What lists and maps mean is in a [`Schema`], compiled from OpenAPI
//! definitions.
//!
//! The rules are those of Kubernetes' structured-merge-diff. Sets come from peers, so reading them is
//! bounded; no function here recurses deeper than the documents that it is given.

mod apply;
mod compare;
mod conflict;
mod element;
mod fields_of;
mod last_applied;
mod managed;
mod merge;
mod named;
mod remove;
mod schema;
mod set;
mod track;

pub use self::{
    apply::ApplyError,
    conflict::{Conflict, Conflicts},
    element::describe_path,
    managed::{
        Entry, MANAGER_MAX_LENGTH, ManagedFields, ManagedFieldsError, ManagerNameError, Operation,
        check_manager, keep_times, manager_of_user_agent,
    },
    merge::MergeError,
    schema::Schema,
    set::{FieldSet, FieldSetError},
    track::{Tracker, Versions},
};

#[cfg(test)]
mod fixtures;
