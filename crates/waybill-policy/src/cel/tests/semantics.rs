//! What the language itself says.

use super::*;

#[test]
fn arithmetic_does_not_wrap() {
    check("1 + 2 * 3 - 4", "3");
    check("7 / 2", "3");
    check("-7 % 3", "-1");
    check("1u + 2u", "3u");
    check("1.5 * 2.0", "3.0");
    check("9223372036854775807 + 1", "error: integer overflow");
    check("-9223372036854775808 / -1", "error: integer overflow");
    check("-9223372036854775808 % -1", "error: integer overflow");
    check("0u - 1u", "error: integer overflow");
    check("1 / 0", "error: division by zero");
    check("1 % 0", "error: modulus by zero");
    check("1.0 / 0.0", "inf");
}

#[test]
fn numbers_compare_by_amount_across_types() {
    check("1 == 1.0 && 1u == 1 && 2 > 1.5 && 1u < 2.5", "true");
    check("dyn(18446744073709551615u) > 9223372036854775807", "true");
    check("9007199254740993 == 9007199254740992.0", "false");
    check("dyn('1') == 1", "false");
    check("double('NaN') < 1.0 || double('NaN') >= 1.0", "false");
    check("double('NaN') == double('NaN')", "false");
}

#[test]
fn a_side_that_decides_makes_up_for_an_error_on_the_other() {
    check("object.missing == 1 || true", "true");
    check("true || object.missing == 1", "true");
    check("object.missing == 1 && false", "false");
    check("object.missing == 1 || false", "error: no such key: missing");
    check("[1, 2].exists(x, object.missing == x || x == 2)", "true");
    check("[1, 2].all(x, object.missing == x && x == 2)", "false");
    check("[1].exists_one(x, object.missing == x)", "error: no such key: missing");
}

#[test]
fn macros_walk_lists_and_the_keys_of_maps() {
    check("object.spec.containers.all(c, c.image.startsWith('registry/'))", "true");
    check("object.spec.containers.exists(c, has(c.env))", "true");
    check("object.spec.containers.exists_one(c, has(c.env))", "true");
    check("object.spec.containers.map(c, c.name)", "['a', 'b']");
    check("object.spec.containers.map(c, has(c.env), c.name)", "['a']");
    check("object.spec.containers.filter(c, !has(c.env)).size()", "1");
    check("object.metadata.labels.all(k, k in ['app', 'tier'])", "true");
    check("[[1, 2], [3]].map(x, x.map(y, y + x[0]))", "[[2, 3], [6]]");
    check("[].all(x, x)", "true");
    check("[].exists(x, x)", "false");
}

#[test]
fn macros_with_two_variables_see_keys_and_values() {
    check("object.metadata.labels.all(k, v, k != '' && v != '')", "true");
    check("['a', 'b'].exists(i, v, i == 1 && v == 'b')", "true");
    check("[1, 2].transformList(i, v, i * v)", "[0, 2]");
    check("[1, 2].transformList(i, v, v > 1, i * v)", "[2]");
    check("{'a': 1}.transformMap(k, v, k + string(v))", "{'a': 'a1'}");
    check("['x'].transformMapEntry(i, v, {v: i})", "{'x': 0}");
}

#[test]
fn has_and_index_tell_what_is_missing() {
    check("has(object.spec.replicas)", "true");
    check("has(object.spec.other)", "false");
    check("has(object.other.more)", "error: no such key: other");
    check("object.spec.containers[5]", "error: index out of bounds: 5");
    check("object.spec.containers[-1]", "error: index out of bounds: -1");
    check("object.metadata.labels['app']", "'web'");
    check("object.metadata.labels['none']", "error: no such key: none");
    check("{1: 'a', 2u: 'b', true: 'c'}[2]", "'b'");
    check("oldObject == null", "true");
    check("[1, 2][1.0]", "2");
    check("{'a': 1, 'a': 2}", "error: Failed with repeated key");
}

#[test]
fn optional_values_pass_what_is_missing_on() {
    check("object.?spec.?replicas.orValue(0)", "3");
    check("object.?nothing.?replicas.orValue(0)", "0");
    check("object.?nothing.other.hasValue()", "false");
    check("object.metadata.labels[?'none'].orValue('x')", "'x'");
    check("[?object.?nothing, ?object.?kind]", "['Pod']");
    check("{?'a': object.?nothing, 'b': 1}", "{'b': 1}");
    check("object.?kind.optMap(k, k + '!')", "some('Pod!')");
    check("optional.none().optMap(k, k)", "none");
    check("optional.of(1).optFlatMap(k, optional.of(k + 1)).value()", "2");
    check("optional.ofNonZeroValue('').or(optional.of('b')).value()", "'b'");
    check("optional.none().value()", "error: optional.none() dereference");
}

#[test]
fn types_are_values() {
    check(
        "type(1) == int && type('') == string && type([]) == list && type(null) == null_type",
        "true",
    );
    check("type(timestamp('2020-01-01T00:00:00Z')) == google.protobuf.Timestamp", "true");
    check("type(object.spec.replicas) == int", "true");
    check("type(object.spec.ratio) == double", "true");
}

#[test]
fn bind_names_a_value() {
    check("cel.bind(x, 1 + 1, x * x)", "4");
    check("cel.bind(x, [1, 2], x.all(y, y in x))", "true");
}

#[test]
fn quoted_and_raw_literals_read_as_specified() {
    check(r"'\x41\u00e9\n'.size()", "3");
    check(r"r'\d'.size()", "2");
    check("\"\"\"a\"b\"\"\"", "'a\"b'");
    check("b'abc'.size()", "3");
    check("0x10", "16");
}

#[test]
fn names_that_nobody_declared_are_refused_with_their_place() {
    refused(
        "foo == 1",
        "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^",
    );
    refused("1 == 1 &&\n  bar", "ERROR: <input>:2:3: undeclared reference to 'bar'");
    refused("object.foo() == 1", "undeclared reference to 'foo'");
    refused("math.greatest(1)", "undeclared reference to 'math.greatest'");
    refused("[1].all(x, y)", "undeclared reference to 'y'");
    refused("request.objekt", "undefined field 'objekt'");
    refused("namespaceObject.data", "undefined field 'data'");
}

#[test]
fn what_is_known_to_be_of_the_wrong_type_is_refused() {
    refused("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'");
    refused("!1", "found no matching overload for '!_' applied to '(int)'");
    refused("1 && true", "found no matching overload");
    refused("'a' < 1", "found no matching overload");
    refused("1.startsWith('a')", "found no matching overload for 'startsWith'");
    refused("'a'.all(x, true)", "cannot be range of a comprehension");
    refused("object.name.matches('(')", "invalid matches argument");
    refused("'a'.startsWith()", "found no matching overload");
    refused("1.a", "ERROR");
    let scope = Scope::request();
    let wanted =
        |source, wanted| Expression::compile(source, &scope, wanted).unwrap_err().to_string();
    assert_eq!(wanted("1", Wanted::Bool), "must evaluate to bool");
    assert_eq!(wanted("1", Wanted::String), "must evaluate to string");
    assert_eq!(
        wanted("1", Wanted::StringOrNull),
        "must evaluate to one of [string null_type] but got int"
    );
    assert!(Expression::compile("object.x", &scope, Wanted::Bool).is_ok());
    assert!(Expression::compile("params.x", &scope, Wanted::Bool).is_err());
    assert!(Expression::compile("authorizer.path('/')", &scope, Wanted::Any).is_err());
}

#[test]
fn mistakes_in_the_syntax_are_told_with_their_place() {
    refused(
        "object.spec.replicas <",
        "compilation failed: ERROR: <input>:1:23: Syntax error: mismatched input '<EOF>'",
    );
    refused("", "ERROR: <input>:1:");
    refused("a b", "Syntax error");
    refused("'unclosed", "Syntax error");
}

#[test]
fn variables_are_evaluated_when_they_are_used_and_see_earlier_ones() {
    let mut scope = Scope::request().with_variables();
    let mut variables = Vec::new();
    for (name, source) in [
        ("names", "object.spec.containers.map(c, c.name)"),
        ("broken", "object.missing"),
        ("count", "size(variables.names)"),
    ] {
        let compiled = Expression::compile(source, &scope, Wanted::Any).unwrap();
        scope.declare(name, Some(&compiled));
        variables.push(compiled);
    }
    let of = |source: &str| Expression::compile(source, &scope, Wanted::Any);
    let object = object();
    let bindings = Bindings { object: Some(&object), ..Bindings::default() };
    let sound = of("[1].all(x, variables.count == 2 && variables.names[x] == 'b')").unwrap();
    let broken = of("variables.broken == 1 || true").unwrap();
    let fails = of("variables.broken == 1").unwrap();
    let mut evaluation = Evaluation::new(bindings, &variables, Budget::policy());
    assert_eq!(shown(&evaluation.evaluate(&sound).unwrap()), "true");
    assert_eq!(shown(&evaluation.evaluate(&broken).unwrap()), "true");
    assert_eq!(
        evaluation.evaluate(&fails).unwrap_err(),
        EvalError::NoSuchKey("missing".to_owned())
    );
    assert!(of("variables.later").unwrap_err().to_string().contains("undefined field 'later'"));
}
