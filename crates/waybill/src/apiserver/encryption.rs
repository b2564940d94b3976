//! The flags that say what is encrypted in the store.

use std::{ffi::OsString, path::PathBuf};

use waybill_apiserver::Encryption;

/// What stands for no resource at all.
const NONE: &str = "none";

#[derive(Clone, clap::Args)]
pub(crate) struct EncryptionArgs {
    /// What is encrypted in the store: resources, with their group as in `leases.coordination.k8s.io`; or `none`.
    #[arg(long, value_name = "RESOURCES", value_delimiter = ',', default_values = ["secrets"])]
    encrypt: Vec<String>,

    /// The keys for that, the first for writing; `encryption/keys` in the state directory if this is not given.
    /// Made if it is missing. Keep a copy of it, elsewhere than copies of the store.
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,
}

impl EncryptionArgs {
    /// What the flags mean.
    pub(crate) fn config(self) -> Encryption {
        let named = |name: &String| !name.is_empty() && name != NONE;
        Encryption {
            key_file: self.encryption_key_file,
            resources: self.encrypt.into_iter().filter(named).collect(),
        }
    }

    /// The same flags, for another process.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = vec!["--encrypt".into(), self.encrypt.join(",").into()];
        if let Some(file) = &self.encryption_key_file {
            flags.extend(["--encryption-key-file".into(), file.into()]);
        }
        flags
    }
}

impl Default for EncryptionArgs {
    fn default() -> Self {
        Self { encrypt: vec!["secrets".to_owned()], encryption_key_file: None }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        encryption: EncryptionArgs,
    }

    fn parse(line: &str) -> EncryptionArgs {
        Cli::try_parse_from(format!("waybill {line}").split_whitespace()).unwrap().encryption
    }

    #[test]
    fn secrets_are_encrypted_unless_flags_say_otherwise() {
        assert_eq!(parse("").config().resources, ["secrets"]);
        assert_eq!(EncryptionArgs::default().flags(), parse("").flags());
        assert!(parse("--encrypt none").config().resources.is_empty());
        let line = "--encrypt secrets,configmaps --encryption-key-file /k";
        let flags = parse(line).flags().into_iter().map(|flag| flag.into_string().unwrap());
        assert_eq!(flags.collect::<Vec<_>>().join(" "), line);
        assert_eq!(parse(line).config().key_file, Some("/k".into()));
    }
}
