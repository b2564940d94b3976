//! The laws of merging, over generated environments.

use proptest::{collection::vec, prelude::*};
use waybill_core::env::{
    merge::{EnvVar, Environment, Tier},
    name::{EnvName, NameRules},
    origin::Origin,
    value::EnvValue,
};

/// What a test needs to build a variable again; [`EnvVar`] itself cannot be cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Definition {
    name: Vec<u8>,
    value: Vec<u8>,
    secret: bool,
    tier: Tier,
}

type Layer = Vec<Definition>;

const TIERS: [Tier; 5] = [Tier::Baseline, Tier::Caller, Tier::ApiServer, Tier::Node, Tier::Runtime];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Grouping does not matter: (a + b) + c = a + (b + c), across all tiers.
    #[test]
    fn merging_is_associative(a in layer(), b in layer(), c in layer()) {
        let mut left = environment(&a);
        left.absorb(environment(&b));
        left.absorb(environment(&c));

        let mut tail = environment(&b);
        tail.absorb(environment(&c));
        let mut right = environment(&a);
        right.absorb(tail);

        prop_assert_eq!(shape(&left), shape(&right));
        prop_assert_eq!(losers(&left), losers(&right));
    }

    #[test]
    fn merging_again_changes_nothing(a in layer()) {
        let once = environment(&a);
        let mut twice = environment(&a);
        twice.absorb(environment(&a));
        prop_assert_eq!(shape(&once), shape(&twice));
    }

    /// EXEC-06: each name once, none invented, none lost.
    #[test]
    fn names_are_those_that_were_defined_each_once_exec_06(a in layer()) {
        let merged = environment(&a);
        let mut expected: Vec<&[u8]> = Vec::new();
        for definition in &a {
            if !expected.contains(&definition.name.as_slice()) {
                expected.push(&definition.name);
            }
        }
        let names: Vec<_> = merged.iter().map(|entry| entry.name().as_bytes()).collect();
        prop_assert_eq!(names, expected, "order of first appearance is kept");
        prop_assert_eq!(merged.len() + merged.shadowed().len(), a.len());
    }

    /// EXEC-13: the winner is the last definition of the highest tier, byte for byte, with its origin.
    #[test]
    fn the_last_definition_of_the_highest_tier_wins_byte_for_byte_exec_13(a in layer()) {
        let merged = environment(&a);
        for entry in merged.iter() {
            let same = || a.iter().filter(|made| made.name == entry.name().as_bytes());
            let highest = same().map(|made| made.tier).max().unwrap();
            let winner = same().rfind(|made| made.tier == highest).unwrap();
            prop_assert_eq!(entry.value().expose(), &winner.value);
            prop_assert_eq!(entry.value().is_secret(), winner.secret);
            prop_assert_eq!(entry.tier(), highest);
            prop_assert_eq!(entry.origin(), &origin(winner));
            prop_assert_eq!(merged.get(&winner.name).unwrap().value().expose(), &winner.value);
        }
    }

    /// The order in which tiers arrive decides places, never winners.
    #[test]
    fn tiers_may_arrive_in_any_order(a in layer()) {
        let forward = environment(&sorted(&a, |tier| tier));
        let backward = environment(&sorted(&a, std::cmp::Reverse));
        let winners = |environment: &Environment| {
            let mut shape = shape(environment);
            shape.sort();
            shape
        };
        prop_assert_eq!(winners(&forward), winners(&backward));
    }

    /// OP-6: the API server writes caller entries, then its own; the node appends its own and passes
    /// the winners on; the runtime lays that over the baseline, then its own. No hop knows tiers, and
    /// the process gets what five tiers would have given.
    #[test]
    fn one_flat_list_gives_the_five_tiers_op_6(a in layer()) {
        let of = |tier: Tier| a.iter().filter(move |made| made.tier == tier).map(variable);

        let mut five = Environment::new();
        TIERS.iter().for_each(|&tier| five.extend(tier, of(tier)));

        let mut node = Environment::new();
        node.extend(Tier::Baseline, of(Tier::Caller).chain(of(Tier::ApiServer)));
        node.extend(Tier::Baseline, of(Tier::Node));
        let mut runtime = Environment::new();
        runtime.extend(Tier::Baseline, of(Tier::Baseline));
        runtime.extend(Tier::Baseline, node.into_vars());
        runtime.extend(Tier::Baseline, of(Tier::Runtime));

        let plain = |environment: &Environment| -> Vec<_> {
            environment
                .iter()
                .map(|entry| (entry.name().clone(), entry.value().expose().to_vec()))
                .collect()
        };
        prop_assert_eq!(plain(&five), plain(&runtime));
    }
}

/// OP-38, CSI-32: entries resolve in their order, a later one wins and may use earlier ones.
#[test]
fn pod_variables_resolve_in_order_and_refer_to_earlier_ones_csi_32() {
    let name = |raw: &str| EnvName::parse(raw, NameRules::Relaxed).unwrap();
    let csi = Origin::Csi { driver: "d".into(), class: "c".into(), key: "k".into() };
    let mut environment = Environment::new();
    environment.set_expanded(name("URL"), b"db://$(PASSWORD)@h", Origin::Literal).unwrap();
    environment.set(
        Tier::Baseline,
        EnvVar {
            name: name("PASSWORD"),
            value: EnvValue::secret(b"p$(URL)".to_vec()).unwrap(),
            origin: csi.clone(),
        },
    );
    environment.set_expanded(name("LATER"), b"db://$(PASSWORD)@h", Origin::Literal).unwrap();

    let get = |raw: &str| environment.get(raw.as_bytes()).unwrap();
    assert_eq!(get("URL").value().expose(), b"db://$(PASSWORD)@h", "not known yet");
    assert_eq!(get("PASSWORD").origin(), &csi);
    assert_eq!(get("LATER").value().expose(), b"db://p$(URL)@h", "CSI values are literal");
    assert!(get("LATER").value().is_secret(), "a secret inside makes the whole secret");
    assert!(!get("URL").value().is_secret());
}

#[test]
fn who_was_overridden_stays_known() {
    let layer = |tier, value: &[u8]| Definition {
        name: b"K".to_vec(),
        value: value.to_vec(),
        secret: false,
        tier,
    };
    let merged = environment(&[layer(Tier::Baseline, b"1"), layer(Tier::Runtime, b"2")]);
    let shadowed: Vec<_> = merged.shadowed().collect();
    assert_eq!(shadowed.len(), 1);
    assert_eq!(shadowed[0].name().as_bytes(), b"K");
    assert_eq!((shadowed[0].tier(), shadowed[0].origin()), (Tier::Baseline, &Origin::Image));
}

/// Few names, so that collisions are the rule; arbitrary bytes as values.
fn layer() -> impl Strategy<Value = Layer> {
    let name = prop_oneof![
        4 => "[A-C]".prop_map(String::into_bytes),
        1 => "[ -<>-~]{1,6}".prop_map(String::into_bytes),
        1 => vec(1_u8..=255, 1..4).prop_map(|mut name| {
            name.retain(|&byte| byte != b'=');
            name.push(b'x');
            name
        }),
    ];
    let definition = (name, vec(1_u8..=255, 0..6), any::<bool>(), 0..TIERS.len()).prop_map(
        |(name, value, secret, tier)| Definition { name, value, secret, tier: TIERS[tier] },
    );
    vec(definition, 0..24)
}

fn environment(layer: &[Definition]) -> Environment {
    let mut environment = Environment::new();
    layer.iter().for_each(|made| environment.set(made.tier, variable(made)));
    environment
}

fn variable(made: &Definition) -> EnvVar {
    let value = made.value.clone();
    EnvVar {
        name: EnvName::parse_bytes(&made.name, NameRules::Kernel).unwrap(),
        value: if made.secret { EnvValue::secret(value) } else { EnvValue::plain(value) }.unwrap(),
        origin: origin(made),
    }
}

fn origin(made: &Definition) -> Origin {
    match made.tier {
        Tier::Baseline => Origin::Image,
        Tier::Caller => Origin::Caller,
        Tier::ApiServer => Origin::ApiServer,
        Tier::Node => Origin::Node,
        Tier::Runtime => Origin::Runtime,
    }
}

fn sorted<K: Ord>(layer: &[Definition], key: impl Fn(Tier) -> K) -> Layer {
    let mut layer = layer.to_vec();
    layer.sort_by_key(|made| key(made.tier));
    layer
}

fn shape(environment: &Environment) -> Vec<(EnvName, Vec<u8>, bool, Tier)> {
    environment
        .iter()
        .map(|entry| {
            let value = entry.value();
            (entry.name().clone(), value.expose().to_vec(), value.is_secret(), entry.tier())
        })
        .collect()
}

fn losers(environment: &Environment) -> Vec<String> {
    let mut losers: Vec<_> = environment.shadowed().map(|loser| format!("{loser:?}")).collect();
    losers.sort();
    losers
}

/// Thirty variables of two references each stood for gigabytes.
#[test]
fn a_chain_of_references_ends_where_the_kernel_does() {
    let name = |raw: &str| EnvName::parse(raw, NameRules::Relaxed).unwrap();
    let mut environment = Environment::new();
    environment.set_expanded(name("V0"), b"0123456789abcdef", Origin::Literal).unwrap();
    let mut refused = None;
    for at in 1..40 {
        let before = format!("$(V{0})$(V{0})", at - 1);
        let defined =
            environment.set_expanded(name(&format!("V{at}")), before.as_bytes(), Origin::Literal);
        if let Err(error) = defined {
            refused = Some((at, error.to_string()));
            break;
        }
    }
    let (at, error) = refused.unwrap();
    assert_eq!(at, 13);
    assert_eq!(
        error,
        "environment variable V13 takes 131076 bytes as NAME=value, at most 131071 are possible on Linux"
    );
    assert!(environment.kernel_bytes() < 2 * 131_072);
}
