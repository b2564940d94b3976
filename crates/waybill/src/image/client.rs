//! The connection to a runtime.

use std::path::Path;

use anyhow::{Result, anyhow};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use waybill_proto::{
    cri::{
        AuthConfig, Image, ImageFilter, ImageSpec, ImageStatusRequest, ListImagesRequest,
        PullImageRequest, RemoveImageRequest, image_service_client::ImageServiceClient,
    },
    runtime::images_client::ImagesClient,
};

/// As large as runtimes send.
const MESSAGE_BYTES: usize = 16 << 20;

/// A runtime whose socket we have.
pub(super) struct Runtime {
    channel: Channel,
}

impl Runtime {
    pub(super) async fn connect(socket: &Path) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
        // What the transport says of it is that nobody is there, in three ways.
        let channel = endpoint.connect().await.map_err(|_| {
            let socket = socket.display();
            anyhow!(
                "no runtime answers at {socket}; start `waybill up` or `waybill runtime`, or name another with --state-dir or --runtime"
            )
        })?;
        Ok(Self { channel })
    }

    /// The one image of that name, or all.
    pub(super) async fn list(&mut self, image: Option<String>) -> Result<Vec<Image>> {
        let wanted = image.clone();
        let filter = image.map(|image| ImageFilter { image: Some(spec(&image)) });
        let images = self.images().list_images(ListImagesRequest { filter }).await;
        let images = images.map_err(told)?.into_inner().images;
        match wanted {
            Some(wanted) if images.is_empty() => Err(missing(&wanted)),
            _ => Ok(images),
        }
    }

    /// CRI forgives the removal of what is not there, and people want to know.
    pub(super) async fn remove(&mut self, image: &str) -> Result<()> {
        let request = ImageStatusRequest { image: Some(spec(image)), verbose: false };
        let status = self.images().image_status(request).await.map_err(told)?.into_inner();
        if status.image.is_none() {
            return Err(missing(image));
        }
        let request = RemoveImageRequest { image: Some(spec(image)) };
        self.images().remove_image(request).await.map_err(told)?;
        Ok(())
    }

    /// Returns the id.
    pub(super) async fn pull(
        &mut self,
        image: String,
        credentials: Option<(String, String)>,
    ) -> Result<String> {
        let auth = credentials.map(|(username, password)| AuthConfig {
            username,
            password,
            ..AuthConfig::default()
        });
        let request = PullImageRequest { image: Some(spec(&image)), auth, sandbox_config: None };
        Ok(self.images().pull_image(request).await.map_err(told)?.into_inner().image_ref)
    }

    pub(super) fn archives(&self) -> ImagesClient<Channel> {
        ImagesClient::new(self.channel.clone())
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES)
    }
}

/// What the runtime says, in its own words.
#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(super) fn told(status: Status) -> anyhow::Error {
    match (status.code(), status.message()) {
        (Code::Unimplemented, _) if status.message().is_empty() => {
            anyhow!("the runtime at this socket cannot do that; archives need `waybill runtime`")
        }
        (code, "") => anyhow!("the runtime refused: {code}"),
        (_, message) => anyhow!("{message}"),
    }
}

fn missing(image: &str) -> anyhow::Error {
    anyhow!("there is no image `{image}`")
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.into(), ..ImageSpec::default() }
}
