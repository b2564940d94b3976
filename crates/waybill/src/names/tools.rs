//! Which tools on the way to a program could trip over a name, and why. Only names that the strict rule
//! refuses are asked about, and none of them is an identifier of a shell.

use serde::Serialize;

/// A tool, and what it makes of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Trap {
    pub(super) tool: &'static str,
    pub(super) why: &'static str,
}

/// All that could trip over `name`, which the strict rule refuses.
pub(super) fn traps(name: &str) -> Vec<Trap> {
    let has = |any: &[char]| name.contains(any);
    let only_dots = name.chars().all(|found| found == '.');
    let table = [
        (
            true,
            "sh",
            "a shell cannot say $NAME; what dash or busybox sh start does not get it, what bash starts does",
        ),
        (true, "systemd", "Environment= and EnvironmentFile= ignore it"),
        (
            has(&[' ']) || name.starts_with('#'),
            "docker",
            "an --env-file refuses blanks in names and takes # at the start for a comment",
        ),
        (has(&[':']), "spring", "a placeholder ${a:b} means a, or else the text b"),
        (has(&[' ', '.', '[']), "php", "it is not in $_ENV; getenv() has it"),
        (has(&[')']), "$(NAME)", "a reference in a pod spec ends at the first )"),
        (
            has(&['/']) || only_dots,
            "files",
            "tools that write a file for each variable would write elsewhere or not at all",
        ),
        (
            has(&['$', '`', ';', '&', '|', '<', '>', '(', ')', '"', '\'', '\\', '*', '?', '#']),
            "eval",
            "a script that evaluates the output of env would run it as code",
        ),
    ];
    let could = table.into_iter().filter(|(could, ..)| *could);
    could.map(|(_, tool, why)| Trap { tool, why }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, tools: &[&str]) {
        let found: Vec<_> = traps(name).iter().map(|trap| trap.tool).collect();
        assert_eq!(found, tools, "{name}");
    }

    /// NAME-17
    #[test]
    fn each_tool_is_named_for_the_characters_it_cannot_take_name_17() {
        check("a:b", &["sh", "systemd", "spring"]);
        check("1x", &["sh", "systemd"]);
        check("a b", &["sh", "systemd", "docker", "php"]);
        check("#a", &["sh", "systemd", "docker", "eval"]);
        check("a[0]", &["sh", "systemd", "php"]);
        check("a)", &["sh", "systemd", "$(NAME)", "eval"]);
        check("a/b", &["sh", "systemd", "files"]);
        check("..", &["sh", "systemd", "php", "files"]);
        check("`id`", &["sh", "systemd", "eval"]);
    }
}
