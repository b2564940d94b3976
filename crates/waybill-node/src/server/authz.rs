//! Who may: the API server is asked whether the user has the verb on this node, and its answer is
//! remembered, so that a busy caller costs nothing. Without an API server only two groups may.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use tokio::time::timeout;

use super::{
    answer::Refusal,
    authn::{REMEMBERED, REVIEW_LIMIT, User},
    cache::{Cache, Lifetime},
    route::Attributes,
};

/// Who may use a node that has no API server to ask: administrators, and the group in which API
/// servers of ours ask nodes.
const STANDALONE_GROUPS: [&str; 2] = ["system:masters", NODE_CLIENTS];

/// The group in which API servers of ours ask nodes.
pub(super) const NODE_CLIENTS: &str = "waybill:node-clients";

/// Decides who may do what on this node.
pub(super) enum Authorizer {
    Cluster(Box<Reviews>),
    Standalone,
}

impl Authorizer {
    pub(super) fn new(cluster: Option<Client>, node: &str) -> Self {
        match cluster {
            Some(client) => {
                let known = Cache::new(REMEMBERED);
                Self::Cluster(Box::new(Reviews { client, node: node.to_owned(), known }))
            }
            None => Self::Standalone,
        }
    }

    pub(super) async fn authorize(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Result<(), Refusal> {
        let forbidden = || Refusal::Forbidden {
            user: Box::new(User::clone(user)),
            verb: attributes.verb,
            subresources: attributes.subresources,
        };
        match self {
            Self::Cluster(reviews) => {
                if reviews.any_allowed(user, attributes).await? {
                    Ok(())
                } else {
                    Err(forbidden())
                }
            }
            Self::Standalone => {
                let mut groups = user.groups.iter().map(String::as_str);
                let member = groups.any(|group| STANDALONE_GROUPS.contains(&group));
                if member { Ok(()) } else { Err(forbidden()) }
            }
        }
    }
}

/// Asks the API server.
pub(super) struct Reviews {
    client: Client,
    node: String,
    known: Cache<Question, Verdict>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    user: Arc<User>,
    verb: &'static str,
    subresource: &'static str,
}

impl Reviews {
    async fn any_allowed(
        &self,
        user: &Arc<User>,
        attributes: &Attributes,
    ) -> Result<bool, Refusal> {
        for subresource in attributes.subresources {
            let question = Question { user: Arc::clone(user), verb: attributes.verb, subresource };
            match self.known.get(&question, self.ask(&question)).await {
                Verdict::Allowed => return Ok(true),
                Verdict::Denied => {}
                Verdict::Failed(fault) => {
                    let what = "the API server could not be asked what this user may do";
                    return Err(Refusal::Review { what, fault: fault.to_string() });
                }
            }
        }
        Ok(false)
    }

    async fn ask(&self, question: &Question) -> Verdict {
        let review =
            SubjectAccessReview { spec: self.spec(question), ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        match timeout(REVIEW_LIMIT, api.create(&PostParams::default(), &review)).await {
            Ok(Ok(SubjectAccessReview { status: Some(status), .. })) if status.allowed => {
                Verdict::Allowed
            }
            Ok(Ok(_)) => Verdict::Denied,
            Ok(Err(error)) => Verdict::Failed(error.to_string().into()),
            Err(_) => Verdict::Failed("it did not answer in time".into()),
        }
    }

    fn spec(&self, question: &Question) -> SubjectAccessReviewSpec {
        let User { name, uid, groups, extra } = &*question.user;
        let text = |text: &str| Some(text.to_owned());
        SubjectAccessReviewSpec {
            user: text(name),
            uid: text(uid).filter(|uid| !uid.is_empty()),
            groups: Some(groups.clone()),
            extra: Some(extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(ResourceAttributes {
                verb: text(question.verb),
                version: text("v1"),
                resource: text("nodes"),
                subresource: text(question.subresource),
                name: text(&self.node),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        }
    }
}

/// What the API server says about a right.
#[derive(Clone)]
enum Verdict {
    Allowed,
    Denied,
    Failed(Arc<str>),
}

impl Lifetime for Verdict {
    /// As kubelets have it.
    fn lifetime(&self) -> Duration {
        match self {
            Self::Allowed => Duration::from_secs(5 * 60),
            Self::Denied => Duration::from_secs(30),
            Self::Failed(_) => Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_without_api_server_serves_two_groups() {
        let attributes = Attributes { verb: "get", subresources: &["proxy"] };
        let check = async |groups: &[&str], expected: bool| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            let user = Arc::new(User { name: "u".to_owned(), groups, ..User::default() });
            let found = Authorizer::Standalone.authorize(&user, &attributes).await;
            assert_eq!(found.is_ok(), expected, "{user:?}");
        };
        check(&["system:masters"], true).await;
        check(&["x", "waybill:node-clients"], true).await;
        check(&["system:authenticated"], false).await;
        check(&[], false).await;
    }
}
