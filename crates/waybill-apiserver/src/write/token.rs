//! `serviceaccounts/token`: issues a token of a service account.

use std::time::Duration;

use serde_json::Value;
use waybill_api::status::Status;

use super::{Change, Writer};
use crate::{
    authn::{
        BearerTokens,
        token_request::{Account, TokenAnswer, TokenRequestError, token_request},
    },
    document::put,
    query::DryRun,
};

/// No token of a service account lives longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The annotation of the audit log that names the token.
const ISSUED: &str = "authentication.kubernetes.io/issued-credential-id";

impl Writer {
    /// Answers `question`, which is a decoded `TokenRequest`, for the account that `change` names.
    pub(crate) async fn issue_token(
        &self,
        change: Change<'_>,
        question: Value,
        tokens: &BearerTokens,
    ) -> Result<TokenAnswer, Status> {
        let question = self.admit_create(change, question, |_| Ok(())).await?;
        let account = Account { namespace: &change.route.namespace, name: &change.route.name };
        let (accounts, objects) = (&tokens.service_accounts, tokens.objects.as_ref());
        let mut answer =
            token_request(accounts, objects, account, &question, LONGEST, (self.clock)())
                .map_err(|error| refusal(&error))?;
        if change.dry_run == DryRun::All {
            // What was only tried is good for nothing; nobody ever sees the token.
            put(&mut answer.body, "/status/token", "");
        } else {
            change.remarks.notes.add(ISSUED, &answer.credential_id);
        }
        Ok(answer)
    }
}

fn refusal(error: &TokenRequestError) -> Status {
    let text = error.to_string();
    match error {
        TokenRequestError::BoundUid { .. } => Status::conflict_message(text),
        TokenRequestError::Seconds { .. } => Status::unprocessable(text),
        TokenRequestError::NotFound { .. } => Status::not_found_message(text),
        TokenRequestError::Sign(_) => Status::internal(text),
        TokenRequestError::AnotherAccountsPod(_)
        | TokenRequestError::BoundKind(_)
        | TokenRequestError::Mismatch { .. }
        | TokenRequestError::Undecodable => Status::bad_request(text),
    }
}
