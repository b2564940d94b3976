//! What KEP-6035 asks of a runtime, one case for each rule.

use std::{future::Future, pin::Pin};

use super::{
    container::{BASELINE, Container, Variables},
    session,
};

/// One rule, and how to see whether it holds.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) requirement: &'static str,
    /// Whether it says something about runtimes that know the field only.
    pub(super) needs_support: bool,
    pub(super) check: for<'c> fn(&'c Container) -> Checking<'c>,
}

/// `Err` says what was seen instead.
type Checking<'c> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'c>>;

/// Every case, in the order of the requirements.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "variables reach the process",
        requirement: "EXEC-02",
        needs_support: true,
        check: |container| Box::pin(injection(container)),
    },
    Case {
        name: "variables reach its children",
        requirement: "EXEC-02",
        needs_support: true,
        check: |container| Box::pin(children(container)),
    },
    Case {
        name: "32 KiB of every byte but NUL arrive unchanged",
        requirement: "EXEC-02",
        needs_support: true,
        check: |container| Box::pin(every_byte(container)),
    },
    Case {
        name: "nothing is expanded from the other variables",
        requirement: "EXEC-03",
        needs_support: true,
        check: |container| Box::pin(no_expansion_within(container)),
    },
    Case {
        name: "nothing is expanded from the container's environment",
        requirement: "EXEC-03",
        needs_support: true,
        check: |container| Box::pin(no_expansion_of_baseline(container)),
    },
    Case {
        name: "a variable overrides the container's, and leaves the others alone",
        requirement: "EXEC-04",
        needs_support: true,
        check: |container| Box::pin(override_of_baseline(container)),
    },
    Case {
        name: "the last of a repeated name wins, and is there once",
        requirement: "EXEC-06",
        needs_support: true,
        check: |container| Box::pin(repetition(container)),
    },
    Case {
        name: "a value may be empty",
        requirement: "EXEC-07",
        needs_support: true,
        check: |container| Box::pin(empty_value(container)),
    },
    Case {
        name: "variables are gone with their session",
        requirement: "EXEC-08",
        needs_support: false,
        check: |container| Box::pin(one_session_only(container)),
    },
    Case {
        name: "a session without variables sees the container's environment",
        requirement: "EXEC-09",
        needs_support: false,
        check: |container| Box::pin(no_variables(container)),
    },
    Case {
        name: "the streaming address holds no variable",
        requirement: "EXEC-10",
        needs_support: false,
        check: |container| Box::pin(nothing_in_the_address(container)),
    },
    Case {
        name: "a session with variables works, whether or not they are known",
        requirement: "EXEC-12",
        needs_support: false,
        check: |container| Box::pin(harmless(container)),
    },
    Case {
        name: "the runtime's status says that it knows them",
        requirement: "EXEC-12",
        needs_support: true,
        check: |container| Box::pin(advertised(container)),
    },
];

async fn injection(container: &Container) -> Result<(), String> {
    let set: &[(&str, &[u8])] = &[("FOO", b"bar"), ("Logging:Level", b"two words")];
    expect(container, set, set).await
}

async fn children(container: &Container) -> Result<(), String> {
    let command = ["/busybox", "sh", "-c", "/busybox cat /proc/self/environ; :"];
    let seen = container.variables_of(&command, &[("FOO", b"bar")]).await?;
    check(seen.get("FOO".as_bytes()), "FOO", b"bar")
}

async fn every_byte(container: &Container) -> Result<(), String> {
    let value: Vec<u8> = (1..=u8::MAX).cycle().take(32 << 10).collect();
    let set: &[(&str, &[u8])] = &[("EVERY_BYTE", &value)];
    expect(container, set, set).await
}

async fn no_expansion_within(container: &Container) -> Result<(), String> {
    let set: &[(&str, &[u8])] = &[
        ("FOO", b"bar"),
        ("DOLLAR", b"$FOO"),
        ("BRACES", b"${FOO}"),
        ("PERCENT", b"%FOO%"),
        ("PARENTHESES", b"$(FOO)"),
        ("ESCAPED", b"$$(FOO)"),
    ];
    expect(container, set, set).await
}

async fn no_expansion_of_baseline(container: &Container) -> Result<(), String> {
    let values = [("D", "$", ""), ("B", "${", "}"), ("P", "%", "%"), ("R", "$(", ")")]
        .map(|(name, before, after)| (name, format!("{before}{}{after}", BASELINE.0)));
    let set: Vec<(&str, &[u8])> =
        values.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    expect(container, &set, &set).await
}

async fn override_of_baseline(container: &Container) -> Result<(), String> {
    let plain = container.variables(&[]).await?;
    let mut seen = container.variables(&[(BASELINE.0, b"from the caller")]).await?;
    check(seen.get(BASELINE.0.as_bytes()), BASELINE.0, b"from the caller")?;
    seen.insert(BASELINE.0.into(), BASELINE.1.into());
    same(&seen, &plain)
}

async fn repetition(container: &Container) -> Result<(), String> {
    let set: &[(&str, &[u8])] = &[("FOO", b"first"), ("BAR", b"x"), ("FOO", b"last")];
    expect(container, set, &[("FOO", b"last"), ("BAR", b"x")]).await
}

async fn empty_value(container: &Container) -> Result<(), String> {
    let set: &[(&str, &[u8])] = &[("EMPTY", b"")];
    expect(container, set, set).await
}

async fn one_session_only(container: &Container) -> Result<(), String> {
    let before = container.variables(&[]).await?;
    container.variables(&[("FOO", b"bar"), (BASELINE.0, b"other")]).await?;
    same(&container.variables(&[]).await?, &before)?;
    if container.own_variables().await?.contains_key("FOO".as_bytes()) {
        return Err("the container's own process has FOO".to_owned());
    }
    Ok(())
}

async fn no_variables(container: &Container) -> Result<(), String> {
    let seen = container.variables(&[]).await?;
    check(seen.get(BASELINE.0.as_bytes()), BASELINE.0, BASELINE.1.as_bytes())?;
    same(&seen, &container.own_variables().await?)
}

async fn nothing_in_the_address(container: &Container) -> Result<(), String> {
    let url = container.session_url(&["/busybox", "true"], &[("CANARY", b"c4n4ry")]).await?;
    // So that the runtime need not keep it.
    session::run(&url).await?;
    match url.contains("CANARY") || url.contains("c4n4ry") {
        true => Err(format!("the address is {url}")),
        false => Ok(()),
    }
}

async fn harmless(container: &Container) -> Result<(), String> {
    let seen = container.variables(&[("FOO", b"bar")]).await?;
    check(seen.get(BASELINE.0.as_bytes()), BASELINE.0, BASELINE.1.as_bytes())
}

async fn advertised(container: &Container) -> Result<(), String> {
    match container.advertises_variables().await {
        true => Ok(()),
        false => Err("features.exec_envs is not set".to_owned()),
    }
}

/// A session with `set` sees `expected`.
async fn expect(
    container: &Container,
    set: &[(&str, &[u8])],
    expected: &[(&str, &[u8])],
) -> Result<(), String> {
    let seen = container.variables(set).await?;
    expected.iter().try_for_each(|(name, value)| check(seen.get(name.as_bytes()), name, value))
}

fn check(found: Option<&Vec<u8>>, name: &str, expected: &[u8]) -> Result<(), String> {
    match found {
        None => Err(format!("{name} is not there")),
        Some(value) if value != expected => {
            Err(format!("{name} is {:?}", String::from_utf8_lossy(value)))
        }
        Some(_) => Ok(()),
    }
}

/// Both environments hold the same, whatever their order.
fn same(found: &Variables, expected: &Variables) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let names: Vec<_> = found
        .iter()
        .filter(|(name, value)| expected.get(*name) != Some(value))
        .map(|(name, _)| name)
        .chain(expected.keys().filter(|name| !found.contains_key(*name)))
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    Err(format!("these variables differ: {}", names.join(", ")))
}
