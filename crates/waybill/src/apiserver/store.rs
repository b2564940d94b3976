//! The flags that say where objects are kept.

use std::{ffi::OsString, fmt, net::IpAddr, path::PathBuf};

use anyhow::{Result, bail};
use waybill_apiserver::{EtcdFiles, EtcdStore, StoreConfig};

#[derive(Clone, clap::Args)]
pub(crate) struct StoreArgs {
    /// Where objects are kept: `embedded`, or `etcd=URL[,URL…]`.
    #[arg(long, value_name = "STORE", default_value = "embedded", value_parser = Place::parse)]
    store: Place,

    /// Who signs etcd's certificates, as PEM; needed for URLs with `https`.
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,

    /// Our certificate for an etcd that asks its clients for one, as PEM.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_keyfile", "etcd_cafile"])]
    etcd_certfile: Option<PathBuf>,

    /// The key of that certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,

    /// Our user, for an etcd that asks for a password.
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,

    /// The password of that user, in a file.
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
}

impl StoreArgs {
    /// What the flags mean together.
    pub(crate) fn config(self) -> Result<StoreConfig> {
        let identity = self.etcd_certfile.zip(self.etcd_keyfile);
        let tls = self.etcd_cafile.map(|ca| EtcdFiles { ca, identity });
        let user = self.etcd_user.zip(self.etcd_password_file);
        let urls = match self.store {
            Place::Embedded if tls.is_none() && user.is_none() => return Ok(StoreConfig::Embedded),
            Place::Embedded => {
                bail!("flags that begin with --etcd need --store etcd=https://HOST:2379")
            }
            Place::Etcd(urls) => urls,
        };
        if let Some(url) = urls.iter().find(|url| url.starts_with("https://") != tls.is_some()) {
            match tls {
                Some(_) => bail!("--etcd-cafile is given, but {url} has no TLS; write https://"),
                None => bail!(
                    "{url} needs --etcd-cafile FILE, the authority that signs etcd's certificates"
                ),
            }
        }
        if user.is_some()
            && let Some(url) = urls.iter().find(|url| crosses_the_network_bare(url))
        {
            bail!(
                "--etcd-user sends a password, which {url} would show to the network; use https://"
            );
        }
        Ok(StoreConfig::Etcd(EtcdStore { urls, tls, user }))
    }

    /// The same flags, for another process.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = vec!["--store".into(), self.store.to_string().into()];
        for (flag, file) in [
            ("--etcd-cafile", &self.etcd_cafile),
            ("--etcd-certfile", &self.etcd_certfile),
            ("--etcd-keyfile", &self.etcd_keyfile),
            ("--etcd-password-file", &self.etcd_password_file),
        ] {
            if let Some(file) = file {
                flags.extend([flag.into(), file.into()]);
            }
        }
        if let Some(user) = &self.etcd_user {
            flags.extend(["--etcd-user".into(), user.into()]);
        }
        flags
    }
}

impl Default for StoreArgs {
    fn default() -> Self {
        Self {
            store: Place::Embedded,
            etcd_cafile: None,
            etcd_certfile: None,
            etcd_keyfile: None,
            etcd_user: None,
            etcd_password_file: None,
        }
    }
}

fn crosses_the_network_bare(url: &str) -> bool {
    let Some(address) = url.strip_prefix("http://") else { return false };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host != "localhost" && !host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// The value of `--store`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Embedded,
    /// At these URLs.
    Etcd(Vec<String>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::Etcd(urls) => write!(f, "etcd={}", urls.join(",")),
        }
    }
}

impl Place {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "embedded" => Ok(Self::Embedded),
            Some(("etcd", urls)) => {
                urls.split(',').map(parse_url).collect::<Result<_, _>>().map(Self::Etcd)
            }
            _ => Err("expected `embedded` or `etcd=URL[,URL…]`".to_owned()),
        }
    }
}

fn parse_url(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.ok_or("a URL of etcd begins with `https://` or `http://`")?;
    if host.contains('@') {
        return Err("a URL of etcd holds no user; there is --etcd-user for that".to_owned());
    }
    if host.is_empty() {
        return Err("a URL of etcd names a host, as `https://HOST:2379`".to_owned());
    }
    Ok(url.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        store: StoreArgs,
    }

    fn parse(line: &str) -> Result<StoreConfig> {
        Cli::try_parse_from(format!("waybill {line}").split_whitespace())?.store.config()
    }

    #[track_caller]
    fn refused(line: &str, part: &str) {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn objects_are_kept_in_the_state_directory_or_in_etcd() {
        assert!(matches!(parse("").unwrap(), StoreConfig::Embedded));
        let StoreConfig::Etcd(plain) = parse("--store etcd=http://a:1,http://b:1").unwrap() else {
            panic!("not etcd");
        };
        assert_eq!((plain.urls.len(), plain.tls.is_some()), (2, false));
        let line = "--store etcd=https://a:1 --etcd-cafile c --etcd-certfile d --etcd-keyfile e";
        let StoreConfig::Etcd(secure) = parse(line).unwrap() else { panic!("not etcd") };
        let files = secure.tls.unwrap();
        assert_eq!(files.identity, Some(("d".into(), "e".into())));
    }

    #[test]
    fn flags_can_be_passed_on_as_they_came() {
        let line = "--store etcd=https://a:1,https://b:1 --etcd-cafile c --etcd-certfile d \
                    --etcd-keyfile e --etcd-password-file f --etcd-user u";
        let given = Cli::try_parse_from(format!("waybill {line}").split_whitespace()).unwrap();
        let flags = given.store.flags().into_iter().map(|flag| flag.into_string().unwrap());
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(flags.collect::<Vec<_>>(), words);
        assert_eq!(StoreArgs::default().flags(), ["--store", "embedded"]);
    }

    #[test]
    fn flags_that_do_not_fit_are_refused_with_what_to_do() {
        refused("--store etcd=https://a:1", "needs --etcd-cafile FILE");
        refused("--store etcd=http://a:1 --etcd-cafile c", "write https://");
        refused("--etcd-cafile c", "need --store etcd=https://HOST:2379");
        refused("--etcd-user u --etcd-password-file f", "need --store etcd=https://HOST:2379");
        refused("--store etcd=http://a:1 --etcd-user u", "--etcd-password-file");
        refused(
            "--store etcd=http://a:1 --etcd-user u --etcd-password-file f",
            "would show to the network",
        );
        for here in ["127.0.0.1", "[::1]", "localhost"] {
            let line = format!("--store etcd=http://{here}:1 --etcd-user u --etcd-password-file f");
            parse(&line).unwrap();
        }
        refused("--store etcd=https://a --etcd-cafile c --etcd-certfile d", "--etcd-keyfile");
        refused("--store etcd=a:1", "begins with `https://`");
        refused("--store etcd=http://", "names a host");
        refused("--store redis", "expected `embedded` or");
    }
}
