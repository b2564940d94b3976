//! The webhooks that change what they are asked about: the IO around the decisions of `session.rs`, `debug.rs` and `references.rs`.

use serde_json::{Value, json};
use waybill_api::{
    pod::CsiSecretSelector,
    provider_class::UseDenied,
    status::{Status, Subject, Target},
    stock::{GateRecord, GateVerdict, Mode, SessionId, StockKind},
};

use super::{
    JudgeError, Service,
    debug::{self, Added, Addition},
    pod::{account, refused},
    records::recorded,
    references::{self, References},
    review::{Review, Verdict},
    session::{SessionPlan, node_name, plan_attach, plan_exec},
    signer::{self, Place, session_id},
};

impl Service {
    /// Signs an exec session into its command.
    pub(super) async fn judge_exec(
        &self,
        review: &Review,
        mode: Mode,
    ) -> Result<Verdict, JudgeError> {
        if !is_about(review, "CONNECT", "exec") {
            return Ok(Verdict::allowed());
        }
        let Some(pod) = self.pod(&review.namespace, &review.name).await? else {
            return Ok(no_pod(review));
        };
        let session = session_id().map_err(JudgeError::Sign)?;
        let plan = plan_exec(review, &pod, mode, session.clone(), (self.clock)());
        let plan = match plan {
            Ok(plan) => plan,
            Err(status) => return Ok(self.refuse(review, StockKind::Exec, *status).await),
        };
        let word = match &plan.signed {
            Some((claims, _)) => {
                let signer = self.keys.signer().map_err(JudgeError::Keys)?;
                Some(signer.word(claims).map_err(JudgeError::Sign)?)
            }
            None => None,
        };
        let verdict = if word.is_some() { GateVerdict::Signed } else { GateVerdict::Recorded };
        self.record(review, StockKind::Exec, &session, &plan, verdict).await?;
        let answer = Verdict::session(session.to_string());
        Ok(match (word, &plan.signed) {
            (Some(word), Some((_, words))) => answer.patched(plan.patch(word, words)),
            _ => answer,
        })
    }

    /// An attach cannot be changed; it is recorded.
    pub(super) async fn judge_attach(&self, review: &Review) -> Result<Verdict, JudgeError> {
        if !is_about(review, "CONNECT", "attach") {
            return Ok(Verdict::allowed());
        }
        let Some(pod) = self.pod(&review.namespace, &review.name).await? else {
            return Ok(no_pod(review));
        };
        let plan = match plan_attach(review, &pod) {
            Ok(plan) => plan,
            Err(status) => return Ok(self.refuse(review, StockKind::Attach, *status).await),
        };
        let session = session_id().map_err(JudgeError::Sign)?;
        self.record(review, StockKind::Attach, &session, &plan, GateVerdict::Recorded).await?;
        Ok(Verdict::session(session.to_string()))
    }

    /// Signs each ephemeral container that is added to a pod, or records it where nobody could read a signature.
    pub(super) async fn judge_debug(
        &self,
        review: &Review,
        mode: Mode,
    ) -> Result<Verdict, JudgeError> {
        if !is_about(review, "UPDATE", "ephemeralcontainers") {
            return Ok(Verdict::allowed());
        }
        let spec = review.object.get("spec").unwrap_or(&Value::Null);
        if let Err(errors) = References::of(&only_ephemeral(spec)) {
            let status = Status::invalid(subject(review), &errors);
            return Ok(self.refuse(review, StockKind::Debug, status).await);
        }
        let addition = match debug::added(review, mode) {
            Ok(found) => found,
            Err(status) => return Ok(self.refuse(review, StockKind::Debug, *status).await),
        };
        if addition.containers.is_empty() || review.dry_run {
            return Ok(Verdict::allowed());
        }
        let (mut sessions, mut patch) = (Vec::new(), Vec::new());
        for container in &addition.containers {
            let session = session_id().map_err(JudgeError::Sign)?;
            let verdict = if addition.is_guarded {
                patch.push(self.sign_debug(review, &addition, container, &session)?);
                GateVerdict::Signed
            } else {
                GateVerdict::Recorded
            };
            let plan = SessionPlan {
                uid: addition.uid.to_owned(),
                container: container.name.to_owned(),
                node: node_name(&review.object).to_owned(),
                tty: container.tty,
                variables: Vec::new(),
                signed: None,
            };
            self.record(review, StockKind::Debug, &session, &plan, verdict).await?;
            sessions.push(session.to_string());
        }
        let answer = Verdict::session(sessions.join(","));
        Ok(if patch.is_empty() { answer } else { answer.patched(json!(patch)) })
    }

    /// The change that puts a token into a container.
    fn sign_debug(
        &self,
        review: &Review,
        addition: &Addition<'_>,
        container: &Added<'_>,
        session: &SessionId,
    ) -> Result<Value, JudgeError> {
        let place = Place {
            namespace: &review.namespace,
            pod: &review.name,
            uid: addition.uid,
            container: container.name,
        };
        let (kind, now) = (StockKind::Debug, (self.clock)());
        let claims = signer::claims(session.clone(), kind, place, container.tty, &[], now);
        let signer = self.keys.signer().map_err(JudgeError::Keys)?;
        Ok(container.patch(&signer.word(&claims).map_err(JudgeError::Sign)?))
    }

    /// Gives a new pod the RuntimeClass, and what its references need.
    pub(super) async fn judge_new_pod(&self, review: &Review) -> Result<Verdict, JudgeError> {
        if !is_about(review, "CREATE", "") {
            return Ok(Verdict::allowed());
        }
        let spec = review.object.get("spec").unwrap_or(&Value::Null);
        let references = match References::of(spec) {
            Ok(references) => references,
            Err(errors) => return Ok(Verdict::refused(Status::invalid(subject(review), &errors))),
        };
        if let Some(denied) = self.check_references(review, &references).await? {
            return Ok(refused(review, &denied));
        }
        let patch = references::patch(&review.object, &references);
        Ok(if patch.is_empty() {
            Verdict::allowed()
        } else {
            Verdict::allowed().patched(json!(patch))
        })
    }

    /// Whether the pod may have what it refers to, by the rules of all ProviderClasses.
    async fn check_references(
        &self,
        review: &Review,
        references: &References,
    ) -> Result<Option<UseDenied>, JudgeError> {
        let mut last = None;
        for (name, key) in references.keys() {
            let Some(class) = self.classes.find(name).await? else {
                return Ok(Some(UseDenied::NotFound(name.to_owned())));
            };
            let selector = CsiSecretSelector {
                driver: class.spec.driver.clone(),
                provider_class_name: name.to_owned(),
                key: key.to_owned(),
                ..CsiSecretSelector::default()
            };
            if let Err(denied) = class.check_use(&selector, &review.namespace) {
                return Ok(Some(denied));
            }
            // Keys come sorted by class, so each class is asked about once.
            if last != Some(name) {
                let account = account(&review.object);
                let asked = self.rights.check(&review.namespace, &account, name).await;
                if let Err(denied) = asked.map_err(JudgeError::Rights)? {
                    return Ok(Some(denied));
                }
                last = Some(name);
            }
        }
        Ok(None)
    }

    async fn record(
        &self,
        review: &Review,
        kind: StockKind,
        session: &SessionId,
        plan: &SessionPlan,
        verdict: GateVerdict,
    ) -> Result<(), JudgeError> {
        let record = GateRecord {
            session: Some(session.clone()),
            verdict,
            uid: plan.uid.clone(),
            container: plan.container.clone(),
            node: plan.node.clone(),
            tty: plan.tty,
            variables: plan.variables.clone(),
            ..self.blank(review, kind)
        };
        self.records.write(&record).await.map_err(JudgeError::Record)
    }

    /// Refuses, and puts that on record if it can.
    async fn refuse(&self, review: &Review, kind: StockKind, status: Status) -> Verdict {
        let record = GateRecord {
            verdict: GateVerdict::Refused,
            reason: Some(status.message().chars().take(256).collect()),
            ..self.blank(review, kind)
        };
        if self.records.write(&record).await.is_err() {
            tracing::warn!("a refusal could not be recorded");
        }
        Verdict::refused(status)
    }

    fn blank(&self, review: &Review, kind: StockKind) -> GateRecord {
        GateRecord {
            version: GateRecord::VERSION,
            record: GateRecord::RECORD.to_owned(),
            time: (self.clock)(),
            session: None,
            kind,
            verdict: GateVerdict::Refused,
            reason: None,
            namespace: review.namespace.clone(),
            pod: review.name.clone(),
            uid: String::new(),
            container: String::new(),
            node: String::new(),
            tty: false,
            user: recorded(&review.user_info),
            variables: Vec::new(),
        }
    }
}

/// Other resources and operations pass: whoever sends them has configured too much.
fn is_about(review: &Review, operation: &str, part: &str) -> bool {
    let resource = (review.resource.group.as_str(), review.resource.resource.as_str());
    resource == ("", "pods") && review.operation == operation && review.sub_resource == part
}

/// As the API server would say it.
fn no_pod(review: &Review) -> Verdict {
    Verdict::refused(Status::not_found(Target { group: "", resource: "pods", name: &review.name }))
}

fn subject(review: &Review) -> Subject<'_> {
    Subject { group: "", kind: "Pod", name: review.object_name() }
}

/// The containers of a running pod were judged when it was made.
fn only_ephemeral(spec: &Value) -> Value {
    json!({"ephemeralContainers": spec.get("ephemeralContainers")})
}
