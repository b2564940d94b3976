//! Parts of a text that are to be hidden.

use std::ops::Range;

use super::HIDDEN;

/// Parts of a text, in any order; they may overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans(Vec<Range<usize>>);

impl Spans {
    pub(super) fn add(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.0.push(range);
        }
    }

    /// The text without them; nothing if it stays as it is.
    pub(super) fn hide(mut self, text: &str) -> Option<String> {
        self.0.sort_by_key(|range| range.start);
        let mut safe = String::new();
        let (mut shown, mut is_hidden) = (0, false);
        for range in self.0 {
            if !is_hidden || range.start > shown {
                // Where a letter is cut in two, all of it goes.
                let Some(part) = text.get(shown..range.start) else {
                    return Some(HIDDEN.to_owned());
                };
                safe.push_str(part);
                safe.push_str(HIDDEN);
                is_hidden = true;
            }
            shown = shown.max(range.end);
        }
        let Some(rest) = text.get(shown..) else { return Some(HIDDEN.to_owned()) };
        safe.push_str(rest);
        (is_hidden && safe != text).then_some(safe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_overlap_or_touch_are_one() {
        let hide = |ranges: &[(usize, usize)], text: &str| {
            let mut spans = Spans::default();
            ranges.iter().for_each(|(start, end)| spans.add(*start..*end));
            spans.hide(text)
        };
        assert_eq!(hide(&[], "abc"), None);
        assert_eq!(hide(&[(1, 2)], "abc").unwrap(), "a[hidden]c");
        assert_eq!(hide(&[(2, 3), (0, 1), (1, 2)], "abcd").unwrap(), "[hidden]d");
        assert_eq!(hide(&[(0, 3), (1, 2)], "abcd").unwrap(), "[hidden]d");
        assert_eq!(hide(&[(0, 1), (2, 3)], "abc").unwrap(), "[hidden]b[hidden]");
        assert_eq!(hide(&[(1, 1)], "abc"), None);
        assert_eq!(hide(&[(0, 1)], "é").unwrap(), HIDDEN);
        assert_eq!(hide(&[(0, 9)], "é").unwrap(), HIDDEN);
        assert_eq!(hide(&[(2, 10)], "x=[hidden]"), None, "it was hidden before");
    }
}
