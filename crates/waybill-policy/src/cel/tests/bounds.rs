//! Attacks: an expression must neither hang the server nor overflow its stack nor fill its memory.

use proptest::prelude::*;

use super::*;

/// The text nests as deep as a text of the greatest length can.
#[test]
fn the_deepest_text_is_parsed_without_overflow() {
    let fill = |unit: &str| unit.repeat(16 * 1024 / unit.len() - 2);
    for source in [
        format!("1{}", fill("+1")),
        format!("{}1", fill("-")),
        format!("{}true", fill("!")),
        fill("("),
        fill("["),
        fill("{"),
        format!("object{}", fill(".a")),
        format!("object{}", fill("[0]")),
        format!("object{}", fill(".f()")),
        format!("1{}", fill("==1")),
        format!("{}1", fill("true?1:")),
        fill("[1].all(x,"),
        fill("a b ) ] "),
        fill("''"),
        fill("\\"),
    ] {
        // Whatever it says, it says it.
        let _ = compile(&source);
    }
    assert!(outcome(&format!("1 == 1{}", "&& 1 == 1".repeat(1000))).starts_with("true"));
}

#[test]
fn longer_texts_are_refused() {
    refused(
        &"1".repeat(16 * 1024 + 1),
        "the expression has 16385 bytes, and may have 16384; use variables",
    );
}

#[test]
fn deep_expressions_are_refused() {
    refused(&format!("1{}", "+1".repeat(100)), "nested deeper than 100 levels");
    assert_eq!(outcome(&format!("1{}", "+1".repeat(90))), "91");
    refused(&format!("{}1{}", "(".repeat(200), ")".repeat(200)), "recursion limit");
}

const OUT: &str = "error: operation cancelled: actual cost limit exceeded";

#[test]
fn nested_loops_end_when_the_budget_is_spent() {
    let list = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]";
    let mut source = "true".to_owned();
    for depth in 0..10 {
        source = format!("{list}.all(x{depth}, {source})");
    }
    check(&source, OUT);
}

#[test]
fn texts_and_lists_that_double_end_when_the_budget_is_spent() {
    let doubled = |first: &str, body: &str| {
        let mut source = "x40".to_owned();
        for step in (1..=40).rev() {
            source = format!(
                "cel.bind(x{step}, {}, {source})",
                body.replace('$', &format!("x{}", step - 1))
            );
        }
        format!("cel.bind(x0, {first}, {source}.size())")
    };
    check(&doubled("'aaaaaaaaaaaaaaaa'", "$ + $"), OUT);
    check(&doubled("[1]", "$ + $"), OUT);
    check(&doubled("'aaaa'", "$.replace('', $)"), OUT);
    check(&doubled("'aaaa'", "'%s%s'.format([$, $])"), OUT);
    check(&doubled("'aaaa'", "[$, $].join()"), OUT);
    check("lists.range(9223372036854775807).size()", OUT);
    check("lists.range(1000000).size()", OUT);
}

#[test]
fn values_do_not_nest_without_end() {
    let mut source = "x90".to_owned();
    for step in (1..=90).rev() {
        source = format!("cel.bind(x{step}, [x{}], {source})", step - 1);
    }
    let text = outcome(&format!("cel.bind(x0, [1], {source})"));
    assert!(text.contains("nested too deeply"), "{text}");
}

#[test]
fn variables_that_use_variables_do_not_overflow_the_stack() {
    let mut scope = Scope::request().with_variables();
    let mut variables = Vec::new();
    for step in 0..40 {
        let source = if step == 0 {
            "1".to_owned()
        } else {
            format!("variables.v{}{}", step - 1, "+1".repeat(90))
        };
        let compiled = Expression::compile(&source, &scope, Wanted::Any).unwrap();
        scope.declare(&format!("v{step}"), Some(&compiled));
        variables.push(compiled);
    }
    let last = Expression::compile("variables.v39 == 1", &scope, Wanted::Bool).unwrap();
    // The stack of a worker of the server.
    let small = std::thread::Builder::new().stack_size(2 << 20);
    let result = small.spawn(move || {
        Evaluation::new(Bindings::default(), &variables, Budget::policy())
            .evaluate(&last)
            .map(drop)
            .unwrap_err()
    });
    assert_eq!(result.unwrap().join().unwrap(), EvalError::TooDeep);
}

#[test]
fn an_object_as_large_as_they_come_is_walked_within_the_budget() {
    let entries: Vec<_> =
        (0..30_000).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x"})).collect();
    let object = json!({ "env": entries });
    let bindings = Bindings { object: Some(&object), ..Bindings::default() };
    let evaluate = |source: &str| {
        let expression = compile(source).unwrap();
        let mut evaluation = Evaluation::new(bindings, &[], Budget::policy());
        let result = evaluation.evaluate(&expression).map(|value| shown(&value));
        result.unwrap_or_else(|error| format!("error: {error}"))
    };
    assert_eq!(evaluate("object.env.all(e, e.name != 'LD_PRELOAD')"), "true");
    assert_eq!(evaluate("object.env.all(e, object.env.exists_one(f, f.name == e.name))"), OUT);
    assert_eq!(evaluate("object.env == object.env"), "true");
    assert_eq!(evaluate("object.env.map(e, e.name).distinct().size() > 1"), OUT);
}

#[test]
fn patterns_cannot_blow_up() {
    refused("object.kind.matches('((a{100}){100}){100}')", "too large once compiled");
    refused(&format!("object.kind.matches('{}')", "(".repeat(4000)), "invalid matches argument");
    check("('a' + 'b').matches('(a*)*b')", "true");
    // A short pattern may take long to compile; one that a request brings along is bounded more narrowly.
    let large = outcome(r"'x'.matches('\\pL{60}' + object.kind.substring(0, 0))");
    assert!(large.contains("too large once compiled"), "{large}");
    let long = format!(
        "lists.range(200).map(i, 'aaaaaaaaaaaaaaaaaaaaaaaa').join().findAll('.*[^A-Z]|[A-Z]').size() >= 0 && {}",
        "true"
    );
    let _ = outcome(&long);
}

#[test]
fn the_budget_of_a_policy_is_shared_by_its_expressions() {
    let expression = compile("lists.range(100000).all(x, x >= 0)").unwrap();
    let mut evaluation = Evaluation::new(Bindings::default(), &[], Budget::policy());
    let mut spent = 0;
    while !matches!(evaluation.evaluate(&expression), Err(EvalError::OutOfBudget)) {
        spent += 1;
        assert!(spent < 1000);
    }
    assert!(evaluation.budget().is_spent());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// No text panics or hangs, neither when it is compiled nor when it runs.
    #[test]
    fn any_text_is_answered(source in r#"[ -~é\n]{0,60}"#) {
        let _ = outcome(&source);
    }

    /// Nor do expressions that are put together from parts that mean something.
    #[test]
    fn any_expression_is_answered(parts in prop::collection::vec(prop::sample::select(PARTS), 1..24)) {
        let _ = outcome(&parts.concat());
    }
}

const PARTS: &[&str] = &[
    "object",
    ".spec",
    ".containers",
    ".all(x, ",
    "x",
    ")",
    "(",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "1",
    "-",
    "+",
    "'a'",
    " == ",
    " && ",
    " || ",
    "!",
    " ? ",
    " in ",
    "has(",
    ".?a",
    "[?0]",
    "size(",
    ".map(y, ",
    "y",
    ".matches('a*')",
    ".format([1])",
    "9223372036854775807",
    "1u",
    "1.5",
    "null",
    "true",
    "duration('1h')",
    "timestamp('9999-12-31T23:59:59Z')",
    "quantity('1')",
    ".sum()",
    ".sort()",
    "lists.range(9)",
    "b'x'",
    ".substring(1)",
    ".split('')",
    "optional.of(",
    ".value()",
    "cel.bind(z, 1, ",
    "z",
    "%",
    "/",
    "*",
    "dyn(",
];
