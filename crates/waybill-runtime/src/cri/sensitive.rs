//! What a request marks as sensitive: it reaches the container, and is shown nowhere (D9).

use waybill_core::env::{name::EnvName, name_list};
use waybill_proto::cri::ContainerConfig;
use zeroize::Zeroize;

/// Names of variables in this annotation, with commas between.
const NAMES: &str = "waybill.dev/sensitive-env";
/// Words of the command and the arguments in this one, as `command[0],args[2]`.
const WORDS: &str = "waybill.dev/sensitive-args";
/// What is shown in place of such a word. Nodes look for it.
const HIDDEN: &str = "<hidden>";

/// Names that may be shown, in order.
pub(super) fn shown_names<'a>(
    config: &ContainerConfig,
    names: impl Iterator<Item = &'a EnvName>,
) -> Vec<String> {
    let hidden = config.annotations.get(NAMES).map_or("", String::as_str);
    let shown = names.filter(|name| !name_list::contains(hidden, name));
    shown.map(ToString::to_string).collect()
}

/// Wipes the words of `config` that must not be shown.
pub(super) fn hide_words(config: &mut ContainerConfig) {
    let marked = config.annotations.get(WORDS).cloned().unwrap_or_default();
    let marked: Vec<_> = marked.split(',').map(str::trim).collect();
    for (field, words) in [("command", &mut config.command), ("args", &mut config.args)] {
        for (at, word) in words.iter_mut().enumerate() {
            if marked.contains(&format!("{field}[{at}]").as_str()) {
                word.zeroize();
                HIDDEN.clone_into(word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use waybill_core::env::name::NameRules;

    use super::*;

    fn with(annotation: &str, text: &str) -> ContainerConfig {
        ContainerConfig {
            annotations: [(annotation.to_owned(), text.to_owned())].into(),
            command: vec!["c0".into(), "c1".into()],
            args: vec!["a0".into(), "a1".into()],
            ..ContainerConfig::default()
        }
    }

    /// D9
    #[test]
    fn names_marked_sensitive_are_not_shown() {
        let config = with(NAMES, "TOKEN, KEY,a%2Cb");
        let names = ["PATH", "TOKEN", "KEY", "KEYS", "a,b"]
            .map(|name| EnvName::parse(name, NameRules::Kernel).unwrap());
        assert_eq!(shown_names(&config, names.iter()), ["PATH", "KEYS"]);
    }

    #[test]
    fn words_marked_sensitive_are_not_kept() {
        let mut config = with(WORDS, "command[0], args[1],args[7],nonsense");
        hide_words(&mut config);
        assert_eq!(config.command, [HIDDEN, "c1"]);
        assert_eq!(config.args, ["a0", HIDDEN]);
        let mut plain = with(NAMES, "command[0]");
        hide_words(&mut plain);
        assert_eq!(plain.command, ["c0", "c1"]);
    }
}
