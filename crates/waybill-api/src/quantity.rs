//! Quantities in JSON, where they are text or plain numbers.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use waybill_core::quantity::{Quantity, QuantityError};

/// Reads a quantity from `value`.
pub fn read(value: &Value) -> Result<Quantity, QuantityError> {
    match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => Err(QuantityError::Format),
    }
}

/// Reads a field; null is nothing.
pub(crate) fn or_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(Quantity::default()),
        value => read(&value).map_err(D::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_and_texts_are_read_and_other_values_are_not() {
        for (value, text) in [(json!("1Mi"), "1Mi"), (json!(2), "2"), (json!(0.5), "500m")] {
            assert_eq!(read(&value).unwrap().to_string(), text);
            assert_eq!(or_zero(value).unwrap().to_string(), text);
        }
        for bad in [json!(true), json!("x"), json!(""), json!([]), json!({})] {
            assert_eq!(read(&bad), Err(QuantityError::Format), "{bad}");
            assert!(or_zero(bad).unwrap_err().to_string().starts_with("quantities must match"));
        }
        assert_eq!(read(&Value::Null), Err(QuantityError::Format));
        assert!(or_zero(Value::Null).unwrap().is_zero());
    }
}
