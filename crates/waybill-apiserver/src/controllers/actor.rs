//! A part of the server that writes like a client, under a name of its own.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use waybill_api::status::Status;

use crate::{
    admission::{Remarks, WriteOptions},
    audit::{
        AuditUnavailable, Lifetime, Recorder, RequestAudit, RequestFacts, ResponseStatus, mint_id,
    },
    authz::{Decision, Reason},
    cache::{Cache, CachedObject, ObjectKey},
    document::text,
    objects::Objects,
    query::DryRun,
    registry::{RESOURCES, Resource},
    request::{Action, Target, User},
    route::ResourceRoute,
    write::{Change, DeleteOptions, Part, Writer},
};

/// How the parts of the server call themselves.
const USER_AGENT: &str = concat!("waybill/", env!("CARGO_PKG_VERSION"), " (of the API server)");

/// Writes as one user of the system; everything it writes passes admission and is recorded.
#[derive(Clone)]
pub(super) struct Actor {
    writer: Arc<Writer>,
    recorder: Arc<Recorder>,
    user: User,
}

impl Actor {
    pub(super) fn new(writer: &Arc<Writer>, recorder: &Arc<Recorder>, name: &str) -> Self {
        let user = User {
            name: name.to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            ..User::default()
        };
        Self { writer: Arc::clone(writer), recorder: Arc::clone(recorder), user }
    }

    /// A controller that has a service account in other clusters.
    pub(super) fn controller(writer: &Arc<Writer>, recorder: &Arc<Recorder>, name: &str) -> Self {
        Self::new(writer, recorder, &format!("system:serviceaccount:kube-system:{name}"))
    }

    pub(super) fn objects(&self) -> &Objects {
        &self.writer.objects
    }

    pub(super) fn cache(&self, resource: &'static Resource) -> Option<&Cache> {
        self.objects().cache(resource)
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.writer.clock)()
    }

    pub(super) fn get(&self, route: &ResourceRoute) -> Option<Arc<CachedObject>> {
        let cache = self.objects().cache(route.resource)?;
        cache.get(&ObjectKey::new(&route.namespace, &route.name))
    }

    /// Creates `document` unless an object of that name exists.
    pub(super) async fn create_missing(&self, document: Value) -> Result<(), Status> {
        let route = route_of(&document)?;
        if !route.name.is_empty() && self.get(&route).is_some() {
            return Ok(());
        }
        // Clients name no object in the path of a create.
        let route = ResourceRoute { name: String::new(), ..route };
        let remarks = Remarks::default();
        let audit = self.begin("create", &route, Some(&document)).await?;
        let created = self.writer.create(self.change(&route, &remarks), document).await;
        match finish(audit, &remarks, 201, created).await {
            Ok(_) => Ok(()),
            Err(status) if status.reason() == "AlreadyExists" => Ok(()),
            Err(status) => Err(status),
        }
    }

    pub(super) async fn update(
        &self,
        route: &ResourceRoute,
        part: Part,
        make: impl FnMut(&Value) -> Result<Value, Status> + Send,
    ) -> Result<(), Status> {
        let remarks = Remarks::default();
        let audit = self.begin("update", &route.with_subresource(part.subresource()), None).await?;
        let updated = self.writer.update(self.change(route, &remarks), part, make).await;
        finish(audit, &remarks, 200, updated).await.map(drop)
    }

    pub(super) async fn delete(
        &self,
        route: &ResourceRoute,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let remarks = Remarks::default();
        let audit = self.begin("delete", route, None).await?;
        let deleted = self.writer.delete(self.change(route, &remarks), options).await;
        finish(audit, &remarks, 200, deleted).await.map(drop)
    }

    pub(super) async fn bind(&self, route: &ResourceRoute, binding: Value) -> Result<(), Status> {
        let remarks = Remarks::default();
        let audit =
            self.begin("create", &route.with_subresource("binding"), Some(&binding)).await?;
        let bound = self.writer.bind(self.change(route, &remarks), binding).await;
        finish(audit, &remarks, 201, bound).await
    }

    /// Begins the record of a write, as for a request of a client.
    async fn begin(
        &self,
        verb: &str,
        route: &ResourceRoute,
        sent: Option<&Value>,
    ) -> Result<RequestAudit, Status> {
        let action = Action { verb: verb.to_owned(), target: Target::Resource(route.target()) };
        let decision = Decision::Allow { reason: Reason::None };
        let facts = RequestFacts {
            id: mint_id(),
            user: &self.user,
            impersonated: None,
            action: &action,
            decision: Some(&decision),
            uri: &route.path(),
            source_ips: &[],
            user_agent: USER_AGENT,
            lifetime: Lifetime::Short,
        };
        let unavailable = |error: AuditUnavailable| Status::unavailable(error.to_string());
        let mut audit = self.recorder.begin(facts).await.map_err(unavailable)?;
        audit.allowed().await.map_err(unavailable)?;
        if let Some(sent) = sent {
            audit.request_object(|| sent.clone());
        }
        Ok(audit)
    }

    fn change<'a>(&'a self, route: &'a ResourceRoute, remarks: &'a Remarks) -> Change<'a> {
        let program = self.user.name.rsplit(':').next().unwrap_or_default();
        let options = WriteOptions { field_manager: program, ..WriteOptions::default() };
        Change { route, user: &self.user, dry_run: DryRun::No, options, remarks }
    }
}

/// Ends the record of a write. What is done is done: that it is not on record yet is told by the log itself.
async fn finish<T>(
    mut audit: RequestAudit,
    remarks: &Remarks,
    code: u16,
    done: Result<T, Status>,
) -> Result<T, Status> {
    remarks.notes.tell(&mut audit);
    if remarks.has_changed() {
        audit.changed();
    }
    let outcome = match &done {
        Ok(_) => ResponseStatus::code(code),
        Err(status) => ResponseStatus::from(status),
    };
    let _ = audit.complete(outcome).await;
    done
}

/// The way to an object that says what it is.
pub(super) fn route_of(document: &Value) -> Result<ResourceRoute, Status> {
    let api_version = text(document, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = text(document, "/kind");
    let resource = RESOURCES.iter().copied().find(|resource| {
        resource.group == group && resource.version == version && resource.kind == kind
    });
    let resource = resource.ok_or_else(Status::no_such_path)?;
    let (namespace, name) =
        (text(document, "/metadata/namespace"), text(document, "/metadata/name"));
    Ok(ResourceRoute::to(resource, namespace, name))
}
