//! Asks the API server whether a service account may use a class (OP-34), and what a user may do.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use tokio::time::timeout;
use waybill_api::provider_class::{RESOURCE, UseDenied};

use super::records::UserInfo;

/// Shorter than a webhook may take, so that the API server learns why there is no verdict.
const LIMIT: Duration = Duration::from_secs(3);

/// The rights of service accounts, asked anew each time: what was taken away counts at once.
pub(crate) struct Rights {
    client: Client,
    group: String,
}

impl Rights {
    pub(crate) fn new(client: Client, group: String) -> Self {
        Self { client, group }
    }

    /// Whether pods of this account may use `class`; an outer error if nobody knows.
    pub(crate) async fn check(
        &self,
        namespace: &str,
        account: &str,
        class: &str,
    ) -> Result<Result<(), UseDenied>, RightsError> {
        if self.ask(self.spec(namespace, account, class)).await? {
            return Ok(Ok(()));
        }
        Ok(Err(UseDenied::Right {
            class: class.to_owned(),
            group: self.group.clone(),
            namespace: namespace.to_owned(),
            account: account.to_owned(),
        }))
    }

    /// Whether a user may do this; an error if nobody knows.
    pub(super) async fn may(
        &self,
        user: &UserInfo,
        attributes: ResourceAttributes,
    ) -> Result<bool, RightsError> {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        self.ask(SubjectAccessReviewSpec {
            user: text(&user.username),
            uid: text(&user.uid),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        })
        .await
    }

    async fn ask(&self, spec: SubjectAccessReviewSpec) -> Result<bool, RightsError> {
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let parameters = PostParams::default();
        let asked = timeout(LIMIT, api.create(&parameters, &review));
        let answer = asked.await.map_err(|_| RightsError::Slow)?;
        let answer = answer.map_err(|source| RightsError::Refused(Box::new(source)))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// The question is asked in the pod's namespace, so that a RoleBinding there suffices.
    fn spec(&self, namespace: &str, account: &str, class: &str) -> SubjectAccessReviewSpec {
        let text = |text: &str| Some(text.to_owned());
        SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                verb: text("use"),
                group: text(&self.group),
                version: text("v1"),
                resource: text(RESOURCE),
                namespace: text(namespace),
                name: text(class),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

/// Why nobody knows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RightsError {
    #[error("it refused the question")]
    Refused(#[source] Box<kube::Error>),
    #[error("it did not answer in {} s", LIMIT.as_secs())]
    Slow,
}
