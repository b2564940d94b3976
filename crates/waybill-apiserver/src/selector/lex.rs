//! The words of a label selector.

/// One word and the text it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
}

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    ClosedParenthesis,
    Comma,
    DoubleEquals,
    End,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    Not,
    NotEquals,
    NotIn,
    OpenParenthesis,
}

/// Takes the next word off the front of `text`; at the end it is [`TokenKind::End`], for ever.
pub(super) fn next_token<'a>(text: &mut &'a str) -> Token<'a> {
    let rest = text.trim_start_matches(is_space);
    let length = match rest.bytes().next() {
        None => 0,
        Some(b'=') if rest.starts_with("==") => 2,
        Some(b'!') if rest.starts_with("!=") => 2,
        Some(_) if rest.starts_with(is_special) => 1,
        Some(_) => rest.find(|c| is_special(c) || is_space(c)).unwrap_or(rest.len()),
    };
    let (word, rest) = rest.split_at_checked(length).unwrap_or((rest, ""));
    *text = rest;
    Token { kind: kind_of(word), text: word }
}

fn kind_of(word: &str) -> TokenKind {
    match word {
        "" => TokenKind::End,
        "!" => TokenKind::Not,
        "!=" => TokenKind::NotEquals,
        "(" => TokenKind::OpenParenthesis,
        ")" => TokenKind::ClosedParenthesis,
        "," => TokenKind::Comma,
        "<" => TokenKind::Less,
        "=" => TokenKind::Equals,
        "==" => TokenKind::DoubleEquals,
        ">" => TokenKind::Greater,
        "in" => TokenKind::In,
        "notin" => TokenKind::NotIn,
        _ => TokenKind::Identifier,
    }
}

fn is_special(c: char) -> bool {
    matches!(c, '!' | '(' | ')' | ',' | '<' | '=' | '>')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let mut rest = text;
        let words: Vec<_> = std::iter::repeat_with(|| next_token(&mut rest))
            .take_while(|token| token.kind != TokenKind::End)
            .map(|token| token.text)
            .collect();
        assert_eq!(words, expected, "{text:?}");
    }

    #[test]
    fn words_end_at_spaces_and_special_characters() {
        check("", &[]);
        check(" \t\r\n", &[]);
        check("a=b,c == d", &["a", "=", "b", ",", "c", "==", "d"]);
        check("a!=b,!c", &["a", "!=", "b", ",", "!", "c"]);
        check("k in(x, y)", &["k", "in", "(", "x", ",", "y", ")"]);
        check("a===b!!=é", &["a", "==", "=", "b", "!", "!=", "é"]);
        check("n>1<2", &["n", ">", "1", "<", "2"]);
    }
}
