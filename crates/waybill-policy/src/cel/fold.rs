//! The macros that walk over a list or a map.

use std::{cmp::Ordering, collections::BTreeMap};

use super::{
    eval::Evaluation,
    operators::{compare, order},
    tree::Node,
    types::Type,
    value::{EvalError, Key, Value},
};

/// A walk: over what, which elements, and what is done with each.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) kind: FoldKind,
    pub(super) range: Node,
    /// Whether the body names key and value, or index and element.
    pub(super) pairs: bool,
    pub(super) filter: Option<Node>,
    pub(super) body: Node,
}

/// What becomes of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    List,
    Map,
    MapEntry,
    SortBy,
}

impl FoldKind {
    pub(super) fn result(self) -> Type {
        match self {
            Self::All | Self::Exists | Self::ExistsOne => Type::Bool,
            Self::List | Self::SortBy => Type::List,
            Self::Map | Self::MapEntry => Type::Map,
        }
    }

    pub(super) fn is_predicate(self) -> bool {
        self.result() == Type::Bool
    }
}

/// What the elements have come to so far.
enum Outcome<'a> {
    /// `all` and `exists`: an error counts only if no element decides.
    Quantified(Result<bool, EvalError>),
    Counted(u64),
    List(Vec<Value<'a>>),
    Map(BTreeMap<Key<'a>, Value<'a>>),
    Sorted(Vec<(Value<'a>, Value<'a>)>),
}

impl<'a> Evaluation<'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Result<Value<'a>, EvalError> {
        let mut outcome = match fold.kind {
            FoldKind::All => Outcome::Quantified(Ok(true)),
            FoldKind::Exists => Outcome::Quantified(Ok(false)),
            FoldKind::ExistsOne => Outcome::Counted(0),
            FoldKind::List => Outcome::List(Vec::new()),
            FoldKind::Map | FoldKind::MapEntry => Outcome::Map(BTreeMap::new()),
            FoldKind::SortBy => Outcome::Sorted(Vec::new()),
        };
        match self.eval(&fold.range)? {
            Value::List(list) => {
                for place in 0..list.len() {
                    let Some(element) = list.get(place) else { break };
                    let place = Value::Int(i64::try_from(place).unwrap_or(i64::MAX));
                    if self.visit(fold, &place, element, &mut outcome)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                // The keys are copied out before the walk.
                self.budget.charge(map.len() as u64)?;
                for (key, value) in map.entries() {
                    let (first, second) =
                        if fold.pairs { (key, value) } else { (Value::Null, key) };
                    if self.visit(fold, &first, second, &mut outcome)? {
                        break;
                    }
                }
            }
            other => return Err(EvalError::overload("comprehension over", &[other])),
        }
        self.finish(outcome)
    }

    /// Visits one element; `true` if the rest does not matter.
    fn visit(
        &mut self,
        fold: &'a Fold,
        first: &Value<'a>,
        second: Value<'a>,
        outcome: &mut Outcome<'a>,
    ) -> Result<bool, EvalError> {
        let own = second.clone();
        if fold.pairs {
            self.with_local(first.clone(), |own_self| {
                own_self.with_local(second, |inner| inner.element(fold, first, own, outcome))
            })
        } else {
            self.with_local(second, |inner| inner.element(fold, first, own, outcome))
        }
    }

    fn element(
        &mut self,
        fold: &'a Fold,
        key: &Value<'a>,
        own: Value<'a>,
        outcome: &mut Outcome<'a>,
    ) -> Result<bool, EvalError> {
        self.budget.charge_elements(1)?;
        if let Some(filter) = &fold.filter
            && !self.truth(filter)?
        {
            return Ok(false);
        }
        match outcome {
            Outcome::Quantified(so_far) => {
                let decisive = fold.kind == FoldKind::Exists;
                match self.truth(&fold.body) {
                    Ok(truth) if truth == decisive => {
                        *so_far = Ok(decisive);
                        return Ok(true);
                    }
                    Ok(_) => {}
                    Err(error) if error.is_fatal() => return Err(error),
                    Err(error) => *so_far = Err(error),
                }
            }
            Outcome::Counted(count) => *count += u64::from(self.truth(&fold.body)?),
            Outcome::List(items) => items.push(self.eval(&fold.body)?),
            Outcome::Map(items) if fold.kind == FoldKind::Map => {
                let value = self.eval(&fold.body)?;
                insert(items, key, value)?;
            }
            Outcome::Map(items) => match self.eval(&fold.body)? {
                Value::Map(entries) => {
                    self.budget.charge(entries.len() as u64)?;
                    for (key, value) in entries.entries() {
                        insert(items, &key, value)?;
                    }
                }
                other => return Err(EvalError::overload("transformMapEntry", &[other])),
            },
            Outcome::Sorted(items) => {
                let key = self.eval(&fold.body)?;
                items.push((key, own));
            }
        }
        Ok(false)
    }

    fn finish(&mut self, outcome: Outcome<'a>) -> Result<Value<'a>, EvalError> {
        match outcome {
            Outcome::Quantified(truth) => truth.map(Value::Bool),
            Outcome::Counted(count) => Ok(Value::Bool(count == 1)),
            Outcome::List(items) => Value::list(items),
            Outcome::Map(items) => Value::map(items),
            Outcome::Sorted(items) => sorted(&mut self.budget, items),
        }
    }
}

fn insert<'a>(
    items: &mut BTreeMap<Key<'a>, Value<'a>>,
    key: &Value<'a>,
    value: Value<'a>,
) -> Result<(), EvalError> {
    let key = Key::from_value(key)
        .ok_or_else(|| EvalError::Function("unsupported key type".to_owned()))?;
    match items.insert(key, value) {
        Some(_) => Err(EvalError::Function("insert failed: key already exists".to_owned())),
        None => Ok(()),
    }
}

/// The elements by their keys, which must be comparable. The order is paid for before it is made,
/// since a comparison that fails half-way is none.
pub(super) fn sorted<'a>(
    budget: &mut super::Budget,
    mut items: Vec<(Value<'a>, Value<'a>)>,
) -> Result<Value<'a>, EvalError> {
    let mut longest = 0;
    if let Some((first, _)) = items.first() {
        for (key, _) in &items {
            compare(budget, first, key)?;
            longest = longest.max(key.as_str().map_or(0, str::len));
        }
    }
    let rounds = items.len().checked_ilog2().unwrap_or(0) as usize + 1;
    budget.charge((items.len() * rounds) as u64)?;
    budget.charge_bytes(items.len().saturating_mul(rounds).saturating_mul(longest))?;
    items.sort_by(|(left, _), (right, _)| order(left, right).unwrap_or(Ordering::Equal));
    Value::list(items.into_iter().map(|(_, own)| own).collect())
}
