//! Whether a pod's service account may use a class: the verb `use` on it, asked of the API server at
//! every start, so that a grant that is taken back counts at once (OP-34).

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use tokio::time::timeout;
use waybill_api::provider_class::{GROUP, RESOURCE, VERSIONS};
use waybill_core::chain::Chain;

use super::error::CsiError;
use crate::pod::Pod;

/// The API server is near, or the start is tried again.
const LONGEST: Duration = Duration::from_secs(10);

/// Refuses unless the pod's service account may use the class in the pod's namespace.
pub(super) async fn check(client: &Client, pod: &Pod, class: &str) -> Result<(), CsiError> {
    let review = SubjectAccessReview { spec: spec(pod, class), ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let unchecked = |why| Err(CsiError::Unchecked { class: class.to_owned(), why });
    match timeout(LONGEST, reviews.create(&PostParams::default(), &review)).await {
        Ok(Ok(SubjectAccessReview { status: Some(status), .. })) if status.allowed => Ok(()),
        Ok(Ok(_)) => Err(CsiError::Denied { class: class.to_owned() }),
        Ok(Err(error)) => unchecked(Chain(&error).to_string()),
        Err(_) => unchecked(format!("no answer from the API server in {LONGEST:?}")),
    }
}

/// The service account of a pod.
pub(super) fn service_account(pod: &Pod) -> &str {
    let name = pod.spec().service_account_name.as_deref();
    name.filter(|name| !name.is_empty()).unwrap_or("default")
}

/// The account as authentication would find it.
fn spec(pod: &Pod, class: &str) -> SubjectAccessReviewSpec {
    let (namespace, account) = (pod.namespace(), service_account(pod));
    let [version, ..] = VERSIONS;
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
            group: text(GROUP),
            version: text(version),
            resource: text(RESOURCE),
            name: text(class),
            namespace: text(namespace),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    }
}
