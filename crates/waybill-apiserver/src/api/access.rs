//! Who asks, whom they act for, and whether they may.

use std::sync::{Arc, PoisonError};

use http::HeaderMap;
use waybill_api::status::Status;
use waybill_core::chain::Chain;

use super::{Api, asked::Asked};
use crate::{
    audit::{Lifetime, RequestAudit, is_stranger},
    authn::{Authenticated, impersonation},
    authz::{Decision, FieldTerm, MASTERS_GROUP, forbidden},
    http::{Connection, InFlightRequest, RequestKind},
    query::Query,
    request::{Action, Target, User},
    selector::field::FieldSelector,
};

/// Who asks, and whom they act for.
pub(super) struct Asking {
    pub(super) caller: Arc<User>,
    pub(super) acting_as: Option<Arc<User>>,
}

/// What the credentials of a request say.
pub(super) struct Identified {
    pub(super) asking: Asking,
    /// Why the request is refused for them.
    pub(super) refused: Option<Status>,
}

impl Asking {
    /// Whose rights count; everything below sees only that user.
    pub(super) fn user(&self) -> &User {
        self.acting_as.as_deref().unwrap_or(&self.caller)
    }
}

impl Api {
    /// Who asks. Nobody is known if their credentials are wrong.
    pub(super) fn identify(&self, connection: &Connection, asked: &Asked) -> Identified {
        let alone = |caller, refused| {
            let asking = Asking { caller, acting_as: None };
            Identified { asking, refused: Some(refused) }
        };
        let caller = match self.authenticate(connection, &asked.headers, &asked.path) {
            Ok(found) => found.user,
            Err(status) => return alone(Arc::default(), status),
        };
        if !is_stranger(&caller) {
            connection.open.note_known();
        }
        match self.acting_as(&caller, &asked.headers) {
            Ok(acting_as) => Identified { asking: Asking { caller, acting_as }, refused: None },
            Err(status) => alone(caller, status),
        }
    }

    fn authenticate(
        &self,
        connection: &Connection,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Authenticated, Status> {
        let now = (self.clock)();
        self.authenticator.authenticate(&connection.peer, headers, path, now).map_err(|error| {
            let lines = &mut self.strangers_lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(left_out) = lines.take_line(now) {
                let (address, error) = (connection.address, Chain(&error));
                tracing::info!(%address, %error, left_out, "a client could not be authenticated");
            }
            Status::unauthorized()
        })
    }

    /// Whom the caller acts for, if they may; everything below sees only that user.
    fn acting_as(&self, caller: &User, headers: &HeaderMap) -> Result<Option<Arc<User>>, Status> {
        let asked = impersonation::asked_for(headers);
        let Some(asked) = asked.map_err(|error| Status::bad_request(error.to_string()))? else {
            return Ok(None);
        };
        for need in &asked.needs {
            Self::allow(caller, need, &self.authorizer.authorize(caller, need, &[]))?;
        }
        Ok(Some(Arc::new(asked.user)))
    }

    /// Counts a request about a resource; an error if there are too many. Probes and discovery, and
    /// administrators are not counted.
    pub(super) async fn count(
        &self,
        user: &User,
        action: &Action,
        lifetime: Lifetime,
    ) -> Result<Option<InFlightRequest>, Status> {
        let is_path = matches!(action.target, Target::Path(_));
        let is_admin = user.groups.iter().any(|group| group == MASTERS_GROUP);
        if is_path || is_admin {
            return Ok(None);
        }
        let kind = match (lifetime, action.verb.as_str()) {
            (Lifetime::LongRunning, _) => RequestKind::Lasting,
            (Lifetime::Short, "get" | "list" | "watch") => RequestKind::Reading,
            (Lifetime::Short, _) => RequestKind::Mutating,
        };
        let counted = self.in_flight.begin(&user.name, kind);
        let counted = counted.ok_or_else(Status::too_many_requests)?;
        Ok(Some(counted.wait_for_turn().await))
    }

    /// Whether they may do it.
    pub(super) fn decide(&self, user: &User, action: &Action, query: &Query) -> Decision {
        let selector = FieldSelector::parse(query.text("fieldSelector")).unwrap_or_default();
        self.authorizer.authorize(user, action, &FieldTerm::all_of(&selector))
    }

    /// Whether they may do something else besides; the record says so.
    pub(super) fn authorize(
        &self,
        user: &User,
        action: &Action,
        query: &Query,
        audit: &mut RequestAudit,
    ) -> Result<(), Status> {
        let decision = self.decide(user, action, query);
        audit.judged(&decision);
        Self::allow(user, action, &decision)
    }

    pub(super) fn allow(user: &User, action: &Action, decision: &Decision) -> Result<(), Status> {
        if decision.is_allowed() {
            return Ok(());
        }
        let message = forbidden::message(user, action, decision.reason());
        let target = match &action.target {
            Target::Resource(target) => waybill_api::status::Target {
                group: &target.group,
                resource: &target.resource,
                name: &target.name,
            },
            Target::Path(_) => waybill_api::status::Target { group: "", resource: "", name: "" },
        };
        Err(Status::forbidden(target, message))
    }
}
