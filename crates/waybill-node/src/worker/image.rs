//! Seeing that the image of a container is there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

use k8s_openapi::api::core::v1::ImageVolumeSource;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore},
    time::Instant,
};
use waybill_proto::cri::{AuthConfig, ImageSpec, PodSandboxConfig, PullImageRequest};

use super::{
    failure::{Failure, shown},
    lock,
    surroundings::Surroundings,
};
use crate::{
    cri::image::FoundImage,
    event::Kind,
    pod::{ContainerRef, Pod},
    status::Waiting,
};

mod credentials;
mod name;

/// More pulls at once share the same network anyway.
const PULLS: usize = 4;

/// Pulls images, each once at a time and only a few at once.
pub(crate) struct Images {
    pulling: Mutex<BTreeMap<String, Weak<AsyncMutex<()>>>>,
    permits: Semaphore,
}

impl Default for Images {
    fn default() -> Self {
        Self { pulling: Mutex::default(), permits: Semaphore::new(PULLS) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    fn of(policy: Option<&str>, image: &str) -> Self {
        match policy {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            // What the API server fills in; static pods come without.
            _ if name::is_latest(image) => Self::Always,
            _ => Self::IfNotPresent,
        }
    }
}

/// An image that a container needs: its own, or a volume's.
#[derive(Clone, Copy)]
pub(super) struct NeededImage<'a> {
    image: &'a str,
    policy: PullPolicy,
    /// Events are about this one.
    container: &'a str,
}

impl<'a> NeededImage<'a> {
    pub(super) fn of(container: &'a ContainerRef<'_>) -> Self {
        let image = container.image();
        let policy = container.to_container().image_pull_policy;
        Self {
            image,
            policy: PullPolicy::of(policy.as_deref(), image),
            container: container.name(),
        }
    }

    pub(super) fn of_volume(
        source: &'a ImageVolumeSource,
        container: &'a ContainerRef<'_>,
    ) -> Self {
        let image = source.reference.as_deref().unwrap_or_default();
        let policy = PullPolicy::of(source.pull_policy.as_deref(), image);
        Self { image, policy, container: container.name() }
    }
}

impl Images {
    /// The image that is needed, pulled if its policy says so.
    pub(super) async fn ensure(
        &self,
        around: &Surroundings,
        pod: &Pod,
        needed: NeededImage<'_>,
        sandbox: &PodSandboxConfig,
    ) -> Result<FoundImage, Failure> {
        let NeededImage { image, policy, .. } = needed;
        if !name::is_valid(image) {
            let message = format!(
                "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: \
                 invalid reference format"
            );
            return Err(Failure::new("InvalidImageName", message));
        }
        if let Some(found) = self.present(around, pod, needed).await? {
            return Ok(found);
        }
        let guard = self.guard(image);
        let waited = Instant::now();
        let _alone = guard.lock().await;
        if policy != PullPolicy::Always
            && let Some(found) = self.present(around, pod, needed).await?
        {
            return Ok(found);
        }
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await.ok();
        self.pull(around, pod, needed, sandbox, waited).await
    }

    /// The image, if it is here and may be used as it is.
    async fn present(
        &self,
        around: &Surroundings,
        pod: &Pod,
        NeededImage { image, policy, container }: NeededImage<'_>,
    ) -> Result<Option<FoundImage>, Failure> {
        if policy == PullPolicy::Always {
            return Ok(None);
        }
        let found = around.runtime.image(image).await.map_err(|status| {
            let message = format!("Failed to inspect image {image:?}: {}", shown(&status));
            Failure::new("ImageInspectError", message)
        })?;
        match (&found, policy) {
            (Some(_), _) => {
                let message = format!("Container image {image:?} already present on machine");
                around.recorder.container(pod, container, Kind::Normal, "Pulled", &message);
                Ok(found)
            }
            (None, PullPolicy::Never) => {
                let message =
                    format!("Container image {image:?} is not present with pull policy of Never");
                Err(Failure::new("ErrImageNeverPull", message))
            }
            (None, _) => Ok(None),
        }
    }

    async fn pull(
        &self,
        around: &Surroundings,
        pod: &Pod,
        NeededImage { image, container, .. }: NeededImage<'_>,
        sandbox: &PodSandboxConfig,
        waited: Instant,
    ) -> Result<FoundImage, Failure> {
        let note = |kind, reason, message: &str| {
            around.recorder.container(pod, container, kind, reason, message);
        };
        note(Kind::Normal, "Pulling", &format!("Pulling image {image:?}"));
        let failed = |message: String| Failure::Pull {
            waiting: Waiting { reason: "ErrImagePull", message },
            image: image.to_owned(),
        };
        let begun = Instant::now();
        let result = self.pull_with_any(around, pod, image, sandbox).await;
        if let Err(message) = result {
            let told = format!("Failed to pull image {image:?}: {message}");
            note(Kind::Warning, "Failed", &told);
            return Err(failed(message));
        }
        let found = around.runtime.image(image).await.map_err(|status| failed(shown(&status)))?;
        let found = found
            .ok_or_else(|| failed(format!("the runtime pulled {image:?} and does not have it")))?;
        let message = format!(
            "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {} bytes.",
            seconds(begun),
            seconds(waited),
            found.image.size
        );
        note(Kind::Normal, "Pulled", &message);
        Ok(found)
    }

    /// Tries the pull secrets that are meant for the registry, one after the other, or none.
    async fn pull_with_any(
        &self,
        around: &Surroundings,
        pod: &Pod,
        image: &str,
        sandbox: &PodSandboxConfig,
    ) -> Result<(), String> {
        let credentials = credentials::of(around, pod, image).await;
        let tries: Vec<Option<AuthConfig>> = if credentials.is_empty() {
            vec![None]
        } else {
            credentials.into_iter().map(Some).collect()
        };
        let mut message = String::new();
        for auth in tries {
            let request = PullImageRequest {
                image: Some(ImageSpec {
                    image: image.to_owned(),
                    user_specified_image: image.to_owned(),
                    ..ImageSpec::default()
                }),
                auth,
                sandbox_config: Some(sandbox.clone()),
            };
            match around.runtime.pull(request).await {
                Ok(_) => return Ok(()),
                Err(status) => message = shown(&status),
            }
        }
        Err(message)
    }

    fn guard(&self, image: &str) -> Arc<AsyncMutex<()>> {
        let mut pulling = lock(&self.pulling);
        pulling.retain(|_, guard| guard.strong_count() > 0);
        if let Some(guard) = pulling.get(image).and_then(Weak::upgrade) {
            return guard;
        }
        let guard = Arc::new(AsyncMutex::new(()));
        pulling.insert(image.to_owned(), Arc::downgrade(&guard));
        guard
    }
}

fn seconds(since: Instant) -> String {
    format!("{:.3}s", since.elapsed().as_secs_f64())
}
