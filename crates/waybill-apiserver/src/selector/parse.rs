//! The grammar of label selectors in query form.
//!
//! `in` and `notin` are ordinary words wherever a key or a value is due, as upstream has it.

use std::collections::BTreeSet;

use waybill_api::field::{FieldError, FieldPath};

use super::{
    label::{LabelRequirement, LabelSelectorError, LabelTest, check_key},
    lex::{Token, TokenKind, next_token},
};

/// Reads all requirements of `text`.
pub(super) fn label_selector(text: &str) -> Result<Vec<LabelRequirement>, LabelSelectorError> {
    let mut words = Words(text);
    let mut requirements = Vec::new();
    match words.peek().kind {
        TokenKind::End => return Ok(requirements),
        TokenKind::Identifier | TokenKind::Not => {}
        _ => return Err(separator(words.peek(), "!, identifier, or 'end of string'")),
    }
    loop {
        requirements.push(requirement(&mut words)?);
        let after = words.take();
        match after.kind {
            TokenKind::End => return Ok(requirements),
            TokenKind::Comma => {}
            _ => return Err(separator(after, "',' or 'end of string'")),
        }
        if !matches!(words.peek().kind, TokenKind::Identifier | TokenKind::Not) {
            return Err(separator(words.peek(), "identifier after ','"));
        }
    }
}

/// What is left of the text, read word by word.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// The next word where an operator is due.
    fn take_operator(&mut self) -> Token<'a> {
        next_token(&mut self.0)
    }

    /// The next word where a key or value is due.
    fn take(&mut self) -> Token<'a> {
        let token = self.take_operator();
        match token.kind {
            TokenKind::In | TokenKind::NotIn => Token { kind: TokenKind::Identifier, ..token },
            _ => token,
        }
    }

    /// What [`Self::take`] will return.
    fn peek(&self) -> Token<'a> {
        Words(self.0).take()
    }
}

fn requirement(words: &mut Words<'_>) -> Result<LabelRequirement, LabelSelectorError> {
    let mut token = words.take();
    let negated = token.kind == TokenKind::Not;
    if negated {
        token = words.take();
    }
    if token.kind != TokenKind::Identifier {
        return Err(syntax(token, ", expected: identifier"));
    }
    let key = token.text;
    // Before the operator, so that the first fault is the one reported.
    check_key(NO_PATH, key)?;
    let test = if negated {
        LabelTest::DoesNotExist
    } else if matches!(words.peek().kind, TokenKind::Comma | TokenKind::End) {
        LabelTest::Exists
    } else {
        test(words)?
    };
    LabelRequirement::new(NO_PATH, key, test)
}

fn test(words: &mut Words<'_>) -> Result<LabelTest, LabelSelectorError> {
    let operator = words.take_operator();
    Ok(match operator.kind {
        TokenKind::Equals | TokenKind::DoubleEquals => LabelTest::Equals(exact_value(words)?),
        TokenKind::NotEquals => LabelTest::NotEquals(exact_value(words)?),
        TokenKind::Greater => LabelTest::GreaterThan(number(&exact_value(words)?)?),
        TokenKind::Less => LabelTest::LessThan(number(&exact_value(words)?)?),
        TokenKind::In => LabelTest::In(values(words)?),
        TokenKind::NotIn => LabelTest::NotIn(values(words)?),
        _ => return Err(syntax(operator, ", expected: in, notin, =, ==, !=, gt, lt")),
    })
}

/// The value after `=`; nothing at all is the empty value.
fn exact_value(words: &mut Words<'_>) -> Result<String, LabelSelectorError> {
    if matches!(words.peek().kind, TokenKind::Comma | TokenKind::End) {
        return Ok(String::new());
    }
    let value = words.take();
    match value.kind {
        TokenKind::Identifier => Ok(value.text.to_owned()),
        _ => Err(syntax(value, ", expected: identifier")),
    }
}

/// The values in parentheses; a comma without a neighbour stands next to the empty value.
fn values(words: &mut Words<'_>) -> Result<BTreeSet<String>, LabelSelectorError> {
    let open = words.take();
    if open.kind != TokenKind::OpenParenthesis {
        return Err(syntax(open, " expected: '('"));
    }
    let mut values = BTreeSet::new();
    if words.peek().kind == TokenKind::ClosedParenthesis {
        words.take();
        return Ok(values);
    }
    loop {
        match words.peek().kind {
            TokenKind::Identifier => values.insert(words.take().text.to_owned()),
            TokenKind::Comma | TokenKind::ClosedParenthesis => values.insert(String::new()),
            _ => return Err(syntax(words.peek(), ", expected: ',', ')' or identifier")),
        };
        let after = words.take();
        match after.kind {
            TokenKind::Comma => {}
            TokenKind::ClosedParenthesis => return Ok(values),
            _ => return Err(syntax(after, ", expected: ',' or ')'")),
        }
    }
}

fn number(text: &str) -> Result<i64, LabelSelectorError> {
    text.parse().map_err(|_| {
        let path = FieldPath::new("values").index(0);
        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
        LabelSelectorError::Field(FieldError::invalid(path, text, detail))
    })
}

/// A key in query form has no field path, and this is how upstream prints that.
const NO_PATH: &str = "<nil>";

fn separator(found: Token<'_>, expected: &'static str) -> LabelSelectorError {
    LabelSelectorError::Separator { found: found.text.to_owned(), expected }
}

fn syntax(found: Token<'_>, expected: &'static str) -> LabelSelectorError {
    LabelSelectorError::Syntax { found: found.text.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::selector::label::{LabelSelector, LabelSelectorError};

    #[track_caller]
    fn check(text: &str, printed: &str) {
        assert_eq!(LabelSelector::parse(text).unwrap().to_string(), printed, "{text:?}");
    }

    #[track_caller]
    fn refused(text: &str, message: &str) {
        assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), message, "{text:?}");
    }

    #[test]
    fn the_query_form_is_read_with_and_without_spaces() {
        check("", "");
        check("  ", "");
        check("x=a,y!=b", "x=a,y!=b");
        check(" x = a , y == b ", "x=a,y=b");
        check("b,a", "a,b");
        check("!x , ! y", "!x,!y");
        check("x in (b,a,a)", "x in (a,b)");
        check("x notin(a)", "x notin (a)");
        check("x in (,)", "x in (,)");
        check("x in (,a)", "x in (,a)");
        check("x in (a,)", "x in (,a)");
        check("x in (a,,b)", "x in (,a,b)");
        check("x=,y", "x=,y");
        check("in in (in,notin)", "in in (in,notin)");
        check("notin=in", "notin=in");
        check("example.com/n>5", "example.com/n>5");
    }

    #[test]
    fn faults_read_as_in_kubernetes() {
        refused("a=b=c", "found '=', expected: ',' or 'end of string'");
        refused("!a=b", "found '=', expected: ',' or 'end of string'");
        refused("a,", "found '', expected: identifier after ','");
        refused(",a", "found ',', expected: !, identifier, or 'end of string'");
        refused("=a", "found '=', expected: !, identifier, or 'end of string'");
        refused("!", "unable to parse requirement: found '', expected: identifier");
        refused("a=(", "unable to parse requirement: found '(', expected: identifier");
        refused(
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        );
        refused("a in b", "unable to parse requirement: found 'b' expected: '('");
        refused("a in (b", "unable to parse requirement: found '', expected: ',' or ')'");
        refused("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'");
        refused(
            "a in (=",
            "unable to parse requirement: found '=', expected: ',', ')' or identifier",
        );
        refused(
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' \
             operators, the value must be an integer",
        );
        assert_eq!(LabelSelector::parse("a in ()"), Err(LabelSelectorError::EmptySet));
    }

    #[test]
    fn keys_and_values_obey_the_rules_for_labels() {
        let message = |text: &str| LabelSelector::parse(text).unwrap_err().to_string();
        assert!(message("a_=b").starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"a_\": name part must consist of"
        ));
        assert!(message("app=-x").starts_with(
            "unable to parse requirement: values[0][app]: Invalid value: \"-x\": a valid label"
        ));
        assert!(message("app in (a,b!)").starts_with("unable to parse requirement: found '!'"));
    }

    proptest! {
        #[test]
        fn what_was_read_prints_so_that_it_reads_the_same(text in "[a-c!=<>(),inot 1-9-]{0,24}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                let again = LabelSelector::parse(&selector.to_string());
                prop_assert_eq!(again.unwrap(), selector);
            }
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = LabelSelector::parse(&text);
        }
    }
}
