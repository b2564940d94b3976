//! No API server, so no objects.

use std::{future::ready, sync::Arc};

use super::{
    Answer, ConfigMap, ObjectError, ObjectKind, ObjectSource, Secret, Token, Wanted, WantedToken,
};

/// For a node in standalone mode.
#[derive(Debug)]
pub(crate) struct NoObjects;

impl ObjectSource for NoObjects {
    fn config_map<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<ConfigMap>> {
        refuse(ObjectKind::ConfigMap, wanted.name)
    }

    fn secret<'a>(&'a self, wanted: Wanted<'a>) -> Answer<'a, Arc<Secret>> {
        refuse(ObjectKind::Secret, wanted.name)
    }

    fn token<'a>(&'a self, wanted: WantedToken<'a>) -> Answer<'a, Token> {
        refuse(ObjectKind::ServiceAccountToken, wanted.service_account)
    }
}

fn refuse<'a, T: Send + 'a>(kind: ObjectKind, name: &str) -> Answer<'a, T> {
    Box::pin(ready(Err(ObjectError::Standalone { kind, name: name.to_owned() })))
}

#[cfg(test)]
mod tests {
    use waybill_core::id::PodUid;

    use super::*;

    #[tokio::test]
    async fn standalone_nodes_say_why_there_is_no_object() {
        let pod = PodUid::parse("u").unwrap();
        let wanted = Wanted { pod: &pod, namespace: "n", name: "db" };
        let error = NoObjects.secret(wanted).await.err().unwrap();
        assert_eq!(
            error.to_string(),
            r#"secret "db" is not available in standalone mode: there is no API server"#
        );
        assert!(!error.is_not_found(), "optional does not hide a misplaced pod");
    }
}
