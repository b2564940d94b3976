//! URLs, as far as Kubernetes' library takes them apart. They are absolute, or begin with `/`.

use std::{collections::BTreeMap, rc::Rc};

use super::{Function, Outcome, fail, unfit};
use crate::cel::{
    budget::Budget,
    types::Type,
    value::{EvalError, Key, Library, Text, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::global("url", 1, URL, url).on(&[Type::String]),
    Function::global("isURL", 1, Type::Bool, is_url).on(&[Type::String]),
    Function::member("getScheme", 1, Type::String, scheme).on(&[URL]),
    Function::member("getHost", 1, Type::String, host).on(&[URL]),
    Function::member("getHostname", 1, Type::String, hostname).on(&[URL]),
    Function::member("getPort", 1, Type::String, port).on(&[URL]),
    Function::member("getEscapedPath", 1, Type::String, path).on(&[URL]),
    Function::member("getQuery", 1, Type::Map, query).on(&[URL]),
];

const URL: Type = Type::Library("kubernetes.URL");

/// The parts of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    fn parse(text: &str) -> Option<Self> {
        if text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
            return None;
        }
        let text = text.split('#').next().unwrap_or_default();
        let (before, query) = text.split_once('?').unwrap_or((text, ""));
        if before.starts_with('/') && !before.starts_with("//") {
            return Some(Self {
                path: checked(before)?,
                query: query.to_owned(),
                ..Self::default()
            });
        }
        let (scheme, rest) = before.split_once(':')?;
        let lettered = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
        if !lettered || !scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c)) {
            return None;
        }
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let url = Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: checked(path)?,
            query: query.to_owned(),
        };
        url.split_host().is_some().then_some(url)
    }

    /// Name and port; the name of an IPv6 address without its brackets.
    fn split_host(&self) -> Option<(&str, &str)> {
        let (name, port) = match self.host.strip_prefix('[') {
            Some(rest) => {
                let (name, rest) = rest.split_once(']')?;
                let port = if rest.is_empty() { "" } else { rest.strip_prefix(':')? };
                (name, port)
            }
            None => self.host.split_once(':').unwrap_or((&self.host, "")),
        };
        port.bytes().all(|byte| byte.is_ascii_digit()).then_some((name, port))
    }
}

/// The path, if every `%` in it begins an escape.
fn checked(path: &str) -> Option<String> {
    let fine = path.split('%').skip(1).all(|after| {
        after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())
    });
    fine.then(|| path.to_owned())
}

fn parsed(budget: &mut Budget, values: &[Value<'_>]) -> Result<Option<Url>, EvalError> {
    let [Value::String(text)] = values else {
        return Err(EvalError::NoSuchOverload(String::new()));
    };
    budget.charge_bytes(text.len())?;
    Ok(Url::parse(text))
}

fn url<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match parsed(budget, values)? {
        Some(url) => Ok(Value::Library(Library::Url(Rc::new(url)))),
        None => fail("URL parse error during conversion from string"),
    }
}

fn is_url<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(parsed(budget, values)?.is_some()))
}

fn part<'a>(values: &[Value<'a>], part: fn(&Url) -> &str) -> Outcome<'a> {
    let [Value::Library(Library::Url(url))] = values else { return unfit() };
    Ok(Value::text(part(url)))
}

fn scheme<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    part(values, |url| &url.scheme)
}

fn host<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    part(values, |url| &url.host)
}

fn hostname<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    part(values, |url| url.split_host().map_or("", |(name, _)| name))
}

fn port<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    part(values, |url| url.split_host().map_or("", |(_, port)| port))
}

fn path<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    part(values, |url| &url.path)
}

/// Keys with the list of their values.
fn query<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Url(url))] = values else { return unfit() };
    budget.charge_bytes(url.query.len())?;
    let mut found: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
        budget.charge_elements(1)?;
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (decoded(key), decoded(value)) else { continue };
        found.entry(key).or_default().push(Value::text(value));
    }
    let entries: Result<_, EvalError> = found
        .into_iter()
        .map(|(key, values)| Ok((Key::String(Text::Shared(key.into())), Value::list(values)?)))
        .collect();
    Value::map(entries?)
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}
