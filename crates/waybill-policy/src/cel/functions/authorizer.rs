//! Questions about rights: `authorizer.group('').resource('pods').check('create').allowed()`.

use std::rc::Rc;

use super::{Function, Outcome, unfit};
use crate::cel::{
    budget::Budget,
    eval::Question,
    types::Type,
    value::{Authorizer, Library, Value},
};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::member("path", 2, CHECK, path).on(&[AUTHORIZER]),
    Function::member("group", 2, CHECK, group).on(&[AUTHORIZER]),
    Function::member("serviceAccount", 3, AUTHORIZER, service_account).on(&[AUTHORIZER]),
    Function::member("resource", 2, CHECK, resource).on(&[CHECK]),
    Function::member("subresource", 2, CHECK, subresource).on(&[CHECK]),
    Function::member("namespace", 2, CHECK, namespace).on(&[CHECK]),
    Function::member("name", 2, CHECK, name).on(&[CHECK]),
    Function::member("fieldSelector", 2, CHECK, unselective).on(&[CHECK]),
    Function::member("labelSelector", 2, CHECK, unselective).on(&[CHECK]),
    Function::member("check", 2, DECISION, check).on(&[CHECK]),
    Function::member("allowed", 1, Type::Bool, allowed).on(&[DECISION]),
    Function::member("reason", 1, Type::String, reason).on(&[DECISION]),
    Function::member("errored", 1, Type::Bool, errored).on(&[DECISION]),
    Function::member("error", 1, Type::String, error).on(&[DECISION]),
];

const AUTHORIZER: Type = Type::Library("kubernetes.authorization.Authorizer");
/// Upstream tells checks of a path, a group and a resource apart; whoever writes one does so in order.
const CHECK: Type = Type::Library("kubernetes.authorization.ResourceCheck");
const DECISION: Type = Type::Library("kubernetes.authorization.Decision");

/// What one question costs, as upstream counts it.
const QUESTION_UNITS: u64 = 350_000;

fn question<'a>(authorizer: Authorizer<'a>, question: Question) -> Value<'a> {
    Value::Library(Library::Check(authorizer, Rc::new(question)))
}

/// Changes a question with the text that is the second value.
fn with<'a>(values: &[Value<'a>], change: impl FnOnce(&mut Question, String)) -> Outcome<'a> {
    let [Value::Library(Library::Check(authorizer, asked)), Value::String(text)] = values else {
        return unfit();
    };
    let mut asked = (**asked).clone();
    change(&mut asked, text.to_string());
    Ok(question(*authorizer, asked))
}

/// An authorizer, or one for a service account.
fn asked<'a>(value: &Value<'a>) -> Option<(Authorizer<'a>, Question)> {
    match value {
        Value::Library(Library::Authorizer(own)) => Some((*own, Question::default())),
        Value::Library(Library::Check(own, asked)) => Some((*own, (**asked).clone())),
        _ => None,
    }
}

fn path<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [own, Value::String(path)] => match asked(own) {
            Some((own, asked)) => {
                Ok(question(own, Question { path: Some(path.to_string()), ..asked }))
            }
            None => unfit(),
        },
        _ => unfit(),
    }
}

fn group<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [own, Value::String(group)] => match asked(own) {
            Some((own, asked)) => Ok(question(own, Question { group: group.to_string(), ..asked })),
            None => unfit(),
        },
        _ => unfit(),
    }
}

fn service_account<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    match values {
        [
            Value::Library(Library::Authorizer(own)),
            Value::String(namespace),
            Value::String(name),
        ] => {
            let account = Some((namespace.to_string(), name.to_string()));
            Ok(question(*own, Question { service_account: account, ..Question::default() }))
        }
        _ => unfit(),
    }
}

fn resource<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    with(values, |asked, text| asked.resource = text)
}

fn subresource<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    with(values, |asked, text| asked.subresource = text)
}

fn namespace<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    with(values, |asked, text| asked.namespace = text)
}

fn name<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    with(values, |asked, text| asked.name = text)
}

/// Rights do not depend on selectors here, so the question stays the wider one.
fn unselective<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    with(values, |_, _| {})
}

fn check<'a>(budget: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Check(authorizer, asked)), Value::String(verb)] = values else {
        return unfit();
    };
    budget.charge(QUESTION_UNITS)?;
    let asked = Question { verb: verb.to_string(), ..(**asked).clone() };
    Ok(Value::Library(Library::Decision(Rc::new(authorizer.0.authorize(&asked)))))
}

fn allowed<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Decision(verdict))] = values else { return unfit() };
    Ok(Value::Bool(verdict.allowed))
}

fn reason<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Decision(verdict))] = values else { return unfit() };
    Ok(Value::text(&*verdict.reason))
}

fn errored<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Decision(verdict))] = values else { return unfit() };
    Ok(Value::Bool(verdict.error.is_some()))
}

fn error<'a>(_: &mut Budget, values: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Library(Library::Decision(verdict))] = values else { return unfit() };
    Ok(Value::text(verdict.error.as_deref().unwrap_or_default()))
}
