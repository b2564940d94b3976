//! Images as crictl shows them.

use waybill_proto::cri::Image;

/// As many digits as crictl shows.
const SHOWN_DIGITS: usize = 13;
const NONE: &str = "<none>";

const HEADER: [&str; 4] = ["IMAGE", "TAG", "IMAGE ID", "SIZE"];

/// A row for each tag, and one for an image without.
pub(super) fn table(images: &[Image]) -> String {
    let rows = images.iter().flat_map(rows);
    let rows: Vec<_> = [HEADER.map(String::from)].into_iter().chain(rows).collect();
    let widths: [usize; 4] = std::array::from_fn(|column| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    });
    rows.iter().map(|row| line(row, widths)).collect()
}

fn line(row: &[String; 4], widths: [usize; 4]) -> String {
    let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    format!("{}\n", cells.collect::<Vec<_>>().join("   ").trim_end())
}

fn rows(image: &Image) -> Vec<[String; 4]> {
    let digits = image.id.split_once(':').map_or(image.id.as_str(), |(_, digits)| digits);
    let id = digits.get(..SHOWN_DIGITS).unwrap_or(digits);
    let row = |name: &str, tag: &str| [name.into(), tag.into(), id.into(), size(image.size)];
    let mut rows: Vec<_> = image.repo_tags.iter().map(|name| split(name)).collect();
    if rows.is_empty() {
        let digest = image.repo_digests.first().and_then(|digest| digest.split_once('@'));
        rows.push((digest.map_or(NONE, |(name, _)| name), NONE));
    }
    rows.into_iter().map(|(name, tag)| row(name, tag)).collect()
}

/// Names here are full ones, so the last colon is the tag's.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once(':').unwrap_or((name, NONE))
}

/// Three digits that count, in units of a thousand.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut unit = 0;
    // In thousandths, so that no fraction is lost to rounding before the last step.
    let mut rest = u128::from(bytes) * 1000;
    while rest >= 999_500 && unit + 1 < UNITS.len() {
        rest = (rest + 500) / 1000;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 {
        return format!("{bytes}{name}");
    }
    let (whole, thousandths) = (rest / 1000, rest % 1000);
    match whole {
        0..10 => format!("{whole}.{:02}{name}", thousandths / 10),
        10..100 => format!("{whole}.{}{name}", thousandths / 100),
        _ => format!("{whole}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(digits: &str, tags: &[&str], digests: &[&str], size: u64) -> Image {
        Image {
            id: format!("sha256:{}", digits.repeat(32)),
            repo_tags: tags.iter().map(ToString::to_string).collect(),
            repo_digests: digests.iter().map(ToString::to_string).collect(),
            size,
            ..Image::default()
        }
    }

    #[test]
    fn a_row_stands_for_each_tag() {
        let images = [
            image(
                "a1",
                &["docker.io/library/busybox:1.36", "localhost:5000/b:latest"],
                &[],
                4_260_000,
            ),
            image("b2", &[], &["example.com/x@sha256:00"], 12_345),
            image("c3", &[], &[], 7),
        ];
        assert_eq!(
            table(&images),
            "\
IMAGE                       TAG      IMAGE ID        SIZE
docker.io/library/busybox   1.36     a1a1a1a1a1a1a   4.26MB
localhost:5000/b            latest   a1a1a1a1a1a1a   4.26MB
example.com/x               <none>   b2b2b2b2b2b2b   12.3kB
<none>                      <none>   c3c3c3c3c3c3c   7B
"
        );
    }

    #[test]
    fn without_images_there_is_a_header() {
        assert_eq!(table(&[]), "IMAGE   TAG   IMAGE ID   SIZE\n");
    }

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, text) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1.00kB"),
            (123_456, "123kB"),
            (999_499, "999kB"),
            (999_999, "1.00MB"),
            (1_500_000_000, "1.50GB"),
            (u64::MAX, "18446PB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
