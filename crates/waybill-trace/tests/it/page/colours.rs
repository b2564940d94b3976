//! Colours of users are told apart by eyes that lack a kind of cone, and texts can be read on them.

use super::served::{Record, Visit};

/// How light looks without one kind of cone, in linear red, green and blue: protanopia, deuteranopia, tritanopia, after Machado and others, 2009.
const SIGHTS: [[[f64; 3]; 3]; 4] = [
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [
        [0.152_286, 1.052_583, -0.204_868],
        [0.114_503, 0.786_281, 0.099_216],
        [-0.003_882, -0.048_116, 1.051_998],
    ],
    [
        [0.367_322, 0.860_646, -0.227_968],
        [0.280_085, 0.672_501, 0.047_413],
        [-0.011_820, 0.042_940, 0.968_881],
    ],
    [
        [1.255_528, -0.076_749, -0.178_779],
        [-0.078_411, 0.930_809, 0.147_602],
        [0.004_733, 0.691_367, 0.303_900],
    ],
];

/// Differences below 10 are overlooked in small fields.
const APART: f64 = 15.0;

#[test]
fn eight_users_are_told_apart_by_all_eyes_in_light_and_dark() {
    let Some(visit) = Visit::start(Record::default(), "") else { return };
    for theme in ["light", "dark"] {
        let all =
            visit.tab.evaluate(&format!("import('/colours.js').then((it) => it.palettes.{theme})"));
        let colours: Vec<[f64; 3]> =
            super::served::texts(&all).iter().map(|text| linear(text)).collect();
        assert_eq!(colours.len(), 8);
        for (sight, matrix) in SIGHTS.iter().enumerate() {
            for (at, one) in colours.iter().enumerate() {
                for (beside, other) in colours.iter().enumerate().skip(at + 1) {
                    let difference = distance(lab(seen(matrix, *one)), lab(seen(matrix, *other)));
                    assert!(
                        difference > APART,
                        "{theme} {at} and {beside} with sight {sight}: {difference:.1}"
                    );
                }
            }
        }
    }
}

#[test]
fn text_on_a_colour_has_enough_contrast() {
    let Some(visit) = Visit::start(Record::default(), "") else { return };
    let all = visit.tab.evaluate("import('/colours.js').then((it) => [...it.palettes.light, ...it.palettes.dark].map((one) => `${one} ${it.inkOn(one)}`))");
    for pair in super::served::texts(&all) {
        let (ground, ink) = pair.split_once(' ').unwrap();
        let (one, other) = (luminance(linear(ground)), luminance(linear(ink)));
        let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
        assert!(contrast >= 4.5, "{pair}: {contrast:.2}");
    }
}

fn linear(colour: &str) -> [f64; 3] {
    [1, 3, 5].map(|at| {
        let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    })
}

fn luminance([red, green, blue]: [f64; 3]) -> f64 {
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn seen(matrix: &[[f64; 3]; 3], colour: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| {
        row.iter().zip(colour).map(|(share, part)| share * part).sum::<f64>().clamp(0.0, 1.0)
    })
}

fn lab([red, green, blue]: [f64; 3]) -> [f64; 3] {
    let x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505;
    let y = luminance([red, green, blue]);
    let z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089;
    let [x, y, z] = [x, y, z]
        .map(|part| if part > 0.008_856 { part.cbrt() } else { 7.787 * part + 16.0 / 116.0 });
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn distance(one: [f64; 3], other: [f64; 3]) -> f64 {
    one.iter().zip(other).map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
}
