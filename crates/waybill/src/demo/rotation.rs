//! A scene: the credential of a client expires and is replaced under a running watch, which loses nothing (KEP-541).

use std::{collections::BTreeSet, fs, path::PathBuf, time::Instant};

use anyhow::{Context, Result, bail};
use futures_util::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::timeout;
use waybill_client::{Options, Requests, Resource, connect};

use super::{
    Report,
    scenes::{PATIENCE, Scenes, text},
};
use crate::target::pods;

const NAME: &str = "demo-watched";

/// How many different tokens are waited for.
const TOKENS: usize = 3;

/// Where the API server tells with which token somebody came.
const TOKEN_ID: &str = "/status/userInfo/extra/authentication.kubernetes.io~1credential-id/0";

impl Scenes {
    pub(super) async fn rotation(&self, report: &mut Report) -> Result<()> {
        let options = Options { kubeconfig: self.short_lived()?, ..self.options.clone() };
        let requests = Requests::new(connect(&options).await?.client);
        let maps = Resource { plural: "configmaps".to_owned(), ..pods() };
        let map = |round: usize| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME},
                "data": {"round": round.to_string()}})
        };
        requests.create(&maps.path(&self.place), &map(0)).await?;
        let watch =
            format!("{}?watch=true&fieldSelector=metadata.name%3D{NAME}", maps.path(&self.place));
        let mut events = requests.stream(&watch).await?;
        let mut tokens = BTreeSet::from([token_id(&requests).await?]);
        let (start, mut round) = (Instant::now(), 0);
        expect(&mut events, round).await?;
        while tokens.len() < TOKENS {
            if start.elapsed() > PATIENCE {
                bail!("only {} tokens were seen", tokens.len());
            }
            round += 1;
            requests.replace(&maps.object_path(&self.place, NAME), &map(round)).await?;
            expect(&mut events, round).await?;
            tokens.insert(token_id(&requests).await?);
        }
        let seconds = start.elapsed().as_secs_f64();
        let proof = format!(
            "in {seconds:.1} s `waybill login` gave {} tokens, and the one watch told of all {round} changes",
            tokens.len()
        );
        report
            .held("a client's credential expires and is replaced under a running watch", &proof)?;
        Ok(())
    }

    /// The kubeconfig, with a plugin whose tokens are used for a second each.
    fn short_lived(&self) -> Result<PathBuf> {
        let config = fs::read_to_string(&self.options.kubeconfig)?;
        let mut config: Value =
            serde_saphyr::from_str(&config).context("the kubeconfig is not YAML")?;
        let arguments = config.pointer_mut("/users/0/user/exec/args").and_then(Value::as_array_mut);
        let arguments = arguments.context("the kubeconfig runs no plugin")?;
        arguments.extend(["--renew-after", "1"].map(Value::from));
        let path = self.state_dir.join("short-lived.kubeconfig");
        fs::write(&path, config.to_string())?;
        Ok(path)
    }
}

/// Which token the API server was shown.
async fn token_id(requests: &Requests) -> Result<String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = requests.create(path, &review).await?;
    Ok(text(&answer, TOKEN_ID).to_owned())
}

/// The next event must be about this round.
async fn expect(events: &mut (impl AsyncBufRead + Unpin), round: usize) -> Result<()> {
    let line = timeout(PATIENCE, events.lines().next()).await.context("the watch is silent")?;
    let event: Value = serde_json::from_str(&line.context("the watch ended")??)?;
    let seen = text(&event, "/object/data/round");
    if seen != round.to_string() {
        bail!("the watch tells of round {seen} in place of {round}");
    }
    Ok(())
}
