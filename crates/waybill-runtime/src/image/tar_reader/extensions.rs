//! What stands before an entry of an archive and tells about it: PAX records and long names of GNU.

use super::{Mtime, broken};
use crate::image::error::Result;

/// What stands before an entry and tells about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) long_path: Option<Vec<u8>>,
    pub(super) long_link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<Mtime>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Extensions {
    /// Records are `<length> <key>=<value>\n`, where the length counts all of it.
    pub(super) fn read_records(&mut self, mut records: &[u8]) -> Result<()> {
        while !records.is_empty() {
            let (key, value, rest) =
                split_record(records).ok_or_else(|| broken("a PAX record is malformed"))?;
            self.set(key, value)?;
            records = rest;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let number = || {
            let text = str::from_utf8(value).ok();
            let number = text.and_then(|text| text.parse::<u64>().ok());
            number.ok_or_else(|| broken("a size or owner in a PAX record is no number"))
        };
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number()?),
            b"uid" => self.uid = Some(number()?),
            b"gid" => self.gid = Some(number()?),
            b"mtime" => {
                let time = parse_time(value).ok_or_else(|| broken("a time is malformed"))?;
                self.mtime = Some(time);
            }
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err(broken("it holds a sparse file, which is not supported"));
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

fn split_record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = str::from_utf8(records.get(..space)?).ok()?.parse().ok()?;
    let (record, rest) = records.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((record.get(..equals)?, record.get(equals + 1..)?, rest))
}

/// Seconds, perhaps negative, perhaps with a fraction.
fn parse_time(value: &[u8]) -> Option<Mtime> {
    let text = str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        // The kernel counts nanoseconds forward from a whole second.
        return Some(Mtime {
            seconds: seconds.checked_sub(1)?,
            nanoseconds: 1_000_000_000 - nanoseconds,
        });
    }
    Some(Mtime { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_be_before_the_epoch_and_between_seconds() {
        let check = |text: &str, seconds, nanoseconds| {
            assert_eq!(parse_time(text.as_bytes()), Some(Mtime { seconds, nanoseconds }), "{text}");
        };
        check("5", 5, 0);
        check("5.", 5, 0);
        check("5.1234567891", 5, 123_456_789);
        check("-1", -1, 0);
        check("-1.25", -2, 750_000_000);
        for bad in ["", ".5", "a", "1.-5", "1e9", "99999999999999999999"] {
            assert_eq!(parse_time(bad.as_bytes()), None, "{bad}");
        }
    }
}
