//! What is a quantity, how much it is, and how it is written.

use std::{format, string::ToString, vec::Vec};

use proptest::prelude::*;

use super::*;

fn parse(raw: &str) -> Quantity {
    Quantity::parse(raw).unwrap_or_else(|error| panic!("{raw:?}: {error}"))
}

#[track_caller]
fn writes(raw: &str, text: &str) {
    assert_eq!(parse(raw).to_string(), text, "{raw:?}");
}

#[track_caller]
fn is_milli(raw: &str, milli: i64) {
    assert_eq!(parse(raw).milli_value(), milli, "{raw:?}");
}

#[test]
fn every_amount_has_one_text_per_style() {
    for text in ["0", "1", "100m", "1n", "1500", "1k", "1Ki", "1000Mi", "1Gi", "1e3", "-5", "9E"] {
        writes(text, text);
    }
    for (raw, text) in [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("1024Mi", "1Gi"),
        ("1025", "1025"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("-1024Ki", "-1Mi"),
        ("0.0001", "100u"),
        ("1e-9", "1e-9"),
        ("10e2", "1e3"),
        ("1E0", "1"),
        ("15e+2", "1500"),
        ("+1.", "1"),
        (".5", "500m"),
        ("-0.0", "0"),
        ("0Ki", "0"),
        ("1500k", "1500k"),
        ("7Ei", "7Ei"),
    ] {
        writes(raw, text);
    }
}

#[test]
fn every_suffix_is_known() {
    is_milli("1000001u", 1001);
    is_milli("2k", 2_000_000);
    is_milli("3M", 3_000_000_000);
    is_milli("1G", 1_000_000_000_000);
    is_milli("1T", 1_000_000_000_000_000);
    is_milli("1P", 1_000_000_000_000_000_000);
    is_milli("1.5Gi", 1_610_612_736_000);
    is_milli("1e-3", 1);
    is_milli("1E3", 1_000_000);
    for (suffix, bits) in [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)] {
        assert_eq!(parse(&format!("1{suffix}")).value(), 1 << bits);
    }
    assert_eq!(parse("1E").value(), 1_000_000_000_000_000_000);
}

#[test]
fn what_is_too_fine_is_rounded_away_from_zero() {
    for raw in ["1n", "0.0000000001", "1e-99999999999", "0.0000000000000000000001Ki"] {
        assert_eq!((parse(raw).value(), parse(raw).milli_value()), (1, 1), "{raw}");
        writes(raw, if raw.contains('e') { "1e-9" } else { "1n" });
    }
    assert_eq!((parse("-1.5").value(), parse("-1.5m").milli_value()), (-2, -2));
    writes("1.00000000000000000000000000001Ki", "1024000000001n");
    // 2^60 times this needs more digits than 128 bits hold.
    writes("0.0000000000000000008673617379884035472059622406959533691406250Ei", "1");
    writes("0.0000000000000000008673617379884035472059622406959533691406251Ei", "1000000001n");
    assert_eq!(parse("0.0001").round_up_to_milli().to_string(), "1m");
    assert_eq!(parse("-1.0001").round_up_to_milli().to_string(), "-1001m");
    assert_eq!(parse("1500m").round_up_to_milli().to_string(), "1500m");
}

#[test]
fn what_is_too_large_is_cut_off() {
    let long = "9".repeat(999);
    let huge = format!("0.{}1e99999", "0".repeat(9999));
    for raw in ["8Ei", "9223372036854775808", "1e99999999999", "99999999999999999999.5Ei"] {
        assert_eq!(parse(raw).value(), i64::MAX, "{raw}");
        assert_eq!(parse(&format!("-{raw}")).value(), -i64::MAX, "{raw}");
    }
    assert_eq!((parse(&long).value(), parse(&huge).value()), (i64::MAX, i64::MAX));
    assert_eq!(parse(&long).to_string(), "9223372036854775807");
    assert_eq!(parse("9E").milli_value(), i64::MAX);
    assert_eq!(parse("9E").saturating_add(parse("9E")).value(), i64::MAX);
    assert_eq!(parse("-9E").saturating_add(parse("-9E")).value(), -i64::MAX);
    for zero in ["0e99999999999", "0.000Ei", "-0e-99999999999"] {
        assert!(parse(zero).is_zero() && !parse(zero).is_negative(), "{zero}");
    }
}

#[test]
fn amounts_compare_and_add_across_styles() {
    assert_eq!(parse("1Ki"), parse("1024"));
    assert!(parse("1G") < parse("1Gi") && parse("-1") < parse("1n"));
    assert_eq!(parse("1Ki").saturating_add(parse("1k")).to_string(), "2024");
    assert_eq!(parse("1Gi").saturating_add(parse("1Gi")).to_string(), "2Gi");
    assert_eq!(Quantity::default().saturating_add(parse("1Gi")).to_string(), "1Gi");
    assert!(parse("2k").is_whole() && !parse("1m").is_whole());
}

#[test]
fn what_is_no_quantity_is_refused() {
    for raw in
        ["", "-", ".", "x", "m", "Ki", "1.2.3", "--1", "é", "1 ", " 1", "1x", "1é", "1e1.5", "1e+x"]
    {
        assert_eq!(Quantity::parse(raw), Err(QuantityError::Format), "{raw:?}");
    }
    for raw in ["1K", "1ki", "1mm", "1i", "1e", "1e+", "1e-", "1m3", "1Ki3", "1ee3", "1+3", "1E+"] {
        assert_eq!(Quantity::parse(raw), Err(QuantityError::Suffix), "{raw:?}");
    }
}

/// Texts of quantities of any size.
const QUANTITY: &str =
    "[+-]?[0-9]{1,30}(\\.[0-9]{0,40})?(n|u|m|k|M|Ki|Mi|Gi|E|Ei|[eE][+-]?[0-9]{1,3})?";

proptest! {
    #[test]
    fn the_text_means_the_amount(raw in QUANTITY) {
        let quantity = parse(&raw);
        let text = quantity.to_string();
        prop_assert_eq!(parse(&text), quantity);
        prop_assert_eq!(parse(&text).to_string(), text);
    }

    #[test]
    fn rounding_never_takes_away(raw in QUANTITY) {
        let quantity = parse(&raw);
        let (whole, milli) = (i128::from(quantity.value()), i128::from(quantity.milli_value()));
        let nanos = quantity.nanos.abs();
        prop_assert!(whole.abs() * NANO >= nanos && whole.abs() * NANO < nanos + NANO);
        if milli.abs() < i128::from(i64::MAX) {
            prop_assert!(milli.abs() * (NANO / 1000) - nanos < NANO / 1000);
            prop_assert_eq!(quantity.round_up_to_milli().nanos, milli * (NANO / 1000));
        }
    }

    /// Numbers that 128 bits hold, against plain arithmetic.
    #[test]
    fn amounts_are_exact(number in 0..10_u64.pow(15), places in 0..12_usize, power in 0..=3_u32) {
        let digits = format!("{number:016}");
        let (whole, fraction) = digits.split_at(16 - places);
        for (suffixes, step) in [(["", "k", "M", "G"], 1000_i128), (["", "Ki", "Mi", "Gi"], 1024)] {
            let suffix = suffixes[power as usize];
            let product = i128::from(number) * step.pow(power) * NANO;
            let divisor = 10_i128.pow(u32::try_from(places).unwrap());
            let expected = product / divisor + i128::from(product % divisor > 0);
            let found = parse(&format!("{whole}.{fraction}{suffix}"));
            prop_assert_eq!(found.nanos, expected.min(LIMIT));
            prop_assert_eq!(parse(&format!("-{whole}.{fraction}{suffix}")).nanos, -found.nanos);
        }
    }

    #[test]
    fn the_same_amount_in_other_words_is_equal(amount in 0..1_000_000_i64) {
        let whole = parse(&amount.to_string());
        for text in [
            format!("{amount}000m"),
            format!("{amount}e0"),
            format!("{amount}.000"),
            format!("0.{amount:07}e7"),
        ] {
            prop_assert_eq!(parse(&text), whole);
        }
    }

    #[test]
    fn sums_do_not_depend_on_the_order(raws in proptest::collection::vec(0..1_u64 << 40, 0..9)) {
        let parts: Vec<_> = raws.iter().map(|raw| parse(&format!("{raw}u"))).collect();
        let sum = |zero: Quantity, part: &Quantity| zero.saturating_add(*part);
        let forward = parts.iter().fold(Quantity::default(), sum);
        prop_assert_eq!(parts.iter().rev().fold(Quantity::default(), sum), forward);
        prop_assert_eq!(forward, parse(&format!("{}u", raws.iter().sum::<u64>())));
    }

    #[test]
    fn no_text_panics(raw in ".*", near in "[-+]?[0-9.]{0,60}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,25}") {
        let _ = (Quantity::parse(&raw), Quantity::parse(&near));
    }
}
