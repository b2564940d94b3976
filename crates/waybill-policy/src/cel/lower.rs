//! From what the crate `cel` parsed to what we evaluate: names are resolved, macros are told apart,
//! and whatever is known to be wrong is refused.

use std::sync::Arc;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapExpr, SelectExpr, operators as op,
};

use super::{
    check::{NAMESPACE_FIELDS, REQUEST_FIELDS, Scope},
    declared::{Schemas, Whole},
    fold::{Fold, FoldKind},
    functions::{self, Run},
    operators::Binary,
    regexes,
    syntax::MAX_NESTING,
    tree::{Literal, Node, Root},
    types::Type,
};

/// What is wrong, with the crate's number of the expression that it is wrong with.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) id: u64,
    pub(super) text: String,
}

pub(super) struct Lowering<'s> {
    scope: &'s Scope,
    schemas: Schemas<'s>,
    locals: Vec<(String, Type)>,
    depth: usize,
}

type Lowered = Result<(Node, Type), Fault>;

impl<'s> Lowering<'s> {
    pub(super) fn new(scope: &'s Scope) -> Self {
        Self { scope, schemas: scope.schemas(), locals: Vec::new(), depth: 0 }
    }

    pub(super) fn lower(&mut self, parsed: IdedExpr) -> Lowered {
        let IdedExpr { id, expr } = parsed;
        if self.depth == MAX_NESTING {
            return Err(fault(
                id,
                format!("expression nested deeper than {MAX_NESTING} levels; use variables"),
            ));
        }
        self.depth += 1;
        let lowered = match expr {
            Expr::Unspecified => Err(fault(id, "unspecified expression")),
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self.ident(id, &name),
            Expr::Select(select) => self.select(id, select),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Struct(message) => Err(fault(
                id,
                format!("undeclared reference to '{}' (in container '')", message.type_name),
            )),
            Expr::Call(call) => self.call(id, call),
            Expr::Comprehension(comprehension) => self.comprehension(id, *comprehension),
        };
        self.depth -= 1;
        lowered
    }

    fn ident(&self, id: u64, name: &str) -> Lowered {
        let bare = name.strip_prefix('.').unwrap_or(name);
        if let Some(place) = self.locals.iter().rposition(|(local, _)| local == name) {
            let known = self.locals.get(place).map_or(Type::Dyn, |(_, known)| *known);
            return Ok((Node::Local(place), known));
        }
        if let Some((root, known)) = self.root(bare) {
            return Ok((Node::Root(root), known));
        }
        match type_named(bare) {
            Some(name) => Ok((Node::Literal(Literal::Type(name)), Type::Meta)),
            None => Err(fault(id, format!("undeclared reference to '{name}' (in container '')"))),
        }
    }

    fn root(&self, name: &str) -> Option<(Root, Type)> {
        match name {
            "object" => Some((Root::Object, self.schemas.root(Whole::Object))),
            "oldObject" => Some((Root::OldObject, self.schemas.root(Whole::Object))),
            "request" => Some((Root::Request, Type::Request)),
            "namespaceObject" => Some((Root::NamespaceObject, Type::Namespace)),
            "params" if self.scope.params => Some((Root::Params, self.schemas.root(Whole::Params))),
            "authorizer" if self.scope.authorizer => Some((Root::Authorizer, AUTHORIZER)),
            _ => None,
        }
    }

    fn select(&mut self, id: u64, select: SelectExpr) -> Lowered {
        let SelectExpr { operand, field, test } = select;
        if !test && let Some(found) = self.qualified(&operand.expr, &field) {
            return Ok(found);
        }
        if self.is_variables(&operand.expr) {
            let place = self.scope.variables.iter().position(|(name, _)| *name == field);
            let known = place.and_then(|place| self.scope.variables.get(place));
            return match (place, known) {
                (Some(_), Some(_)) if test => Ok((Node::Literal(Literal::Bool(true)), Type::Bool)),
                (Some(place), Some((_, known))) => Ok((Node::Variable(place), *known)),
                _ => Err(undefined(id, &field)),
            };
        }
        let (operand, known) = self.lower(*operand)?;
        let result = self.field_type(id, known, &field)?;
        let operand = Box::new(operand);
        let field = field.into_boxed_str();
        Ok(match test {
            true => (Node::Has { operand, field }, Type::Bool),
            false => (Node::Select { operand, field, optional: false }, result),
        })
    }

    /// `authorizer.requestResource` and names of types with dots in them.
    fn qualified(&self, operand: &Expr, field: &str) -> Option<(Node, Type)> {
        let Expr::Ident(name) = operand else {
            return match operand {
                Expr::Select(SelectExpr { operand, field: middle, .. }) => match &operand.expr {
                    Expr::Ident(first) => named_type_literal(&format!("{first}.{middle}.{field}")),
                    _ => None,
                },
                _ => None,
            };
        };
        if self.is_local(name) {
            return None;
        }
        if name == "authorizer" && field == "requestResource" && self.scope.authorizer {
            return Some((Node::Root(Root::RequestResource), RESOURCE_CHECK));
        }
        named_type_literal(&format!("{name}.{field}"))
    }

    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|(local, _)| local == name)
    }

    fn is_variables(&self, operand: &Expr) -> bool {
        matches!(operand, Expr::Ident(name) if name == "variables" && self.scope.composed && !self.is_local(name))
    }

    fn field_type(&self, id: u64, operand: Type, field: &str) -> Result<Type, Fault> {
        let fields = match operand {
            Type::Dyn | Type::Map | Type::Optional => return Ok(Type::Dyn),
            Type::Request => REQUEST_FIELDS,
            Type::Namespace => NAMESPACE_FIELDS,
            Type::Declared(part) if self.schemas.plain(operand) != Type::List => {
                return self.schemas.field(part, field).ok_or_else(|| undefined(id, field));
            }
            other => {
                let name = self.schemas.name(other);
                return Err(fault(id, format!("type '{name}' does not support field selection")));
            }
        };
        let found = fields.iter().find(|(name, _)| *name == field);
        found.map(|(_, known)| *known).ok_or_else(|| undefined(id, field))
    }

    fn list(&mut self, list: ListExpr) -> Lowered {
        let ListExpr { elements, optional_indices } = list;
        let lowered: Result<_, Fault> = elements
            .into_iter()
            .enumerate()
            .map(|(place, element)| Ok((self.lower(element)?.0, optional_indices.contains(&place))))
            .collect();
        Ok((Node::List(lowered?), Type::List))
    }

    fn map(&mut self, map: MapExpr) -> Lowered {
        let lowered: Result<_, Fault> =
            map.entries.into_iter().map(|entry| self.entry(entry)).collect();
        Ok((Node::Map(lowered?), Type::Map))
    }

    fn entry(&mut self, entry: IdedEntryExpr) -> Result<(Node, Node, bool), Fault> {
        match entry.expr {
            EntryExpr::MapEntry(entry) => {
                Ok((self.lower(entry.key)?.0, self.lower(entry.value)?.0, entry.optional))
            }
            EntryExpr::StructField(_) => Err(fault(entry.id, "field of an unknown message")),
        }
    }

    fn call(&mut self, id: u64, call: CallExpr) -> Lowered {
        let CallExpr { func_name, target, mut args } = call;
        if target.is_none() {
            return match (func_name.as_str(), args.len()) {
                (op::CONDITIONAL, 3) => self.conditional(id, args),
                (op::LOGICAL_AND | op::LOGICAL_OR, 2) => self.logic(id, &func_name, args),
                (op::LOGICAL_NOT, 1) => {
                    let (operand, known) = self.lower(args.remove(0))?;
                    self.require(id, op::LOGICAL_NOT, known, Type::Bool)?;
                    Ok((Node::Not(Box::new(operand)), Type::Bool))
                }
                (op::NEGATE, 1) => {
                    let (operand, known) = self.lower(args.remove(0))?;
                    match known {
                        Type::Dyn | Type::Int | Type::Double => {
                            Ok((Node::Negate(Box::new(operand)), known))
                        }
                        other => Err(self.no_overload(id, op::NEGATE, &[other])),
                    }
                }
                (op::INDEX, 2) => self.index(id, args, false),
                (op::OPT_INDEX, 2) => self.index(id, args, true),
                (op::OPT_SELECT, 2) => self.optional_select(id, args),
                (name, 2) if Binary::named(name).is_some() => self.binary(id, name, args),
                (name, _) => self.function(id, name, None, args),
            };
        }
        self.member(id, &func_name, target, args)
    }

    fn member(
        &mut self,
        id: u64,
        name: &str,
        target: Option<Box<IdedExpr>>,
        mut args: Vec<IdedExpr>,
    ) -> Lowered {
        let Some(target) = target else { return self.function(id, name, None, args) };
        if let Expr::Ident(space) = &target.expr
            && !self.is_local(space)
            && self.root(space).is_none()
        {
            if (space.as_str(), name, args.len()) == ("cel", "bind", 3) {
                return self.bind(id, args);
            }
            return self.function(id, &format!("{space}.{name}"), None, args);
        }
        match (name, args.len()) {
            ("all", 3) => self.fold(id, FoldKind::All, *target, args, false),
            ("exists", 3) => self.fold(id, FoldKind::Exists, *target, args, false),
            ("exists_one" | "existsOne", 3) => {
                self.fold(id, FoldKind::ExistsOne, *target, args, false)
            }
            ("transformList", 3) => self.fold(id, FoldKind::List, *target, args, false),
            ("transformList", 4) => self.fold(id, FoldKind::List, *target, args, true),
            ("transformMap", 3) => self.fold(id, FoldKind::Map, *target, args, false),
            ("transformMap", 4) => self.fold(id, FoldKind::Map, *target, args, true),
            ("transformMapEntry", 3) => self.fold(id, FoldKind::MapEntry, *target, args, false),
            ("transformMapEntry", 4) => self.fold(id, FoldKind::MapEntry, *target, args, true),
            ("sortBy", 2) => {
                let body = args.pop();
                let name = args.pop();
                match (name, body) {
                    (Some(name), Some(body)) => {
                        self.fold_one(FoldKind::SortBy, *target, simple_name(name)?, None, body)
                    }
                    _ => Err(fault(id, "sortBy needs a name and a key")),
                }
            }
            ("optMap", 2) => self.opt_map(*target, args, false),
            ("optFlatMap", 2) => self.opt_map(*target, args, true),
            _ => self.function(id, name, Some(*target), args),
        }
    }

    fn conditional(&mut self, id: u64, mut args: Vec<IdedExpr>) -> Lowered {
        let otherwise = self.lower(take(&mut args, 2))?;
        let then = self.lower(take(&mut args, 1))?;
        let (condition, known) = self.lower(take(&mut args, 0))?;
        self.require(id, op::CONDITIONAL, known, Type::Bool)?;
        let (one, other) = (self.schemas.plain(then.1), self.schemas.plain(otherwise.1));
        if !one.may_be(other) && one != Type::Null && other != Type::Null {
            return Err(self.no_overload(id, op::CONDITIONAL, &[known, then.1, otherwise.1]));
        }
        let result = if then.1 == otherwise.1 { then.1 } else { one.join(other) };
        Ok((Node::Conditional(Box::new((condition, then.0, otherwise.0))), result))
    }

    fn logic(&mut self, id: u64, name: &str, mut args: Vec<IdedExpr>) -> Lowered {
        let (right, right_type) = self.lower(take(&mut args, 1))?;
        let (left, left_type) = self.lower(take(&mut args, 0))?;
        self.require(id, name, left_type, Type::Bool)?;
        self.require(id, name, right_type, Type::Bool)?;
        let sides = Box::new((left, right));
        let node = if name == op::LOGICAL_AND { Node::And(sides) } else { Node::Or(sides) };
        Ok((node, Type::Bool))
    }

    fn binary(&mut self, id: u64, name: &str, mut args: Vec<IdedExpr>) -> Lowered {
        let Some(operator) = Binary::named(name) else {
            return Err(fault(id, format!("undeclared reference to '{name}' (in container '')")));
        };
        let (right, right_type) = self.lower(take(&mut args, 1))?;
        let (left, left_type) = self.lower(take(&mut args, 0))?;
        let result = operator
            .result(self.schemas.plain(left_type), self.schemas.plain(right_type))
            .ok_or_else(|| self.no_overload(id, name, &[left_type, right_type]))?;
        Ok((Node::Binary(operator, Box::new((left, right))), result))
    }

    fn index(&mut self, id: u64, mut args: Vec<IdedExpr>, optional: bool) -> Lowered {
        let (index, index_type) = self.lower(take(&mut args, 1))?;
        let (operand, known) = self.lower(take(&mut args, 0))?;
        let (key, value) = self.schemas.inner(known);
        match self.schemas.plain(known) {
            Type::Dyn | Type::Map | Type::List | Type::Optional if index_type.may_be(key) => {
                let result = if optional { Type::Optional } else { value };
                let node =
                    Node::Index { operand: Box::new(operand), index: Box::new(index), optional };
                Ok((node, result))
            }
            _ => Err(self.no_overload(id, op::INDEX, &[known, index_type])),
        }
    }

    fn optional_select(&mut self, id: u64, mut args: Vec<IdedExpr>) -> Lowered {
        let field = match take(&mut args, 1).expr {
            Expr::Literal(LiteralValue::String(name)) => name.inner().to_owned(),
            _ => return Err(fault(id, "unsupported optional field selection")),
        };
        let (operand, known) = self.lower(take(&mut args, 0))?;
        self.field_type(id, known, &field)?;
        let node = Node::Select {
            operand: Box::new(operand),
            field: field.into_boxed_str(),
            optional: true,
        };
        Ok((node, Type::Optional))
    }

    fn function(
        &mut self,
        id: u64,
        name: &str,
        target: Option<IdedExpr>,
        args: Vec<IdedExpr>,
    ) -> Lowered {
        let member = target.is_some();
        let count = args.len() + usize::from(member);
        let mut arguments = Vec::with_capacity(count);
        let mut known = Vec::with_capacity(count);
        for argument in target.into_iter().chain(args) {
            let (node, argument_type) = self.lower(argument)?;
            arguments.push(node);
            known.push(argument_type);
        }
        let Some(function) = functions::find(name, member, count) else {
            return Err(match functions::is_known(name) {
                true => self.no_overload(id, name, &known),
                false => fault(id, format!("undeclared reference to '{name}' (in container '')")),
            });
        };
        if let Some(receiver) = known.first()
            && !function.first.is_empty()
            && !function
                .first
                .iter()
                .any(|accepted| self.schemas.plain(*receiver).may_be(*accepted))
        {
            return Err(self.no_overload(id, name, &known));
        }
        let regex = match (&function.run, arguments.get(1)) {
            (Run::Pattern(_), Some(Node::Literal(Literal::String(pattern)))) => {
                let compiled = regexes::compile(pattern)
                    .map_err(|error| fault(id, format!("invalid matches argument: {error}")))?;
                Some(Arc::new(compiled))
            }
            _ => None,
        };
        Ok((Node::Call { function, arguments, regex }, function.result))
    }

    fn bind(&mut self, id: u64, mut args: Vec<IdedExpr>) -> Lowered {
        let body = take(&mut args, 2);
        let value = take(&mut args, 1);
        let name = simple_name(take(&mut args, 0)).map_err(|fault| Fault { id, ..fault })?;
        let (value, known) = self.lower(value)?;
        let (body, result) = self.with_locals(vec![(name, known)], |own| own.lower(body))?;
        Ok((Node::Bind(Box::new((value, body))), result))
    }

    fn opt_map(&mut self, target: IdedExpr, mut args: Vec<IdedExpr>, flat: bool) -> Lowered {
        let body = take(&mut args, 1);
        let name = simple_name(take(&mut args, 0))?;
        let (operand, _) = self.lower(target)?;
        let (body, _) = self.with_locals(vec![(name, Type::Dyn)], |own| own.lower(body))?;
        Ok((
            Node::OptMap { operand: Box::new(operand), body: Box::new(body), flat },
            Type::Optional,
        ))
    }

    /// A macro over keys and values: `m.all(k, v, …)`.
    fn fold(
        &mut self,
        id: u64,
        kind: FoldKind,
        target: IdedExpr,
        mut args: Vec<IdedExpr>,
        filtered: bool,
    ) -> Lowered {
        let Some(body) = args.pop() else { return Err(fault(id, "a macro without a body")) };
        let filter = if filtered { args.pop() } else { None };
        let second = simple_name(take(&mut args, 1))?;
        let first = simple_name(take(&mut args, 0))?;
        let (range, known) = self.lower(target)?;
        self.check_range(id, known)?;
        let (key, value) = self.schemas.inner(known);
        let names = vec![(first, key), (second, value)];
        self.with_locals(names, |own| {
            let filter = filter.map(|filter| own.lower(filter)).transpose()?.map(|(node, _)| node);
            let (body, _) = own.lower(body)?;
            let fold = Fold { kind, range, pairs: true, filter, body };
            Ok((Node::Fold(Box::new(fold)), kind.result()))
        })
    }

    fn fold_one(
        &mut self,
        kind: FoldKind,
        range: IdedExpr,
        name: String,
        filter: Option<IdedExpr>,
        body: IdedExpr,
    ) -> Lowered {
        let id = range.id;
        let (range, known) = self.lower(range)?;
        self.check_range(id, known)?;
        // Of a map it is the keys that are walked over.
        let (key, value) = self.schemas.inner(known);
        let local = if self.schemas.plain(known) == Type::Map { key } else { value };
        self.with_locals(vec![(name, local)], |own| {
            let filter = match filter {
                Some(filter) => {
                    let id = filter.id;
                    let (filter, known) = own.lower(filter)?;
                    own.require(id, "filter", known, Type::Bool)?;
                    Some(filter)
                }
                None => None,
            };
            let id = body.id;
            let (body, known) = own.lower(body)?;
            if kind.is_predicate() {
                own.require(id, op::LOGICAL_AND, known, Type::Bool)?;
            }
            let fold = Fold { kind, range, pairs: false, filter, body };
            Ok((Node::Fold(Box::new(fold)), kind.result()))
        })
    }

    fn with_locals(
        &mut self,
        names: Vec<(String, Type)>,
        lower: impl FnOnce(&mut Self) -> Lowered,
    ) -> Lowered {
        let before = self.locals.len();
        self.locals.extend(names);
        let lowered = lower(self);
        self.locals.truncate(before);
        lowered
    }

    /// The macros of the standard library, which the crate writes out as loops with an accumulator
    /// that no expression can name. The accumulator's first value and the step tell them apart.
    fn comprehension(&mut self, id: u64, written: ComprehensionExpr) -> Lowered {
        let ComprehensionExpr { iter_range, iter_var, accu_init, loop_step, .. } = written;
        let unknown = || fault(id, "unsupported comprehension");
        let Expr::Call(CallExpr { func_name, mut args, .. }) = loop_step.expr else {
            return Err(unknown());
        };
        let (kind, filter, body) = match (&accu_init.expr, func_name.as_str()) {
            (Expr::Literal(LiteralValue::Boolean(_)), op::LOGICAL_AND) => {
                (FoldKind::All, None, take(&mut args, 1))
            }
            (Expr::Literal(LiteralValue::Boolean(_)), op::LOGICAL_OR) => {
                (FoldKind::Exists, None, take(&mut args, 1))
            }
            (Expr::Literal(LiteralValue::Int(_)), op::CONDITIONAL) => {
                (FoldKind::ExistsOne, None, take(&mut args, 0))
            }
            (Expr::List(_), op::ADD) => {
                (FoldKind::List, None, appended(take(&mut args, 1)).ok_or_else(unknown)?)
            }
            (Expr::List(_), op::CONDITIONAL) => {
                let step = take(&mut args, 1);
                let filter = take(&mut args, 0);
                let Expr::Call(CallExpr { mut args, .. }) = step.expr else {
                    return Err(unknown());
                };
                let body = appended(take(&mut args, 1)).ok_or_else(unknown)?;
                (FoldKind::List, Some(filter), body)
            }
            _ => return Err(unknown()),
        };
        self.fold_one(kind, iter_range, iter_var, filter, body)
    }

    fn check_range(&self, id: u64, known: Type) -> Result<(), Fault> {
        match self.schemas.plain(known) {
            Type::Dyn | Type::List | Type::Map => Ok(()),
            _ => Err(fault(
                id,
                format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    self.schemas.name(known)
                ),
            )),
        }
    }

    fn require(&self, id: u64, what: &str, found: Type, wanted: Type) -> Result<(), Fault> {
        let fits = self.schemas.plain(found).may_be(wanted);
        if fits { Ok(()) } else { Err(self.no_overload(id, what, &[found])) }
    }

    fn no_overload(&self, id: u64, what: &str, types: &[Type]) -> Fault {
        let names: Vec<_> = types.iter().map(|known| self.schemas.name(*known)).collect();
        let names = names.join(", ");
        fault(id, format!("found no matching overload for '{what}' applied to '({names})'"))
    }
}

const AUTHORIZER: Type = Type::Library("kubernetes.authorization.Authorizer");
pub(super) const RESOURCE_CHECK: Type = Type::Library("kubernetes.authorization.ResourceCheck");

/// The one element of a list that is appended to an accumulator.
fn appended(list: IdedExpr) -> Option<IdedExpr> {
    match list.expr {
        Expr::List(ListExpr { mut elements, .. }) if elements.len() == 1 => elements.pop(),
        _ => None,
    }
}

/// Takes the argument at `place` out, and leaves nothing there.
fn take(args: &mut [IdedExpr], place: usize) -> IdedExpr {
    args.get_mut(place).map(std::mem::take).unwrap_or_default()
}

fn simple_name(name: IdedExpr) -> Result<String, Fault> {
    match name.expr {
        Expr::Ident(text) => Ok(text),
        _ => Err(fault(name.id, "argument must be a simple name")),
    }
}

fn undefined(id: u64, field: &str) -> Fault {
    fault(id, format!("undefined field '{field}'"))
}

fn fault(id: u64, text: impl Into<String>) -> Fault {
    Fault { id, text: text.into() }
}

fn constant(literal: LiteralValue) -> (Node, Type) {
    let (literal, known) = match literal {
        LiteralValue::Null => (Literal::Null, Type::Null),
        LiteralValue::Boolean(truth) => (Literal::Bool(*truth.inner()), Type::Bool),
        LiteralValue::Int(int) => (Literal::Int(*int.inner()), Type::Int),
        LiteralValue::UInt(uint) => (Literal::Uint(*uint.inner()), Type::Uint),
        LiteralValue::Double(double) => (Literal::Double(*double.inner()), Type::Double),
        LiteralValue::String(text) => (Literal::String(text.inner().into()), Type::String),
        LiteralValue::Bytes(bytes) => (Literal::Bytes(bytes.inner().into()), Type::Bytes),
    };
    (Node::Literal(literal), known)
}

fn named_type_literal(name: &str) -> Option<(Node, Type)> {
    let name = name.contains('.').then(|| type_named(name)).flatten()?;
    Some((Node::Literal(Literal::Type(name)), Type::Meta))
}

/// The names of types that expressions may compare `type(x)` with.
fn type_named(name: &str) -> Option<&'static str> {
    const TYPES: &[&str] = &[
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "optional_type",
        "google.protobuf.Duration",
        "google.protobuf.Timestamp",
        "net.IP",
        "net.CIDR",
        "kubernetes.Quantity",
        "kubernetes.URL",
        "kubernetes.Semver",
    ];
    TYPES.iter().find(|known| **known == name).copied()
}
