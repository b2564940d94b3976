//! Fetches what the written volumes are to hold.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, KeyToPath,
    ProjectedVolumeSource, SecretVolumeSource, ServiceAccountTokenProjection, VolumeProjection,
};
use waybill_core::{quantity::Quantity, secret::SecretBytes};

use super::{
    Volumes,
    content::{DEFAULT_MODE, FileContent, Files, Object, parse_mode},
    error::VolumeFault,
    ownership,
};
use crate::{
    environment::{
        field::{FieldError, FieldPath},
        resource::ResourcePath,
    },
    objects::Wanted,
    pod::Pod,
};

/// A reference to an object from a volume.
struct Reference<'a> {
    name: &'a str,
    items: Option<&'a [KeyToPath]>,
    default_mode: i32,
    optional: bool,
}

impl Volumes {
    pub(super) async fn config_map_files(
        &self,
        pod: &Pod,
        source: &ConfigMapVolumeSource,
    ) -> Result<Files, VolumeFault> {
        let reference = Reference {
            name: &source.name,
            items: source.items.as_deref(),
            default_mode: source.default_mode.unwrap_or(DEFAULT_MODE),
            optional: source.optional == Some(true),
        };
        let mut files = Files::default();
        self.add_config_map(pod, &reference, &mut files).await?;
        Ok(files)
    }

    pub(super) async fn secret_files(
        &self,
        pod: &Pod,
        source: &SecretVolumeSource,
    ) -> Result<Files, VolumeFault> {
        let reference = Reference {
            name: source.secret_name.as_deref().unwrap_or_default(),
            items: source.items.as_deref(),
            default_mode: source.default_mode.unwrap_or(DEFAULT_MODE),
            optional: source.optional == Some(true),
        };
        let mut files = Files::default();
        self.add_secret(pod, &reference, &mut files).await?;
        Ok(files)
    }

    pub(super) fn downward_files(
        &self,
        pod: &Pod,
        source: &DownwardAPIVolumeSource,
    ) -> Result<Files, VolumeFault> {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let mut files = Files::default();
        self.add_downward(pod, source.items.as_deref(), mode, &mut files)?;
        Ok(files)
    }

    pub(super) async fn projected_files(
        &self,
        pod: &Pod,
        source: &ProjectedVolumeSource,
    ) -> Result<Files, VolumeFault> {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let mut files = Files::default();
        for projection in source.sources.iter().flatten() {
            self.add_projection(pod, projection, mode, &mut files).await?;
        }
        Ok(files)
    }

    async fn add_projection(
        &self,
        pod: &Pod,
        projection: &VolumeProjection,
        default_mode: i32,
        files: &mut Files,
    ) -> Result<(), VolumeFault> {
        match projection {
            VolumeProjection { config_map: Some(source), .. } => {
                let reference = Reference {
                    name: &source.name,
                    items: source.items.as_deref(),
                    default_mode,
                    optional: source.optional == Some(true),
                };
                self.add_config_map(pod, &reference, files).await
            }
            VolumeProjection { secret: Some(source), .. } => {
                let reference = Reference {
                    name: &source.name,
                    items: source.items.as_deref(),
                    default_mode,
                    optional: source.optional == Some(true),
                };
                self.add_secret(pod, &reference, files).await
            }
            VolumeProjection { downward_api: Some(source), .. } => {
                self.add_downward(pod, source.items.as_deref(), default_mode, files)
            }
            VolumeProjection { service_account_token: Some(source), .. } => {
                self.add_token(pod, source, default_mode, files).await
            }
            VolumeProjection { cluster_trust_bundle: Some(_), .. } => {
                Err(VolumeFault::Kind { kind: "projected clusterTrustBundle".to_owned() })
            }
            VolumeProjection { pod_certificate: Some(_), .. } => {
                Err(VolumeFault::Kind { kind: "projected podCertificate".to_owned() })
            }
            _ => Ok(()),
        }
    }

    async fn add_config_map(
        &self,
        pod: &Pod,
        reference: &Reference<'_>,
        files: &mut Files,
    ) -> Result<(), VolumeFault> {
        let found = self.objects.config_map(Wanted::by(pod, reference.name)).await;
        let object = match found {
            Err(error) if reference.optional && error.is_not_found() => return Ok(()),
            found => found?,
        };
        let data = by_key(object.data.iter().chain(&object.binary_data));
        files.add_object(reference.object(data, ("configmap", "config")))
    }

    async fn add_secret(
        &self,
        pod: &Pod,
        reference: &Reference<'_>,
        files: &mut Files,
    ) -> Result<(), VolumeFault> {
        let found = self.objects.secret(Wanted::by(pod, reference.name)).await;
        let object = match found {
            Err(error) if reference.optional && error.is_not_found() => return Ok(()),
            found => found?,
        };
        files.add_object(reference.object(by_key(object.data.iter()), ("secret", "secret")))
    }

    fn add_downward(
        &self,
        pod: &Pod,
        items: Option<&[DownwardAPIVolumeFile]>,
        default_mode: i32,
        files: &mut Files,
    ) -> Result<(), VolumeFault> {
        for item in items.unwrap_or_default() {
            let bytes = self.downward_value(pod, item)?.into_bytes().into();
            let mode = parse_mode(item.mode.unwrap_or(default_mode))?;
            files.add(&item.path, FileContent { bytes, mode, owner: None })?;
        }
        Ok(())
    }

    fn downward_value(
        &self,
        pod: &Pod,
        item: &DownwardAPIVolumeFile,
    ) -> Result<String, VolumeFault> {
        if let Some(field) = &item.field_ref {
            let path = FieldPath::parse_path(&field.field_path)?;
            if !path.is_metadata() {
                return Err(FieldError::Path { path: field.field_path.clone() }.into());
            }
            return Ok(path.look_up(pod, &self.node, &[])?);
        }
        let Some(resource) = &item.resource_field_ref else { return Ok(String::new()) };
        let divisor = resource.divisor.as_ref().map(|text| Quantity::parse(&text.0));
        let divisor = divisor
            .transpose()
            .map_err(|why| VolumeFault::Quantity { what: "divisor", why })?
            .unwrap_or_default();
        let container = resource.container_name.as_deref().unwrap_or_default();
        let path = ResourcePath::new(container, &resource.resource, divisor)?;
        Ok(path.look_up_named(pod, &self.node)?)
    }

    /// Readable for one user only, when the pod says who its user is; the group of the volume, if it
    /// has one, is let in afterwards.
    async fn add_token(
        &self,
        pod: &Pod,
        source: &ServiceAccountTokenProjection,
        default_mode: i32,
        files: &mut Files,
    ) -> Result<(), VolumeFault> {
        let token = self.tokens.token(&*self.objects, pod, source).await?;
        let owner = ownership::only_user(pod);
        let is_private = owner.is_some() || ownership::fs_group(pod).is_some();
        let mode = if is_private { 0o600 } else { parse_mode(default_mode)? };
        let bytes = SecretBytes::copy_of(token.expose());
        files.add(&source.path, FileContent { bytes, mode, owner })
    }
}

impl<'a> Reference<'a> {
    fn object(
        &self,
        data: BTreeMap<&'a str, &'a SecretBytes>,
        words: (&'static str, &'static str),
    ) -> Object<'a> {
        Object {
            data,
            items: self.items,
            default_mode: self.default_mode,
            optional: self.optional,
            words,
        }
    }
}

fn by_key<'a>(
    data: impl Iterator<Item = (&'a String, &'a SecretBytes)>,
) -> BTreeMap<&'a str, &'a SecretBytes> {
    data.map(|(key, bytes)| (&**key, bytes)).collect()
}
