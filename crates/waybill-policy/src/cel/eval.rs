//! Evaluation: one walk over the compiled form, paid for step by step.

use std::{collections::BTreeMap, fmt, rc::Rc, slice};

use serde_json::Value as Json;

use super::{
    budget::Budget,
    functions::Run,
    regexes,
    syntax::Expression,
    tree::{Literal, Node, Root},
    value::{Authorizer, EvalError, Key, Library, List, Map, Text, Value},
};

/// How deep evaluation may go, variables that use variables included: each level takes stack.
const MAX_DEPTH: usize = 200;

/// Whoever answers questions about rights for the user of the request.
pub trait Authorize {
    /// May the user, or the service account that `question` names, do this?
    fn authorize(&self, question: &Question) -> Verdict;
}

/// A question about rights, as `authorizer` puts it together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Namespace and name of the service account that is asked about instead of the user.
    pub service_account: Option<(String, String)>,
    /// The path, for a request that is about no resource.
    pub path: Option<String>,
    /// The API group.
    pub group: String,
    /// The resource, such as `pods`.
    pub resource: String,
    /// The subresource, such as `exec`.
    pub subresource: String,
    /// The namespace; empty for all, or for what has none.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
    /// The verb.
    pub verb: String,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why, if known.
    pub reason: String,
    /// What went wrong, if it could not be decided.
    pub error: Option<String>,
}

/// What expressions see of a request. What is missing is `null`.
#[derive(Clone, Copy, Default)]
pub struct Bindings<'a> {
    /// The object as it is to be.
    pub object: Option<&'a Json>,
    /// The object as it was.
    pub old_object: Option<&'a Json>,
    /// The request.
    pub request: Option<&'a Json>,
    /// The namespace of the request.
    pub namespace_object: Option<&'a Json>,
    /// The parameters of the binding.
    pub params: Option<&'a Json>,
    /// Whoever answers questions about rights.
    pub authorizer: Option<&'a dyn Authorize>,
}

impl fmt::Debug for Bindings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The objects may hold what must not be shown.
        f.debug_struct("Bindings").finish_non_exhaustive()
    }
}

/// The evaluation of expressions that share variables and a budget.
#[derive(Debug)]
pub struct Evaluation<'a> {
    bindings: Bindings<'a>,
    variables: &'a [Expression],
    /// What variables resulted in, once they were used.
    known: Vec<Option<Result<Value<'a>, EvalError>>>,
    pub(super) budget: Budget,
    pub(super) locals: Vec<Value<'a>>,
    /// Where the locals of the expression that is being evaluated begin.
    base: usize,
    depth: usize,
}

impl<'a> Evaluation<'a> {
    /// Over `bindings`, with `variables` that are evaluated when they are first used.
    pub fn new(bindings: Bindings<'a>, variables: &'a [Expression], budget: Budget) -> Self {
        let known = variables.iter().map(|_| None).collect();
        Self { bindings, variables, known, budget, locals: Vec::new(), base: 0, depth: 0 }
    }

    /// The value of `expression`.
    pub fn evaluate(&mut self, expression: &'a Expression) -> Result<Value<'a>, EvalError> {
        self.budget.begin_expression();
        self.locals.clear();
        self.base = 0;
        self.depth = 0;
        self.eval(&expression.node)
    }

    /// The budget that is left.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn eval(&mut self, node: &'a Node) -> Result<Value<'a>, EvalError> {
        self.budget.charge(1)?;
        if self.depth == MAX_DEPTH {
            return Err(EvalError::TooDeep);
        }
        self.depth += 1;
        let value = self.step(node);
        self.depth -= 1;
        value
    }

    fn step(&mut self, node: &'a Node) -> Result<Value<'a>, EvalError> {
        match node {
            Node::Literal(literal) => Ok(literal_value(literal)),
            Node::Root(root) => Ok(self.root(*root)),
            Node::Local(place) => Ok(self.local(*place)),
            Node::Variable(place) => self.variable(*place),
            Node::Select { operand, field, optional } => self.select(operand, field, *optional),
            Node::Has { operand, field } => self.has(operand, field),
            Node::Index { operand, index, optional } => self.index(operand, index, *optional),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Not(operand) => match self.eval(operand)? {
                Value::Bool(truth) => Ok(Value::Bool(!truth)),
                other => Err(EvalError::overload("!_", &[other])),
            },
            Node::Negate(operand) => match self.eval(operand)? {
                Value::Int(int) => int.checked_neg().map(Value::Int).ok_or(EvalError::Overflow),
                Value::Double(double) => Ok(Value::Double(-double)),
                other => Err(EvalError::overload("-_", &[other])),
            },
            Node::And(sides) => self.logic(&sides.0, &sides.1, false),
            Node::Or(sides) => self.logic(&sides.0, &sides.1, true),
            Node::Conditional(parts) => match self.eval(&parts.0)? {
                Value::Bool(true) => self.eval(&parts.1),
                Value::Bool(false) => self.eval(&parts.2),
                other => Err(EvalError::overload("_?_:_", &[other])),
            },
            Node::Binary(operator, sides) => {
                let left = self.eval(&sides.0)?;
                let right = self.eval(&sides.1)?;
                operator.apply(&mut self.budget, left, right)
            }
            Node::Call { function, arguments, regex } => {
                let values: Result<Vec<_>, _> =
                    arguments.iter().map(|argument| self.eval(argument)).collect();
                self.call(&function.run, function.name, &values?, regex.as_deref())
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Bind(parts) => {
                let value = self.eval(&parts.0)?;
                self.with_local(value, |own| own.eval(&parts.1))
            }
            Node::OptMap { operand, body, flat } => self.opt_map(operand, body, *flat),
        }
    }

    pub(super) fn with_local<T>(
        &mut self,
        value: Value<'a>,
        evaluate: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.locals.push(value);
        let result = evaluate(self);
        self.locals.pop();
        result
    }

    fn call(
        &mut self,
        run: &Run,
        name: &str,
        values: &[Value<'a>],
        compiled: Option<&regex::Regex>,
    ) -> Result<Value<'a>, EvalError> {
        let result = match run {
            Run::Plain(run) => run(&mut self.budget, values),
            Run::Pattern(run) => match (compiled, values.get(1).and_then(Value::as_str)) {
                (Some(regex), _) => run(&mut self.budget, values, regex),
                (None, Some(pattern)) => {
                    let regex = regexes::compile_at_run_time(&mut self.budget, pattern)?;
                    run(&mut self.budget, values, &regex)
                }
                (None, None) => Err(EvalError::overload(name, values)),
            },
        };
        // Functions say only that they do not take these values; the name is known here.
        match result {
            Err(EvalError::NoSuchOverload(what)) if what.is_empty() => {
                Err(EvalError::overload(name, values))
            }
            result => result,
        }
    }

    fn root(&self, root: Root) -> Value<'a> {
        let json = match root {
            Root::Object => self.bindings.object,
            Root::OldObject => self.bindings.old_object,
            Root::Request => self.bindings.request,
            Root::NamespaceObject => self.bindings.namespace_object,
            Root::Params => self.bindings.params,
            Root::Authorizer => return self.authorizer(Library::Authorizer),
            Root::RequestResource => {
                let question = Rc::new(request_resource(self.bindings.request));
                return self.authorizer(|own| Library::Check(own, question));
            }
        };
        json.map_or(Value::Null, Value::from_json)
    }

    fn authorizer(&self, library: impl FnOnce(Authorizer<'a>) -> Library<'a>) -> Value<'a> {
        let found = self.bindings.authorizer;
        found.map_or(Value::Null, |found| Value::Library(library(Authorizer(found))))
    }

    fn local(&self, place: usize) -> Value<'a> {
        self.locals.get(self.base + place).cloned().unwrap_or(Value::Null)
    }

    fn variable(&mut self, place: usize) -> Result<Value<'a>, EvalError> {
        if let Some(Some(known)) = self.known.get(place) {
            return known.clone();
        }
        let Some(expression) = self.variables.get(place) else {
            return Err(EvalError::NoSuchKey("variables".to_owned()));
        };
        let outer = std::mem::replace(&mut self.base, self.locals.len());
        let value = self.eval(&expression.node);
        self.base = outer;
        // A variable for which the budget of one expression was too small may do for the next.
        let keep = !matches!(&value, Err(error) if error.is_fatal());
        if keep && let Some(slot) = self.known.get_mut(place) {
            *slot = Some(value.clone());
        }
        value
    }

    fn select(
        &mut self,
        operand: &'a Node,
        field: &'a str,
        optional: bool,
    ) -> Result<Value<'a>, EvalError> {
        match (self.eval(operand)?, optional) {
            (Value::Map(map), false) => {
                map.field(field).ok_or_else(|| EvalError::NoSuchKey(field.to_owned()))
            }
            (Value::Map(map), true) => Ok(Value::Optional(map.field(field).map(Rc::new))),
            // Of a value that may be missing, fields may be missing.
            (Value::Optional(None), _) => Ok(Value::Optional(None)),
            (Value::Optional(Some(inner)), _) => match &*inner {
                Value::Map(map) => Ok(Value::Optional(map.field(field).map(Rc::new))),
                _ => Err(EvalError::NoSuchOverload("select of a field".to_owned())),
            },
            (other, _) => Err(no_fields(&other)),
        }
    }

    fn has(&mut self, operand: &'a Node, field: &'a str) -> Result<Value<'a>, EvalError> {
        match self.eval(operand)? {
            Value::Map(map) => Ok(Value::Bool(map.field(field).is_some())),
            Value::Optional(None) => Ok(Value::Bool(false)),
            Value::Optional(Some(inner)) => match &*inner {
                Value::Map(map) => Ok(Value::Bool(map.field(field).is_some())),
                other => Err(no_fields(other)),
            },
            other => Err(no_fields(&other)),
        }
    }

    fn index(
        &mut self,
        operand: &'a Node,
        index: &'a Node,
        optional: bool,
    ) -> Result<Value<'a>, EvalError> {
        let operand = self.eval(operand)?;
        let index = self.eval(index)?;
        match operand {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => optional_element(element(&inner, &index)),
            operand if optional => optional_element(element(&operand, &index)),
            operand => element(&operand, &index),
        }
    }

    fn list(&mut self, elements: &'a [(Node, bool)]) -> Result<Value<'a>, EvalError> {
        let mut items = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            match (self.eval(element)?, optional) {
                (Value::Optional(inner), true) => {
                    items.extend(inner.map(|inner| (*inner).clone()));
                }
                (value, _) => items.push(value),
            }
        }
        Value::list(items)
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Result<Value<'a>, EvalError> {
        let mut items = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let Some(key) = Key::from_value(&key) else {
                return Err(EvalError::Function("unsupported key type".to_owned()));
            };
            let value = match (self.eval(value)?, optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(inner)), true) => (*inner).clone(),
                (value, _) => value,
            };
            if items.insert(key, value).is_some() {
                return Err(EvalError::Function("Failed with repeated key".to_owned()));
            }
        }
        Value::map(items)
    }

    /// `&&` and `||` look at both sides before an error counts: a side that decides makes up for it.
    fn logic(
        &mut self,
        left: &'a Node,
        right: &'a Node,
        decisive: bool,
    ) -> Result<Value<'a>, EvalError> {
        let left = self.truth(left);
        match &left {
            Ok(truth) if *truth == decisive => return Ok(Value::Bool(decisive)),
            Err(error) if error.is_fatal() => return left.map(Value::Bool),
            _ => {}
        }
        match (left, self.truth(right)) {
            (_, Ok(truth)) if truth == decisive => Ok(Value::Bool(decisive)),
            (_, Err(error)) if error.is_fatal() => Err(error),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decisive)),
        }
    }

    pub(super) fn truth(&mut self, node: &'a Node) -> Result<bool, EvalError> {
        match self.eval(node)? {
            Value::Bool(truth) => Ok(truth),
            other => Err(EvalError::overload("bool", &[other])),
        }
    }

    fn opt_map(
        &mut self,
        operand: &'a Node,
        body: &'a Node,
        flat: bool,
    ) -> Result<Value<'a>, EvalError> {
        match self.eval(operand)? {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => {
                match self.with_local((*inner).clone(), |own| own.eval(body))? {
                    value @ Value::Optional(_) if flat => Ok(value),
                    other if flat => Err(EvalError::overload("optFlatMap", &[other])),
                    value => Ok(Value::some(value)),
                }
            }
            other => Err(EvalError::overload("optMap", &[other])),
        }
    }
}

fn literal_value(literal: &Literal) -> Value<'_> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(truth) => Value::Bool(*truth),
        Literal::Int(int) => Value::Int(*int),
        Literal::Uint(uint) => Value::Uint(*uint),
        Literal::Double(double) => Value::Double(*double),
        Literal::String(text) => Value::String(Text::Borrowed(text)),
        Literal::Bytes(bytes) => Value::Bytes(Rc::from(&**bytes)),
        Literal::Type(name) => Value::Type(name),
    }
}

fn no_fields(value: &Value<'_>) -> EvalError {
    EvalError::NoSuchOverload(format!("field selection on {}", value.type_name()))
}

fn element<'a>(operand: &Value<'a>, index: &Value<'a>) -> Result<Value<'a>, EvalError> {
    match (operand, index) {
        (Value::List(list), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            let place = match index {
                Value::Int(place) => *place,
                Value::Uint(place) => i64::try_from(*place).unwrap_or(i64::MAX),
                // A double is an index if it is a whole number.
                Value::Double(place) => super::operators::whole(*place)
                    .ok_or_else(|| EvalError::overload("_[_]", slice::from_ref(index)))?,
                _ => return Err(EvalError::overload("_[_]", slice::from_ref(index))),
            };
            let found = usize::try_from(place).ok().and_then(|place| list.get(place));
            found.ok_or(EvalError::IndexOutOfBounds(place))
        }
        (Value::Map(map), key) => {
            let key = Key::from_value(key)
                .ok_or_else(|| EvalError::overload("_[_]", slice::from_ref(key)))?;
            map.get(&key).ok_or_else(|| EvalError::NoSuchKey(key_text(&key)))
        }
        _ => Err(EvalError::overload("_[_]", &[operand.clone(), index.clone()])),
    }
}

fn key_text(key: &Key<'_>) -> String {
    match key {
        Key::Bool(truth) => truth.to_string(),
        Key::Int(int) => int.to_string(),
        Key::Uint(uint) => uint.to_string(),
        Key::String(text) => text.to_string(),
    }
}

fn optional_element(found: Result<Value<'_>, EvalError>) -> Result<Value<'_>, EvalError> {
    match found {
        Ok(value) => Ok(Value::some(value)),
        Err(EvalError::NoSuchKey(_) | EvalError::IndexOutOfBounds(_)) => Ok(Value::Optional(None)),
        Err(error) => Err(error),
    }
}

/// `authorizer.requestResource`: the resource that the request is about.
fn request_resource(request: Option<&Json>) -> Question {
    let text = |pointer: &str| {
        request
            .and_then(|request| request.pointer(pointer))
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Question {
        group: text("/resource/group"),
        resource: text("/resource/resource"),
        subresource: text("/subResource"),
        namespace: text("/namespace"),
        name: text("/name"),
        ..Question::default()
    }
}

/// Whether two values are equal, as `==` has it: numbers by amount, lists and maps by content.
pub(super) fn equal<'a>(
    budget: &mut Budget,
    left: &Value<'a>,
    right: &Value<'a>,
) -> Result<bool, EvalError> {
    budget.charge(1)?;
    match (left, right) {
        (Value::String(left), Value::String(right)) => {
            budget.charge_bytes(left.len().min(right.len()))?;
            Ok(**left == **right)
        }
        (Value::Bytes(left), Value::Bytes(right)) => {
            budget.charge_bytes(left.len().min(right.len()))?;
            Ok(left == right)
        }
        (Value::List(left), Value::List(right)) => equal_lists(budget, left, right),
        (Value::Map(left), Value::Map(right)) => equal_maps(budget, left, right),
        (Value::Optional(left), Value::Optional(right)) => match (left, right) {
            (Some(left), Some(right)) => equal(budget, left, right),
            (left, right) => Ok(left.is_none() == right.is_none()),
        },
        (left, right) => Ok(super::operators::equal_scalars(left, right)),
    }
}

fn equal_lists<'a>(
    budget: &mut Budget,
    left: &List<'a>,
    right: &List<'a>,
) -> Result<bool, EvalError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.iter().zip(right.iter()) {
        if !equal(budget, &left, &right)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps<'a>(budget: &mut Budget, left: &Map<'a>, right: &Map<'a>) -> Result<bool, EvalError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    budget.charge(left.len() as u64)?;
    for (key, value) in left.entries() {
        let other = Key::from_value(&key).and_then(|key| right.get(&key));
        match other {
            Some(other) if equal(budget, &value, &other)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}
