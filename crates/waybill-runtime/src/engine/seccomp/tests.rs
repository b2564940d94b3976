//! Programs as the kernel would run them, and what the kernel itself makes of one.

use super::{
    policy::{AbiPolicy, Action, Condition, Policy, Rule, Test, Verdict},
    program::{
        AND, ARCHITECTURE, ARGUMENTS, Instruction, JUMP, JUMP_IF_ANY_BIT, JUMP_IF_AT_LEAST,
        JUMP_IF_EQUAL, JUMP_IF_GREATER, LOAD, MOST, NUMBER, RETURN, compile,
    },
    *,
};

/// A system call as the kernel shows it to a filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) abi: u32,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
}

impl Asked {
    pub(super) fn new(abi: Abi, number: u32, first: u64) -> Self {
        Self { abi: abi.kernel_name(), number, arguments: [first, 0, 0, 0, 0, 0] }
    }

    fn word(&self, at: u32) -> u32 {
        match at {
            NUMBER => self.number,
            ARCHITECTURE => self.abi,
            _ => {
                let offset = usize::try_from(at - ARGUMENTS).unwrap();
                let bytes: Vec<u8> =
                    self.arguments.iter().flat_map(|it| it.to_ne_bytes()).collect();
                u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap())
            }
        }
    }
}

/// What the kernel does with a program.
pub(super) fn judged(program: &[Instruction], asked: Asked) -> Action {
    let mut loaded = 0;
    let mut at = 0;
    loop {
        let Instruction(code, jt, jf, k) = program[at];
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        at += 1;
        match code {
            LOAD => loaded = asked.word(k),
            AND => loaded &= k,
            JUMP => at += usize::try_from(k).unwrap(),
            JUMP_IF_EQUAL => at += jump(loaded == k),
            JUMP_IF_GREATER => at += jump(loaded > k),
            JUMP_IF_AT_LEAST => at += jump(loaded >= k),
            JUMP_IF_ANY_BIT => at += jump(loaded & k != 0),
            RETURN => return Action(k),
            _ => panic!("instruction {code:#x} {k:#x}"),
        }
    }
}

/// What a policy says, read as it is written.
pub(super) fn meant(policy: &Policy, asked: Asked) -> Action {
    let Some(abi) = policy.abis.iter().find(|abi| abi.abi.kernel_name() == asked.abi) else {
        return policy.elsewhere;
    };
    let at = abi.verdicts.partition_point(|(numbers, _)| *numbers.end() < asked.number);
    let verdict = abi.verdicts.get(at).filter(|(numbers, _)| numbers.contains(&asked.number));
    let Some((_, verdict)) = verdict else { return abi.otherwise };
    let holds = |rule: &&Rule| rule.conditions.iter().all(|condition| fulfilled(condition, asked));
    verdict.rules.iter().find(holds).map_or(verdict.otherwise, |rule| rule.action)
}

fn fulfilled(condition: &Condition, asked: Asked) -> bool {
    let argument = asked.arguments[usize::from(condition.argument)];
    match condition.test {
        Test::Equal(value) => argument == value,
        Test::NotEqual(value) => argument != value,
        Test::Less(value) => argument < value,
        Test::LessOrEqual(value) => argument <= value,
        Test::Greater(value) => argument > value,
        Test::GreaterOrEqual(value) => argument >= value,
        Test::Masked { mask, value } => argument & mask == value,
    }
}

/// Every number that a policy speaks about and those next to it, in every ABI.
#[track_caller]
pub(super) fn check(policy: &Policy, firsts: &[u64]) {
    let program = compile(policy);
    assert!(program.len() <= MOST, "{} instructions", program.len());
    for abi in [Abi::X86_64, Abi::I386, Abi::Aarch64, Abi::Arm] {
        for number in
            (0..1000).chain([983_040, 983_045, 983_046, 0x3fff_ffff, 0x4000_0000, u32::MAX])
        {
            for &first in firsts {
                let asked = Asked::new(abi, number, first);
                assert_eq!(judged(&program, asked), meant(policy, asked), "{asked:x?}");
            }
        }
    }
    // s390, which no process here can be.
    let asked = Asked { abi: 0x16, number: 21, arguments: [0; 6] };
    assert_eq!(judged(&program, asked), policy.elsewhere);
}

/// Values around each half of a number of 64 bits.
pub(super) const EDGES: [u64; 12] = [
    0,
    1,
    8,
    38,
    40,
    0x80,
    0xffff_ffff,
    0x1_0000_0000,
    0x1_0000_0026,
    0x7e02_0000,
    1 << 63,
    u64::MAX,
];

fn one_call(rules: Vec<Rule>) -> Policy {
    let verdict = Verdict { rules, otherwise: Action::TRAP };
    let abi = AbiPolicy::new(Abi::Aarch64, vec![(7..=7, verdict)], Action::ALLOW);
    Policy { abis: vec![abi], elsewhere: Action::KILL_PROCESS }
}

#[test]
fn every_comparison_is_of_all_64_bits() {
    for value in EDGES {
        for test in [
            Test::Equal(value),
            Test::NotEqual(value),
            Test::Less(value),
            Test::LessOrEqual(value),
            Test::Greater(value),
            Test::GreaterOrEqual(value),
            Test::Masked { mask: 0xffff_ffff, value },
            Test::Masked { mask: 0xff_0000_00ff, value },
            Test::Masked { mask: value, value: 0 },
            Test::Masked { mask: value, value: 8 },
        ] {
            let rule =
                Rule { conditions: vec![Condition { argument: 0, test }], action: Action::LOG };
            let firsts: Vec<u64> = EDGES
                .iter()
                .flat_map(|edge| [edge.wrapping_sub(1), *edge, edge.wrapping_add(1)])
                .collect();
            check(&one_call(vec![rule]), &firsts);
        }
    }
}

#[test]
fn rules_are_tried_in_order_and_need_all_their_conditions() {
    let condition = |argument, value| Condition { argument, test: Test::Equal(value) };
    let policy = one_call(vec![
        Rule { conditions: vec![condition(0, 1), condition(5, 2)], action: Action::ALLOW },
        Rule { conditions: vec![condition(0, 1)], action: Action::LOG },
    ]);
    let program = compile(&policy);
    for (arguments, expected) in [
        ([1, 0, 0, 0, 0, 2], Action::ALLOW),
        ([1, 0, 0, 0, 0, 3], Action::LOG),
        ([2, 0, 0, 0, 0, 2], Action::TRAP),
    ] {
        let asked = Asked { abi: Abi::Aarch64.kernel_name(), number: 7, arguments };
        assert_eq!(judged(&program, asked), expected);
    }
}

/// How far a test leads is told by one byte.
#[test]
fn programs_may_be_longer_than_a_jump() {
    let verdicts = (0..900_u32).step_by(2).map(|number| {
        let test = Test::Equal(u64::from(number) << 31);
        let rule = Rule { conditions: vec![Condition { argument: 0, test }], action: Action::LOG };
        (number..=number, Verdict { rules: vec![rule], otherwise: Action::FORBIDDEN })
    });
    let abi = AbiPolicy::new(Abi::Aarch64, verdicts.collect(), Action::ALLOW);
    let policy = Policy { abis: vec![abi], elsewhere: Action::KILL_PROCESS };
    assert!(compile(&policy).len() > 2000);
    check(&policy, &[0, 2 << 31, 898 << 31, u64::MAX]);
}

#[test]
fn a_filter_of_the_runtime_is_made_once_for_each_set_of_capabilities() {
    let filters = Filters::default();
    let made = |capabilities| {
        filters.filter(&SeccompProfile::RuntimeDefault, capabilities).unwrap().unwrap()
    };
    let (none, all) = (made(0), made(u64::MAX));
    assert_ne!(none, all);
    assert_eq!(made(0), none);
    assert_eq!(filters.kept.lock().unwrap().len(), 2);
    for capabilities in 0..100 {
        made(capabilities);
    }
    assert!(filters.kept.lock().unwrap().len() <= Filters::MOST);
    assert!(filters.filter(&SeccompProfile::Unconfined, 0).unwrap().is_none());
}

/// Monitors are sent what was made.
#[test]
fn a_filter_survives_its_way_to_a_monitor() {
    let filter = Filters::default().filter(&SeccompProfile::RuntimeDefault, 0).unwrap();
    let text = serde_json::to_string(&filter).unwrap();
    assert_eq!(serde_json::from_str::<Option<Filter>>(&text).unwrap(), filter);
}
