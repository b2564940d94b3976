//! A debug container is a session as a whole: gate puts its token into a variable of it.

use waybill_api::stock::{
    DEBUG_VARIABLE, EXEC_PREFIX, Refusal, SESSION_VARIABLE, StockKind, Verdict, framed,
};
use waybill_core::id::PodUid;

use crate::{
    bundle::Bundle,
    exec::{digest, mark_used},
    fault::Fault,
    node::Node,
    privileged, record, token,
};

/// Takes the token out of the environment and records the session; whether there was one.
pub(crate) fn begin(node: &Node, id: &str, bundle: &mut Bundle) -> Result<bool, Fault> {
    let mut env = bundle.env();
    let Some(at) = env
        .iter()
        .position(|entry| entry.split_once('=').is_some_and(|(name, _)| name == DEBUG_VARIABLE))
    else {
        return Ok(false);
    };
    let entry = env.remove(at);
    let token = entry
        .split_once('=')
        .and_then(|(_, value)| value.strip_prefix(EXEC_PREFIX))
        .ok_or(Refusal::NotSigned)?;
    // An image may take long to pull, so its age does not count; it is good once for as long as the pod lives.
    let claims = token::signed_claims(token, &node.keys())?;
    let identity = bundle.owner(node.engine()).pod().ok_or(Refusal::OtherContainer)?;
    if !identity.is_of(&claims) {
        return Err(Refusal::OtherContainer.into());
    }
    if claims.kind != StockKind::Debug || claims.words != digest(&framed([])) {
        return Err(Refusal::Changed.into());
    }
    let uid = PodUid::parse(&identity.uid).map_err(|_| Refusal::OtherContainer)?;
    mark_used(node, &node.layout().used_debug(&uid, &claims.session))?;
    let mut record = record::record(node, &identity, id, &[], Verdict::Attributed);
    record.kind = StockKind::Debug;
    record.privileged = privileged::is_privileged(bundle.spec());
    record.tty = claims.tty;
    record.session = Some(claims.session.clone());
    record::write(&node.layout().session(&claims.session), &record)
        .map_err(|_| Refusal::NotRecorded)?;
    env.push(format!("{}={}", SESSION_VARIABLE, claims.session));
    bundle.set_env(env);
    Ok(true)
}
