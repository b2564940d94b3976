//! Quantities, wherever they stand.

#![no_main]

use libfuzzer_sys::fuzz_target;
use waybill_core::quantity::Quantity;

fuzz_target!(|text: &str| {
    let Ok(quantity) = Quantity::parse(text) else { return };
    let written = quantity.to_string();
    let again = Quantity::parse(&written).expect("what we write, we read");
    assert_eq!((again, again.to_string()), (quantity, written));
    let (whole, milli) = (quantity.value(), quantity.milli_value());
    assert_eq!((whole > 0, whole < 0), (milli > 0, milli < 0));
    assert!(quantity.round_up_to_milli().is_negative() == quantity.is_negative());
    assert!(quantity.is_negative() || quantity.round_up_to_milli() >= quantity);
});
