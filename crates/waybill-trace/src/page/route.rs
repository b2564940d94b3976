//! What a request asks for, as one of a closed list.

use http::Method;
use percent_encoding::percent_decode_str;

use super::assets::{self, Asset};

/// One thing that can be asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// A file of the page.
    Asset(&'static Asset),
    /// A token is changed for access.
    Open,
    /// Users, pods and namespaces of the whole record, and how complete it is.
    Facets,
    /// Sessions that match a filter.
    Sessions,
    /// One session, by any of its names.
    Session(String),
    /// Programs of a session.
    Processes(String),
    /// One program of a session, whole: its pid, and its start in microseconds.
    Process(String, u32, i64),
    /// What changes, until somebody hangs up.
    Changes,
    /// What matches a filter, as a file.
    Export,
}

/// Why there is no such route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// Nothing is there.
    Unknown,
    /// Another method is.
    Method,
}

impl Route {
    /// Finds it.
    pub(super) fn of(method: &Method, path: &str) -> Result<Self, NoRoute> {
        let route = Self::at(path).ok_or(NoRoute::Unknown)?;
        let wanted = if route == Self::Open { &Method::POST } else { &Method::GET };
        if method == wanted { Ok(route) } else { Err(NoRoute::Method) }
    }

    /// Whether it is for everybody.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Asset(_) | Self::Open)
    }

    fn at(path: &str) -> Option<Self> {
        if let Some(asset) = assets::find(path) {
            return Some(Self::Asset(asset));
        }
        let mut parts = path.strip_prefix("/api/")?.split('/');
        let (head, session, below, process) =
            (parts.next()?, parts.next(), parts.next(), parts.next());
        if parts.next().is_some() {
            return None;
        }
        match (head, session, below, process) {
            ("open", None, None, None) => Some(Self::Open),
            ("facets", None, None, None) => Some(Self::Facets),
            ("sessions", None, None, None) => Some(Self::Sessions),
            ("changes", None, None, None) => Some(Self::Changes),
            ("export", None, None, None) => Some(Self::Export),
            ("sessions", Some(id), None, None) => Some(Self::Session(decoded(id)?)),
            ("sessions", Some(id), Some("processes"), None) => Some(Self::Processes(decoded(id)?)),
            ("sessions", Some(id), Some("processes"), Some(name)) => {
                let name = decoded(name)?;
                let (pid, started) = name.split_once('@')?;
                Some(Self::Process(decoded(id)?, pid.parse().ok()?, started.parse().ok()?))
            }
            _ => None,
        }
    }
}

fn decoded(part: &str) -> Option<String> {
    let text = percent_decode_str(part).decode_utf8().ok()?;
    (!text.is_empty()).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_method_are_one_thing_or_nothing() {
        let get = |path: &str| Route::of(&Method::GET, path);
        assert!(matches!(get("/"), Ok(Route::Asset(_))));
        assert_eq!(get("/api/sessions"), Ok(Route::Sessions));
        assert_eq!(get("/api/sessions/audit%3Aa%2Fb"), Ok(Route::Session("audit:a/b".into())));
        assert_eq!(get("/api/sessions/s/processes"), Ok(Route::Processes("s".into())));
        assert_eq!(get("/api/sessions/s/processes/7@12"), Ok(Route::Process("s".into(), 7, 12)));
        for unknown in [
            "/index.html",
            "/api",
            "/api/",
            "/api/sessions/",
            "/api/sessions/%ff",
            "/api/sessions/s/x",
            "/../etc/passwd",
            "//",
        ] {
            assert_eq!(get(unknown), Err(NoRoute::Unknown), "{unknown}");
        }
        assert_eq!(get("/api/open"), Err(NoRoute::Method));
        assert_eq!(Route::of(&Method::POST, "/api/sessions"), Err(NoRoute::Method));
        assert_eq!(Route::of(&Method::POST, "/api/open"), Ok(Route::Open));
    }
}
