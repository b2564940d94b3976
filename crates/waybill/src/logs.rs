//! `waybill logs`: what a container wrote.

use std::io::{self, Write};

use anyhow::{Context, Result};
use futures_util::AsyncReadExt;
use waybill_client::Place;

use crate::{
    Outcome,
    cluster::ClusterArgs,
    get::query,
    target::{parse_pod, pods},
};

/// Show the log of a container.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  waybill logs web
  waybill logs web -c sidecar -f --tail 10
  waybill logs web --since 5m --timestamps
  waybill logs web -p")]
pub(crate) struct Args {
    /// The pod, as NAME or pod/NAME.
    #[arg(value_name = "POD", value_parser = parse_pod)]
    pod: String,

    /// The container, if the pod has more than one.
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,

    /// Go on with what is written, until the container ends.
    #[arg(short, long)]
    follow: bool,

    /// Only this many lines, the last ones.
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,

    /// Only what is younger, as `30s`, `5m` or `2h`.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    since: Option<u64>,

    /// The log of the container's last run before this one.
    #[arg(short, long)]
    previous: bool,

    /// With the time of each line.
    #[arg(long)]
    timestamps: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let parameters = parameters(args);
        let cluster = args.cluster.connect().await?;
        let path = log_path(&cluster.place(), &args.pod, &parameters);
        let mut log = cluster.requests.stream(&path).await?;
        let mut buffer = vec![0; 32 << 10];
        loop {
            let count = log.read(&mut buffer).await.context("the log ended early")?;
            let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { break };
            let mut output = io::stdout().lock();
            output.write_all(read)?;
            output.flush()?;
        }
        Ok(Outcome::Success)
    })
}

pub(crate) fn log_path(place: &Place, pod: &str, parameters: &[(&str, String)]) -> String {
    let parameters: Vec<_> =
        parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
    format!("{}/log?{}", pods().object_path(place, pod), query(&parameters))
}

fn parameters(args: &Args) -> Vec<(&'static str, String)> {
    let mut parameters = Vec::new();
    let mut add = |name, value: Option<String>| {
        if let Some(value) = value {
            parameters.push((name, value));
        }
    };
    let flag = |set: bool| set.then(|| "true".to_owned());
    add("container", args.container.clone());
    add("follow", flag(args.follow));
    add("tailLines", args.tail.map(|lines| lines.to_string()));
    add("sinceSeconds", args.since.map(|seconds| seconds.to_string()));
    add("previous", flag(args.previous));
    add("timestamps", flag(args.timestamps));
    parameters
}

/// `90`, `90s`, `5m`, `2h`, `1d`, or several of them as `1h30m`.
fn parse_seconds(text: &str) -> Result<u64, String> {
    let wrong = || "expected a time such as 30s, 5m or 1h30m".to_owned();
    let mut seconds: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let mut tail = tail.chars();
        let unit = match tail.next() {
            None | Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            Some(_) => return Err(wrong()),
        };
        seconds =
            number.checked_mul(unit).and_then(|it| seconds.checked_add(it)).ok_or_else(wrong)?;
        rest = tail.as_str();
    }
    if seconds == 0 { Err("a time must be above 0".to_owned()) } else { Ok(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in
            [("90", 90), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("1d", 86_400)]
        {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for wrong in ["", "0s", "x", "5x", "m", "-1s", "99999999999999999999d"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
