//! What is known of programs: which of their flags, words and inputs are secrets.

/// How a flag of one letter has its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// `-p value`.
    Never,
    /// `-p value` and `-pvalue`.
    Maybe,
    /// `-pvalue`; what follows `-p` is something else.
    Always,
}

/// Flags of one letter whose value is a secret.
pub(super) struct Short {
    pub(super) programs: &'static [&'static str],
    pub(super) letters: &'static str,
    pub(super) joined: Joined,
    /// Flags without a value, which may stand before it in the same word.
    pub(super) switches: &'static str,
    /// Only after this word.
    pub(super) after: Option<&'static str>,
}

const fn short(programs: &'static [&'static str], letters: &'static str, joined: Joined) -> Short {
    Short { programs, letters, joined, switches: "", after: None }
}

pub(super) const SHORT: [Short; 13] = [
    Short { switches: "#0123456afgGiIjJkKlLnNOpqRsSvVZ", ..short(&["curl"], "uUb", Joined::Maybe) },
    short(
        &[
            "mariadb",
            "mariadb-admin",
            "mariadb-dump",
            "mariadb-import",
            "mysql",
            "mysqladmin",
            "mysqlbinlog",
            "mysqlcheck",
            "mysqldump",
            "mysqlimport",
            "mysqlpump",
            "mysqlshow",
            "mysqlslap",
        ],
        "p",
        Joined::Always,
    ),
    short(&["7z", "7za", "7zr", "rar", "unrar"], "p", Joined::Always),
    short(&["sshpass", "zip", "unzip", "zipcloak"], "pP", Joined::Maybe),
    short(
        &[
            "mongo",
            "mongosh",
            "mongodump",
            "mongorestore",
            "mongoexport",
            "mongoimport",
            "cypher-shell",
            "useradd",
            "usermod",
            "rdesktop",
            "hydra",
            "influx",
            "mysqlsh",
            "az",
        ],
        "p",
        Joined::Never,
    ),
    short(
        &["sqlcmd", "bcp", "isql", "mosquitto_pub", "mosquitto_sub", "mosquitto_rr", "ipmitool"],
        "P",
        Joined::Maybe,
    ),
    short(
        &[
            "ldapsearch",
            "ldapmodify",
            "ldapadd",
            "ldapdelete",
            "ldapwhoami",
            "ldapcompare",
            "ldapmodrdn",
            "ldapexop",
        ],
        "w",
        Joined::Maybe,
    ),
    short(&["ldappasswd"], "was", Joined::Maybe),
    short(
        &["snmpget", "snmpwalk", "snmpset", "snmpbulkwalk", "snmpgetnext", "snmptrap"],
        "AX",
        Joined::Maybe,
    ),
    short(&["redis-cli", "valkey-cli", "http", "https", "xh"], "a", Joined::Maybe),
    short(&["smbclient", "rpcclient", "lftp"], "Uu", Joined::Maybe),
    short(&["openssl"], "kK", Joined::Never),
    Short {
        after: Some("login"),
        ..short(
            &["docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras", "crane", "oc"],
            "p",
            Joined::Maybe,
        )
    },
];

/// Longer flags whose names do not say that their value is a secret.
pub(super) const LONG: [(&str, &[&str]); 3] =
    [("curl", &["user", "proxy-user", "tlsuser"]), ("plink", &["pw"]), ("lftp", &["user"])];

/// Flags with `key=value`, of which the value is a secret.
pub(super) const PAIRS: [&str; 1] = ["from-literal"];

/// What words without a dash mean to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// After one of these, every word and every value of `key=value`.
    After(&'static [&'static str]),
    /// The one after one of these.
    Next(&'static [&'static str]),
    /// All but the first.
    ButFirst,
    /// All but the first, if a flag has this letter.
    ButFirstWith(char),
    /// What follows this.
    Prefix(&'static str),
    /// `user/password`.
    Slash,
}

pub(super) const WORDS: [(&[&str], Words); 10] = [
    (
        &["vault", "bao"],
        Words::After(&[
            "put", "write", "patch", "login", "unwrap", "unseal", "lookup", "renew", "revoke",
        ]),
    ),
    (&["redis-cli", "valkey-cli"], Words::After(&["auth", "AUTH"])),
    (&["rabbitmqctl"], Words::After(&["add_user", "change_password", "authenticate_user"])),
    (&["mysqladmin", "mariadb-admin"], Words::Next(&["password"])),
    (&["nmcli"], Words::Next(&["password"])),
    (&["wpa_passphrase"], Words::ButFirst),
    (&["wpa_cli"], Words::Next(&["psk", "password"])),
    (&["htpasswd"], Words::ButFirstWith('b')),
    (&["xfreerdp", "wlfreerdp"], Words::Prefix("/p:")),
    (&["sqlplus", "expdp", "impdp", "rman"], Words::Slash),
];

/// After these a name and a value follow, as two words.
pub(super) const SETTERS: [&str; 3] = ["config", "put", "set"];

/// Programs to which a secret is given as their input.
pub(super) const READERS: [&str; 5] = ["chpasswd", "cryptsetup", "kinit", "passwd", "smbpasswd"];

/// Words after which the next one is the program.
pub(super) const PREFIXES: [&str; 16] = [
    "sudo", "exec", "nohup", "time", "env", "command", "nice", "then", "do", "else", "if", "while",
    "!", "{", "export", "eval",
];

/// Programs that take a script after `-c`.
pub(super) const SHELLS: [&str; 8] = ["ash", "bash", "busybox", "dash", "ksh", "sh", "su", "zsh"];

/// Programs that take a script after `-c`, `-e` or the like, by their names without a version.
pub(super) const INTERPRETERS: [&str; 11] =
    ["bun", "deno", "js", "lua", "node", "nodejs", "perl", "php", "pypy", "python", "ruby"];

/// Programs that take no script after `-c` and `-e`, but a variable or a setting.
pub(super) const TAKE_VARIABLES: [&str; 9] = [
    "ansible",
    "ansible-console",
    "ansible-playbook",
    "buildah",
    "docker",
    "git",
    "nerdctl",
    "podman",
    "systemd-run",
];

/// Whether something is known of a program.
pub(super) fn is_known(program: &str) -> bool {
    SHORT.iter().any(|it| it.programs.contains(&program))
        || LONG.iter().any(|(it, _)| *it == program)
        || WORDS.iter().any(|(programs, _)| programs.contains(&program))
}
