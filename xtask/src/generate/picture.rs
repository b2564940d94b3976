//! The moving picture of the README, from the record of a real run.
//!
//! The record is `docs/pictures/hostile.txt`, which `hostile.sh` beside it writes: a line is a time in milliseconds and then
//! `# ` with a remark, `$ ` with a command, or two blanks with what it said. The picture shows the same lines one after the
//! other, slowly enough to be read. It has no script: hosts of repositories show SVG as images, in which none runs.

use std::fmt::Write;

use anyhow::{Context, Result, bail};

use super::Generated;
use crate::repository::Repository;

const RECORD: &str = "docs/pictures/hostile.txt";
const PICTURE: &str = "docs/pictures/hostile.svg";

/// Sizes in pixels.
const LINE: usize = 22;
const CHARACTER: usize = 9;
const MARGIN: usize = 18;

/// How long a line stands alone before the next comes, in milliseconds.
const REMARK: usize = 1600;
const COMMAND: usize = 1300;
const ANSWER: usize = 250;

pub(super) fn generated(repository: &Repository) -> Result<Generated> {
    let record = repository.read(RECORD)?;
    let text = picture(&record).with_context(|| format!("{RECORD} is no record"))?;
    Ok(Generated { path: PICTURE.to_owned(), text })
}

fn picture(record: &str) -> Result<String> {
    let lines = record.lines().map(Line::parse).collect::<Result<Vec<_>>>()?;
    let widest = lines.iter().map(|line| line.text.chars().count()).max().unwrap_or_default();
    let (width, height) = (widest * CHARACTER + 2 * MARGIN, lines.len() * LINE + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <!-- Written by `cargo xtask gen` from {RECORD}; do not edit. -->\n\
         <title>A process that hides is traced to the person who started it</title>\n\
         <style>\n\
         text {{ font: 15px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; fill: #d5dde5; opacity: 0; animation: show 0.2s forwards; }}\n\
         .remark {{ fill: #8ba3b8; }}\n\
         .command {{ fill: #8fe388; }}\n\
         @keyframes show {{ to {{ opacity: 1; }} }}\n\
         @media (prefers-reduced-motion: reduce) {{ text {{ opacity: 1; animation: none; }} }}\n\
         </style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#14191f\"/>\n"
    );
    let mut delay = 300;
    for (number, line) in lines.iter().enumerate() {
        let y = MARGIN + (number + 1) * LINE - LINE / 4;
        let (class, pause) = match line.kind {
            Kind::Remark => ("remark", REMARK),
            Kind::Command => ("command", COMMAND),
            Kind::Answer => ("answer", ANSWER),
        };
        writeln!(
            svg,
            "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\" textLength=\"{}\" style=\"animation-delay: {delay}ms\" xml:space=\"preserve\">{}</text>",
            line.text.chars().count() * CHARACTER,
            escaped(&line.text),
        )?;
        delay += pause;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Remark,
    Command,
    Answer,
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    kind: Kind,
    /// As it is shown.
    text: String,
}

impl Line {
    fn parse(line: &str) -> Result<Self> {
        let (time, rest) = line.split_once(' ').context("a line has a time and a text")?;
        time.parse::<u64>().with_context(|| format!("{time:?} is no time"))?;
        let (kind, text) = match rest.split_at_checked(2) {
            Some(("# ", _)) => (Kind::Remark, rest),
            Some(("$ ", _)) => (Kind::Command, rest),
            Some(("  ", said)) => (Kind::Answer, said),
            _ => bail!("{rest:?} is neither a remark nor a command nor an answer"),
        };
        Ok(Self { kind, text: text.trim_end().to_owned() })
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_after_the_other_and_are_escaped() {
        let svg = picture("0 # Who?\n10 $ ps > x & \n20   1 <init>\n").unwrap();
        let shown: Vec<_> = svg.lines().filter(|line| line.starts_with("<text")).collect();
        assert_eq!(shown.len(), 3);
        assert!(shown[0].contains("animation-delay: 300ms") && shown[0].contains("# Who?"));
        assert!(shown[1].contains("1900ms") && shown[1].contains("$ ps &gt; x &amp;<"));
        assert!(shown[2].contains("3200ms") && shown[2].contains(">1 &lt;init&gt;<"));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for record in ["x # a", "1", "1 a", "1 "] {
            assert!(picture(record).is_err(), "{record}");
        }
    }
}
