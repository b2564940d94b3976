//! Names of images, by the rules of docker.io.
//!
//! `busybox` means `docker.io/library/busybox:latest`. The first component is a registry if it has
//! a dot, a colon or an upper-case letter, or is `localhost`. The parser of the `oci-spec` crate was
//! not exact enough: it takes tags of any script, upper-case digests and upper-case repositories.

use std::{fmt, str::FromStr};

use super::digest::{Digest, DigestError};

const DEFAULT_REGISTRY: &str = "docker.io";
const LEGACY_REGISTRY: &str = "index.docker.io";
const OFFICIAL: &str = "library/";
const DEFAULT_TAG: &str = "latest";

/// The longest registry and repository together that docker accepts.
const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;

/// A name in full: where the image is, and which one it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl ImageName {
    /// Host and port of the registry.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. A name without tag and digest gets `latest`; one with a digest may have none.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of a manifest, if the name has one.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Registry and repository.
    pub fn place(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The same place and tag, in the form of a repository tag: without a digest.
    pub fn tagged(&self) -> Option<String> {
        Some(format!("{}:{}", self.place(), self.tag.as_deref()?))
    }

    /// The form of a repository digest, with the digest of a manifest.
    pub fn with_digest(&self, digest: Digest) -> String {
        format!("{}@{digest}", self.place())
    }
}

impl FromStr for ImageName {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<Self, ImageNameError> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse()?)),
            None => (text, None),
        };
        let (name, tag) = split_tag(rest);
        if name.is_empty() {
            return Err(ImageNameError::Empty);
        }
        let (registry, repository) = split_registry(name);
        check_registry(registry)?;
        check_repository(&repository)?;
        if registry.len() + 1 + repository.len() > LONGEST_NAME {
            return Err(ImageNameError::TooLong);
        }
        let is_digits = name.len() == 64 && name.bytes().all(is_hex);
        if is_digits {
            return Err(ImageNameError::LikeAnId);
        }
        let tag = match tag {
            Some(tag) => Some(check_tag(tag)?),
            None => digest.is_none().then_some(DEFAULT_TAG),
        };
        Ok(Self { registry: registry.into(), repository, tag: tag.map(Into::into), digest })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// Why some text does not name an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageNameError {
    /// Nothing before the tag or the digest.
    #[error("an image name needs a repository, such as busybox or example.com/team/app:1.0")]
    Empty,
    /// The part before the first slash.
    #[error("the registry is not a host name with an optional port")]
    Registry,
    /// The rest.
    #[error(
        "the repository must be of lower-case letters, digits and single `.`, `_`, `__` or dashes \
         between them, separated by `/`"
    )]
    Repository,
    /// Behind the colon.
    #[error(
        "a tag has at most 128 letters, digits, `_`, `.` and `-`, and does not start with the \
         last two"
    )]
    Tag,
    /// Behind the at sign.
    #[error("{0}")]
    Digest(#[from] DigestError),
    /// Registry and repository together.
    #[error("registry and repository have more than 255 characters")]
    TooLong,
    /// Nobody could tell it from an id.
    #[error("64 hex digits are the id of an image and cannot be its name")]
    LikeAnId,
}

/// A colon after the last slash is a tag's; one before it is a port's.
fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    }
}

fn split_registry(name: &str) -> (&str, String) {
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (DEFAULT_REGISTRY, name),
    };
    let registry = if registry == LEGACY_REGISTRY { DEFAULT_REGISTRY } else { registry };
    if registry == DEFAULT_REGISTRY && !repository.contains('/') {
        return (registry, format!("{OFFICIAL}{repository}"));
    }
    (registry, repository.to_owned())
}

fn is_registry(first: &str) -> bool {
    first == "localhost"
        || first.contains(['.', ':'])
        || first.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> Result<(), ImageNameError> {
    let (host, port) = match registry.rsplit_once(':') {
        // An IPv6 address stands in brackets, and its colons are not a port's.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let good = port.is_none_or(is_port) && (is_host(host) || is_bracketed(host));
    if good { Ok(()) } else { Err(ImageNameError::Registry) }
}

fn is_host(host: &str) -> bool {
    host.split('.').all(|label| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    })
}

fn is_bracketed(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.is_some_and(|address| {
        !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
    })
}

fn check_repository(repository: &str) -> Result<(), ImageNameError> {
    if repository.split('/').all(is_component) { Ok(()) } else { Err(ImageNameError::Repository) }
}

/// Runs of letters and digits with separators between them, never at an end.
fn is_component(component: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let (Some(first), Some(last)) = (component.chars().next(), component.chars().next_back())
    else {
        return false;
    };
    let mut separators = component.split(is_plain).filter(|separator| !separator.is_empty());
    is_plain(first) && is_plain(last) && separators.all(is_separator)
}

fn is_separator(text: &str) -> bool {
    matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-')
}

fn check_tag(tag: &str) -> Result<&str, ImageNameError> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let good = tag.len() <= LONGEST_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'));
    if good { Ok(tag) } else { Err(ImageNameError::Tag) }
}

/// Whether it is a digit of an id.
pub(super) fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(text.parse::<ImageName>().unwrap().to_string(), expected, "{text}");
    }

    #[track_caller]
    fn refuse(text: &str, error: ImageNameError) {
        assert_eq!(text.parse::<ImageName>(), Err(error), "{text}");
    }

    #[test]
    fn a_short_name_is_of_the_official_library() {
        check("busybox", "docker.io/library/busybox:latest");
        check("busybox:1.36", "docker.io/library/busybox:1.36");
        check("docker.io/busybox", "docker.io/library/busybox:latest");
        check("index.docker.io/busybox", "docker.io/library/busybox:latest");
        check("index.docker.io/library/busybox", "docker.io/library/busybox:latest");
        check("team/app", "docker.io/team/app:latest");
        check("test.com:5000", "docker.io/library/test.com:5000");
        check("foo_bar.com:8080", "docker.io/library/foo_bar.com:8080");
    }

    #[test]
    fn a_registry_has_a_dot_a_port_an_upper_case_letter_or_is_localhost() {
        check("example.com/app", "example.com/app:latest");
        check("test:5000/app", "test:5000/app:latest");
        check("test:5000/app:tag", "test:5000/app:tag");
        check("localhost/app", "localhost/app:latest");
        check("localhost:5000/a/b/c:1", "localhost:5000/a/b/c:1");
        check("Team/app", "Team/app:latest");
        check("127.0.0.1:5000/app", "127.0.0.1:5000/app:latest");
        check("[::1]:5000/app", "[::1]:5000/app:latest");
        check("[fd00::1]/app", "[fd00::1]/app:latest");
        check("xn--n3h.com/myimage:xn--n3h.com", "xn--n3h.com/myimage:xn--n3h.com");
    }

    #[test]
    fn a_digest_needs_no_tag_and_may_have_one() {
        check(&format!("app@{DIGEST}"), &format!("docker.io/library/app@{DIGEST}"));
        check(&format!("app:1@{DIGEST}"), &format!("docker.io/library/app:1@{DIGEST}"));
        check(&format!("a:5000/b@{DIGEST}"), &format!("a:5000/b@{DIGEST}"));
    }

    #[test]
    fn separators_stand_between_letters() {
        for good in ["a.b", "a_b", "a__b", "a-b", "a---b", "a.b_c-d", "0", "a/b.c"] {
            assert!(good.parse::<ImageName>().is_ok(), "{good}");
        }
        for bad in ["a..b", "a___b", "a._b", "-a", "a-", "_a", "a.", "a//b", "/a", "a/", "a b", "ä"]
        {
            refuse(bad, ImageNameError::Repository);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        refuse("", ImageNameError::Empty);
        refuse(":tag", ImageNameError::Empty);
        refuse(&format!("@{DIGEST}"), ImageNameError::Empty);
        refuse("App", ImageNameError::Repository);
        refuse("example.com/App", ImageNameError::Repository);
        refuse("-a.com/app", ImageNameError::Registry);
        refuse("a.com:/app", ImageNameError::Registry);
        refuse("a..com/app", ImageNameError::Registry);
        refuse("[]:5000/app", ImageNameError::Registry);
        refuse("app:", ImageNameError::Tag);
        refuse("app:ü", ImageNameError::Tag);
        refuse("app:-1", ImageNameError::Tag);
        refuse(&format!("app:{}", "t".repeat(129)), ImageNameError::Tag);
        refuse("app@sha256:abc", ImageNameError::Digest(DigestError::Length));
        refuse("app@sha512:abc", ImageNameError::Digest(DigestError::Algorithm));
        refuse(&"a".repeat(64), ImageNameError::LikeAnId);
        refuse(&"x/".repeat(128), ImageNameError::Repository);
        refuse(&format!("{}y", "x/".repeat(128)), ImageNameError::TooLong);
        check(
            &format!("app:{}", "t".repeat(128)),
            &format!("docker.io/library/app:{}", "t".repeat(128)),
        );
    }

    proptest! {
        #[test]
        fn a_full_name_reads_as_itself(text in "([a-zA-Z0-9.-]{1,8}(:[0-9]{1,4})?/)?[a-z0-9._/-]{1,12}(:[\\w.-]{0,5})?") {
            if let Ok(name) = text.parse::<ImageName>() {
                prop_assert_eq!(name.to_string().parse(), Ok(name));
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,64}") {
            let _ = text.parse::<ImageName>();
        }
    }
}
