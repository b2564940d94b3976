//! The environment a container starts with: the baseline of its exec sessions too.

use waybill_core::env::{
    merge::{EnvVar, Environment, Tier},
    name::{EnvName, NameRules},
    origin::Origin,
    value::EnvValue,
};

use crate::cri::error::{CriError, Result};

/// What programs expect where an image has no PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the runtime itself knows; image and request override it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults<'a> {
    pub(super) home: &'a str,
    pub(super) hostname: &'a str,
    pub(super) tty: bool,
}

/// Defaults, then the image's variables, then the request's; each name once, the last value wins.
pub(super) fn environment(
    defaults: Defaults<'_>,
    image: &[String],
    request: Vec<(EnvName, EnvValue)>,
) -> Result<Vec<(EnvName, EnvValue)>> {
    let mut environment = Environment::new();
    let term = defaults.tty.then_some(("TERM", "xterm"));
    let own = [("PATH", PATH), ("HOSTNAME", defaults.hostname), ("HOME", defaults.home)];
    for (name, value) in own.into_iter().chain(term) {
        let variable = text_variable(name, value, Origin::Runtime)?;
        environment.set(Tier::Baseline, variable);
    }
    for (at, entry) in image.iter().enumerate() {
        let (name, value) = entry.split_once('=').ok_or_else(|| {
            CriError::invalid(format!("variable {at} of the image's configuration has no '='"))
        })?;
        environment.set(Tier::Baseline, text_variable(name, value, Origin::Image)?);
    }
    let request =
        request.into_iter().map(|(name, value)| EnvVar { name, value, origin: Origin::Literal });
    environment.extend(Tier::Baseline, request);
    Ok(environment.into_vars().map(|variable| (variable.name, variable.value)).collect())
}

fn text_variable(name: &str, value: &str, origin: Origin) -> Result<EnvVar> {
    let refused = |what| CriError::invalid(format!("a variable {what}"));
    let parsed = EnvName::parse(name, NameRules::Kernel)
        .map_err(|_| refused("of the image has an impossible name"))?;
    let value = EnvValue::plain(value.as_bytes())
        .map_err(|_| refused("of the image has a value with NUL"))?;
    Ok(EnvVar { name: parsed, value, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: Defaults<'_> = Defaults { home: "/root", hostname: "pod", tty: false };

    fn variable(name: &str, value: &[u8]) -> (EnvName, EnvValue) {
        let name = EnvName::parse(name, NameRules::Kernel).unwrap();
        (name, EnvValue::secret(value.to_vec()).unwrap())
    }

    fn shown(environment: &[(EnvName, EnvValue)]) -> Vec<String> {
        let show = |(name, value): &(EnvName, EnvValue)| {
            format!("{name}={}", String::from_utf8_lossy(value.expose()))
        };
        environment.iter().map(show).collect()
    }

    #[track_caller]
    fn check(defaults: Defaults<'_>, image: &[&str], request: &[(&str, &str)], expected: &[&str]) {
        let image: Vec<_> = image.iter().map(|&entry| entry.to_owned()).collect();
        let request = request.iter().map(|(name, value)| variable(name, value.as_bytes()));
        let environment = environment(defaults, &image, request.collect()).unwrap();
        assert_eq!(shown(&environment), expected);
    }

    #[test]
    fn request_beats_image_beats_default_and_each_name_is_there_once() {
        let path = format!("PATH={PATH}");
        check(
            DEFAULTS,
            &["PATH=/bin", "A=image", "B=image"],
            &[("B", "1"), ("C", ""), ("B", "2"), ("HOME", "/h")],
            &["PATH=/bin", "HOSTNAME=pod", "HOME=/h", "A=image", "B=2", "C="],
        );
        let terminal = Defaults { tty: true, ..DEFAULTS };
        check(terminal, &[], &[], &[&path, "HOSTNAME=pod", "HOME=/root", "TERM=xterm"]);
    }

    /// EXEC-03: nothing is expanded.
    #[test]
    fn values_are_literal_exec_03() {
        check(
            DEFAULTS,
            &["PATH=/bin", "A=a=b"],
            &[("B", "$(A) ${A} $A %A%")],
            &["PATH=/bin", "HOSTNAME=pod", "HOME=/root", "A=a=b", "B=$(A) ${A} $A %A%"],
        );
    }

    #[test]
    fn values_need_not_be_text() {
        let value: Vec<u8> = (1..=u8::MAX).collect();
        let environment = environment(DEFAULTS, &[], vec![variable("RAW", &value)]).unwrap();
        assert_eq!(environment.last().unwrap().1.expose(), value);
    }

    #[test]
    fn an_image_with_an_impossible_variable_is_refused() {
        for entry in ["NOEQUALS", "=x", "A=\0"] {
            assert!(environment(DEFAULTS, &[entry.to_owned()], Vec::new()).is_err(), "{entry:?}");
        }
    }
}
