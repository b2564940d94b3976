//! The wire format of Protocol Buffers, read without copies.
//!
//! See <https://protobuf.dev/programming-guides/encoding/>. Nothing that a peer sends can panic
//! here, and nothing is allocated.

/// Reads the fields of one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The next field with its number; `None` at the end of the message.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, WireError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| WireError::FieldNumber)?;
        if number == 0 {
            return Err(WireError::FieldNumber);
        }
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| WireError::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            // Groups, which no Kubernetes type ever had, and two numbers without a meaning.
            _ => return Err(WireError::WireType),
        };
        Ok(Some((number, wire)))
    }

    /// The next varint; `None` at the end, as in packed lists.
    pub(super) fn packed(&mut self) -> Result<Option<u64>, WireError> {
        if self.0.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(WireError::Truncated)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError::Overflow);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Overflow)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }
}

/// The value of a field, as far as the wire tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes, which no field of ours is.
    Fixed,
}

impl<'a> Wire<'a> {
    pub(super) fn varint(self) -> Result<u64, WireError> {
        match self {
            Self::Varint(value) => Ok(value),
            Self::Bytes(_) | Self::Fixed => Err(WireError::OtherType),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed => Err(WireError::OtherType),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, WireError> {
        str::from_utf8(self.bytes()?).map_err(|_| WireError::Utf8)
    }

    pub(super) fn int64(self) -> Result<i64, WireError> {
        self.varint().map(u64::cast_signed)
    }

    pub(super) fn int32(self) -> Result<i32, WireError> {
        i32::try_from(self.int64()?).map_err(|_| WireError::Overflow)
    }
}

/// Why bytes are no message of their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// It ends within a field.
    #[error("the message ends within a field")]
    Truncated,
    /// A number has too many bits.
    #[error("a number is too large")]
    Overflow,
    /// The number of a field is zero or too large.
    #[error("there is no field with such a number")]
    FieldNumber,
    /// The type of a field is none that we read.
    #[error("a field has an unknown wire type")]
    WireType,
    /// The type of a field is not the one that it should have.
    #[error("the field has another wire type")]
    OtherType,
    /// Text is not text.
    #[error("text is not UTF-8")]
    Utf8,
    /// A time is none, or none that JSON can show.
    #[error("the time is out of range")]
    Time,
    /// Embedded JSON is none.
    #[error("embedded JSON is malformed")]
    Json,
    /// A number or text says that it is neither.
    #[error("the value is neither number nor text")]
    IntOrString,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: Result<Option<(u32, Wire<'_>)>, WireError>) {
        assert_eq!(Reader::new(bytes).next(), expected, "{bytes:02x?}");
    }

    #[test]
    fn each_wire_type_is_read() {
        check(&[], Ok(None));
        check(&[0x08, 0x96, 0x01], Ok(Some((1, Wire::Varint(150)))));
        check(&[0x12, 0x02, b'h', b'i'], Ok(Some((2, Wire::Bytes(b"hi")))));
        check(&[0x09, 1, 2, 3, 4, 5, 6, 7, 8], Ok(Some((1, Wire::Fixed))));
        check(&[0x0d, 1, 2, 3, 4], Ok(Some((1, Wire::Fixed))));
    }

    #[test]
    fn negative_numbers_take_ten_bytes() {
        let mut bytes = vec![0x08];
        bytes.extend([0xff; 9]);
        bytes.push(0x01);
        let (_, wire) = Reader::new(&bytes).next().unwrap().unwrap();
        assert_eq!((wire.int64(), wire.int32()), (Ok(-1), Ok(-1)));
    }

    #[test]
    fn what_is_cut_or_senseless_is_refused() {
        check(&[0x08], Err(WireError::Truncated));
        check(&[0x08, 0x80], Err(WireError::Truncated));
        check(&[0x12, 0x02, b'h'], Err(WireError::Truncated));
        check(&[0x09, 1, 2, 3], Err(WireError::Truncated));
        check(&[0x00, 0x00], Err(WireError::FieldNumber));
        check(&[0x0b], Err(WireError::WireType));
        check(&[0x0f], Err(WireError::WireType));
        check(
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            Err(WireError::Truncated),
        );
        check(
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
            Err(WireError::Overflow),
        );
        check(
            &[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
            Err(WireError::Overflow),
        );
    }
}
