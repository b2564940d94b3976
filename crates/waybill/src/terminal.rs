//! Texts of others on somebody's terminal.

/// The text, with a sign in place of each character that a terminal would act on.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|char| if rearranges(char) { '\u{fffd}' } else { char }).collect()
}

/// The same for a text of several lines.
pub(crate) fn plain_lines(text: &str) -> String {
    let keeps = |char| matches!(char, '\n' | '\t') || !rearranges(char);
    text.chars().map(|char| if keeps(char) { char } else { '\u{fffd}' }).collect()
}

/// JSON whose strings say the same without characters that a terminal acts on. JSON itself asks for that below U+0020
/// only; outside of strings there are none but line breaks.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        if char != '\n' && rearranges(char) {
            text.push_str(&format!("\\u{:04x}", u32::from(char)));
        } else {
            text.push(char);
        }
    }
    text
}

/// Whether a terminal would act on it, turn what follows around, or not show it.
pub(crate) fn rearranges(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
