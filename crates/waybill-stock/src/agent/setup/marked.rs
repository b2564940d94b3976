//! A block of our own at the end of somebody else's text file: put there, replaced, and taken out again so that the rest
//! is what it was, byte for byte.

const BEGIN: &str =
    "# >>> waybill: written by `waybill agent`; changes between these lines are lost\n";
const END: &str = "# <<< waybill\n";

/// `text` with `block` at its end, in place of one that is there.
pub(super) fn with_block(text: &str, block: &str) -> String {
    let rest = without_block(text);
    // The line break that the last line may lack is part of the block, so that it goes with it.
    let gap = if rest.is_empty() || rest.ends_with('\n') { "" } else { "\n" };
    format!("{rest}{gap}{BEGIN}{block}{END}")
}

/// `text` without a block of ours.
pub(super) fn without_block(text: &str) -> String {
    let Some(begin) = text.find(BEGIN) else { return text.to_owned() };
    let (before, ours) = text.split_at(begin);
    let after = ours.find(END).map_or("", |end| ours.split_at(end + END.len()).1);
    format!("{before}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_put_replaced_and_taken_out() {
        for text in ["", "a = 1\n", "a = 1\n\n[b]\n"] {
            let once = with_block(text, "[ours]\n");
            assert!(once.contains("[ours]"));
            assert_eq!(with_block(&once, "[ours]\n"), once);
            assert_eq!(without_block(&with_block(&once, "[other]\n")), text);
        }
    }

    #[test]
    fn what_somebody_added_after_the_block_stays() {
        let text = format!("{}[theirs]\n", with_block("a = 1\n", "[ours]\n"));
        assert_eq!(without_block(&text), "a = 1\n[theirs]\n");
    }
}
