//! Questions that are answered and forgotten: who am I, may I, is this token good.

use crate::{
    protobuf::tables,
    registry::{Resource, Review, Scope},
    schema::{self, KindSchema},
};

const REVIEW: Resource = Resource { scope: Scope::Cluster, verbs: &["create"], ..Resource::BASE };

static SELF_SUBJECT_REVIEWS_SCHEMA: [KindSchema; 1] =
    [schema::item::<k8s_openapi::api::authentication::v1::SelfSubjectReview>()];

pub(crate) static SELF_SUBJECT_REVIEWS: Resource = Resource {
    group: "authentication.k8s.io",
    plural: "selfsubjectreviews",
    singular: "selfsubjectreview",
    kind: "SelfSubjectReview",
    schemas: &SELF_SUBJECT_REVIEWS_SCHEMA,
    protobuf: Some(&tables::authentication_v1::SELF_SUBJECT_REVIEW),
    review: Some(Review::SelfSubject),
    ..REVIEW
};

static TOKEN_REVIEWS_SCHEMA: [KindSchema; 1] =
    [schema::item::<k8s_openapi::api::authentication::v1::TokenReview>()];

pub(crate) static TOKEN_REVIEWS: Resource = Resource {
    group: "authentication.k8s.io",
    plural: "tokenreviews",
    singular: "tokenreview",
    kind: "TokenReview",
    schemas: &TOKEN_REVIEWS_SCHEMA,
    protobuf: Some(&tables::authentication_v1::TOKEN_REVIEW),
    review: Some(Review::Token),
    ..REVIEW
};

static LOCAL_SUBJECT_ACCESS_REVIEWS_SCHEMA: [KindSchema; 1] =
    [schema::item::<k8s_openapi::api::authorization::v1::LocalSubjectAccessReview>()];

pub(crate) static LOCAL_SUBJECT_ACCESS_REVIEWS: Resource = Resource {
    group: "authorization.k8s.io",
    plural: "localsubjectaccessreviews",
    singular: "localsubjectaccessreview",
    kind: "LocalSubjectAccessReview",
    scope: Scope::Namespaced,
    schemas: &LOCAL_SUBJECT_ACCESS_REVIEWS_SCHEMA,
    protobuf: Some(&tables::authorization_v1::LOCAL_SUBJECT_ACCESS_REVIEW),
    review: Some(Review::LocalSubjectAccess),
    ..REVIEW
};

static SELF_SUBJECT_ACCESS_REVIEWS_SCHEMA: [KindSchema; 1] =
    [schema::item::<k8s_openapi::api::authorization::v1::SelfSubjectAccessReview>()];

pub(crate) static SELF_SUBJECT_ACCESS_REVIEWS: Resource = Resource {
    group: "authorization.k8s.io",
    plural: "selfsubjectaccessreviews",
    singular: "selfsubjectaccessreview",
    kind: "SelfSubjectAccessReview",
    schemas: &SELF_SUBJECT_ACCESS_REVIEWS_SCHEMA,
    protobuf: Some(&tables::authorization_v1::SELF_SUBJECT_ACCESS_REVIEW),
    review: Some(Review::SelfSubjectAccess),
    ..REVIEW
};

static SELF_SUBJECT_RULES_REVIEWS_SCHEMA: [KindSchema; 1] =
    [schema::item::<k8s_openapi::api::authorization::v1::SelfSubjectRulesReview>()];

pub(crate) static SELF_SUBJECT_RULES_REVIEWS: Resource = Resource {
    group: "authorization.k8s.io",
    plural: "selfsubjectrulesreviews",
    singular: "selfsubjectrulesreview",
    kind: "SelfSubjectRulesReview",
    schemas: &SELF_SUBJECT_RULES_REVIEWS_SCHEMA,
    protobuf: Some(&tables::authorization_v1::SELF_SUBJECT_RULES_REVIEW),
    review: Some(Review::SelfSubjectRules),
    ..REVIEW
};

static SUBJECT_ACCESS_REVIEWS_SCHEMA: [KindSchema; 1] =
    [schema::item::<k8s_openapi::api::authorization::v1::SubjectAccessReview>()];

pub(crate) static SUBJECT_ACCESS_REVIEWS: Resource = Resource {
    group: "authorization.k8s.io",
    plural: "subjectaccessreviews",
    singular: "subjectaccessreview",
    kind: "SubjectAccessReview",
    schemas: &SUBJECT_ACCESS_REVIEWS_SCHEMA,
    protobuf: Some(&tables::authorization_v1::SUBJECT_ACCESS_REVIEW),
    review: Some(Review::SubjectAccess),
    ..REVIEW
};
