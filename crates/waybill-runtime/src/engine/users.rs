//! A container whose users are not the machine's: what libcontainer is given, and where it finds it.
//!
//! libcontainer enters the user namespace first and opens everything else as root in there, who may not pass directories of ours.
//! So its root file system and its namespaces are bound to places in the creator's mount namespace that everybody can reach, beside
//! those of volumes. `monitor/users.rs` does it.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxIdMapping, LinuxNamespace, LinuxNamespaceType, Spec};
use serde::{Deserialize, Serialize};

use super::{EngineError, request::invalid};
use crate::IdMap;

/// Where both are for libcontainer.
pub(super) const ROOT: &str = "/sys/fs/cgroup/root";
pub(super) const NAMESPACES: &str = "/sys/fs/cgroup/namespaces";

/// The users of a container, and what has to be brought to their reach.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Users {
    pub(super) map: IdMap,
    /// The file of their namespace.
    pub(super) pin: PathBuf,
    pub(super) root: PathBuf,
    /// Files of namespaces, each with its name among [`NAMESPACES`].
    pub(super) namespaces: Vec<(String, PathBuf)>,
}

/// The users of `spec`, if it has some of its own; its paths become those of the places.
pub(super) fn take_out(spec: &mut Spec) -> Result<Option<Users>, EngineError> {
    let root = spec.root().as_ref().map(|root| root.path().clone()).unwrap_or_default();
    let Some(linux) = spec.linux_mut() else { return Ok(None) };
    let maps = (linux.uid_mappings().clone(), linux.gid_mappings().clone());
    let mut all = linux.namespaces().clone().unwrap_or_default();
    let is_user = |it: &LinuxNamespace| it.typ() == LinuxNamespaceType::User;
    let Some(pin) = all.iter().find(|it| is_user(it)).map(|it| it.path().clone()) else {
        return Ok(None);
    };
    let pin = pin.ok_or_else(|| invalid("a user namespace is made with a sandbox only"))?;
    let map = one_map(maps.0.as_deref(), maps.1.as_deref())?;
    let mut namespaces = Vec::new();
    for namespace in &mut all {
        let Some(path) = namespace.path().clone() else { continue };
        let name = namespace.typ().to_string();
        namespace.set_path(Some(Path::new(NAMESPACES).join(&name)));
        namespaces.push((name, path));
    }
    linux.set_namespaces(Some(all));
    linux.set_uid_mappings(None);
    linux.set_gid_mappings(None);
    if let Some(root) = spec.root_mut() {
        root.set_path(PathBuf::from(ROOT));
    }
    Ok(Some(Users { map, pin, root, namespaces }))
}

/// The one range that users and groups have.
fn one_map(
    uids: Option<&[LinuxIdMapping]>,
    gids: Option<&[LinuxIdMapping]>,
) -> Result<IdMap, EngineError> {
    match (uids, gids) {
        (Some([uids]), Some([gids])) if uids == gids && uids.container_id() == 0 => {
            IdMap::parse(uids.host_id(), uids.size())
                .map_err(|error| EngineError::Invalid { reason: error.to_string() })
        }
        _ => Err(invalid("a user namespace has one range of users, and the same of groups")),
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{
        LinuxBuilder, LinuxIdMappingBuilder, LinuxNamespaceBuilder, RootBuilder, SpecBuilder,
    };

    use super::*;

    fn mapping(host: u32) -> Vec<LinuxIdMapping> {
        let builder = LinuxIdMappingBuilder::default().host_id(host).container_id(0_u32);
        vec![builder.size(65536_u32).build().unwrap()]
    }

    fn spec(uids: u32, gids: u32, pin: Option<&str>) -> Spec {
        let own = |typ| LinuxNamespaceBuilder::default().typ(typ).build().unwrap();
        let mut user = own(LinuxNamespaceType::User);
        user.set_path(pin.map(PathBuf::from));
        let mut network = own(LinuxNamespaceType::Network);
        network.set_path(Some("/run/net".into()));
        let linux = LinuxBuilder::default()
            .namespaces(vec![own(LinuxNamespaceType::Mount), network, user])
            .uid_mappings(mapping(uids))
            .gid_mappings(mapping(gids));
        let root = RootBuilder::default().path("/run/root").build().unwrap();
        SpecBuilder::default().root(root).linux(linux.build().unwrap()).build().unwrap()
    }

    #[test]
    fn what_libcontainer_opens_lies_where_everybody_can_reach_it() {
        let mut spec = spec(65536, 65536, Some("/run/user"));
        let users = take_out(&mut spec).unwrap().unwrap();
        assert_eq!((users.map.root(), users.root.as_path()), (65536, Path::new("/run/root")));
        assert_eq!(users.pin, Path::new("/run/user"));
        assert_eq!(spec.root().as_ref().unwrap().path(), Path::new(ROOT));
        let linux = spec.linux().as_ref().unwrap();
        let paths: Vec<_> = linux.namespaces().iter().flatten().map(|it| it.path()).collect();
        let place = |name| Some(Path::new(NAMESPACES).join(name));
        assert_eq!(paths, [&None, &place("net"), &place("user")]);
        assert!(linux.uid_mappings().is_none());
        assert_eq!(users.namespaces[0], ("net".to_owned(), "/run/net".into()));
    }

    #[test]
    fn users_and_groups_have_one_range_and_a_namespace_that_exists() {
        assert!(take_out(&mut spec(65536, 131_072, Some("/run/user"))).is_err());
        assert!(take_out(&mut spec(65536, 65536, None)).is_err());
        assert!(take_out(&mut spec(0, 0, Some("/run/user"))).is_err());
        assert!(take_out(&mut Spec::default()).unwrap().is_none());
    }
}
