//! The command and the arguments of a container, with their `$(NAME)` references replaced.
//!
//! They may hold secrets, since pods rely on it. Which words do is told to the runtime, so that it shows
//! them nowhere. And a short word may stand for gigabytes, so nothing is built that the kernel would not
//! take.

use waybill_core::env::{
    expand::expand,
    limits::{KERNEL_STRING_BYTES, KERNEL_TOTAL_BYTES, kernel_bytes},
    merge::{Entry, Environment},
};

use super::sandbox::ConfigError;

/// What stands for a word that is not shown, also in what our runtime tells.
const HIDDEN: &str = "<hidden>";
/// What users read instead of an error that would quote such a word.
const HIDDEN_FAULT: &str =
    "the container's program could not be executed; its name is sensitive and not shown";

/// What a container runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
    /// Words that hold a secret, as the annotation lists them.
    pub(super) sensitive: String,
}

impl Words {
    pub(super) fn expand(
        container: &str,
        command: &[String],
        args: &[String],
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let room = KERNEL_TOTAL_BYTES.saturating_sub(environment.kernel_bytes());
        let mut expansion = Expansion { container, environment, room, sensitive: Vec::new() };
        let command = expansion.all("command", command)?;
        let args = expansion.all("args", args)?;
        Ok(Self { command, args, sensitive: expansion.sensitive.join(",") })
    }
}

struct Expansion<'a> {
    container: &'a str,
    environment: &'a Environment,
    /// What the kernel takes of all words that are still to come.
    room: usize,
    sensitive: Vec<String>,
}

impl Expansion<'_> {
    fn all(&mut self, field: &str, words: &[String]) -> Result<Vec<String>, ConfigError> {
        let places = words.iter().enumerate();
        places.map(|(at, word)| self.one(&format!("{field}[{at}]"), word)).collect()
    }

    fn one(&mut self, place: &str, word: &str) -> Result<String, ConfigError> {
        let fault =
            |why: &str| ConfigError(format!("container {:?}: {place}: {why}", self.container));
        let lookup = |name: &[u8]| self.environment.get(name).map(Entry::value);
        let limit = KERNEL_STRING_BYTES.min(self.room);
        let expanded =
            expand(word.as_bytes(), lookup, limit).map_err(|error| fault(&error.to_string()))?;
        let Some(room) = self.room.checked_sub(kernel_bytes(expanded.len())) else {
            return Err(fault(&format!(
                "variables and arguments take more than {KERNEL_TOTAL_BYTES} bytes together, which \
                 Linux takes at most"
            )));
        };
        let text = String::from_utf8(expanded.expose().to_vec())
            .map_err(|_| fault("a variable in it is not UTF-8, so it cannot be an argument"))?;
        self.room = room;
        if expanded.is_secret() {
            self.sensitive.push(place.to_owned());
        }
        Ok(text)
    }
}

/// Whether the program of a container may be among its `sensitive` words.
pub(crate) fn hides_program(sensitive: Option<&String>) -> bool {
    let words = || sensitive.into_iter().flat_map(|list| list.split(','));
    words().any(|word| matches!(word.trim(), "command[0]" | "args[0]"))
}

/// What may be shown of a runtime's words about a start that failed. Other runtimes than ours quote the
/// program.
pub(crate) fn shown_fault(message: String, hides_program: bool) -> String {
    if hides_program && !message.is_empty() && !message.contains(HIDDEN) {
        return HIDDEN_FAULT.to_owned();
    }
    message
}

#[cfg(test)]
mod tests {
    use waybill_core::env::{
        merge::{EnvVar, Tier},
        name::{EnvName, NameRules},
        origin::Origin,
        value::EnvValue,
    };

    use super::*;

    fn environment(variables: Vec<(&str, EnvValue)>) -> Environment {
        let mut all = Environment::new();
        for (name, value) in variables {
            let name = EnvName::parse(name, NameRules::Strict).unwrap();
            all.set(Tier::Baseline, EnvVar { name, value, origin: Origin::Literal });
        }
        all
    }

    fn plain(length: usize) -> EnvValue {
        EnvValue::plain(vec![b'x'; length]).unwrap()
    }

    fn words(args: &[String], environment: &Environment) -> Result<Words, String> {
        Words::expand("a", &[], args, environment).map_err(|error| error.to_string())
    }

    #[test]
    fn words_that_hold_a_secret_are_named_and_others_not() {
        let secret = EnvValue::secret(b"hunter2".to_vec()).unwrap();
        let environment = environment(vec![("S", secret), ("P", plain(1))]);
        let list = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let (command, args) = (list(&["$(P)", "-$(S)"]), list(&["$$(S)", "$(S)", "$(P)"]));
        let words = Words::expand("a", &command, &args, &environment).unwrap();
        assert_eq!(words.command, ["x", "-hunter2"]);
        assert_eq!(words.args, ["$(S)", "hunter2", "x"]);
        assert_eq!(words.sensitive, "command[1],args[1]");
    }

    /// A pod of 260 KB made the node need 4 GB.
    #[test]
    fn words_are_bounded_as_the_kernel_bounds_them() {
        let environment = environment(vec![("A", plain(100_000))]);
        let one = words(&["$(A)".to_owned(), "$(A)$(A)".to_owned()], &environment).unwrap_err();
        assert_eq!(
            one,
            "container \"a\": args[1]: with its $(NAME) references replaced it takes 200000 bytes, \
             at most 131071 are possible"
        );
        let attack = vec!["$(A)".to_owned(); 65_000];
        let all = words(&attack, &environment).unwrap_err();
        assert!(all.starts_with("container \"a\": args[61]: "), "{all}");
        assert!(words(&attack[..60], &environment).is_ok());
    }

    #[test]
    fn an_error_that_could_quote_a_hidden_program_is_not_passed_on() {
        let list = |text: &str| hides_program(Some(&text.to_owned()));
        assert!(list("command[0],args[3]") && list("args[0]"));
        assert!(!list("args[1]") && !list("command[1],args[10]") && !hides_program(None));
        let told = "exec: \"hunter2\": not found".to_owned();
        assert_eq!(shown_fault(told.clone(), false), told);
        assert_eq!(shown_fault(told, true), HIDDEN_FAULT);
        let ours = "exec: \"<hidden>\": not found".to_owned();
        assert_eq!(shown_fault(ours.clone(), true), ours);
    }
}
