//! Env files against a plain scan of their bytes, and merging against a hash map.
//!
//! Each group holds its own baseline, so that only the ratio inside one run counts;
//! `docs/performance.md` records it.

use std::{collections::HashMap, hint::black_box};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use waybill_core::env::{
    expand::expand,
    file::EnvFile,
    limits::FILE_BYTES,
    merge::{EnvVar, Environment, Tier},
    name::{EnvName, NameRules},
    origin::Origin,
    value::EnvValue,
};

fn env_file(criterion: &mut Criterion) {
    for (shape, value_length) in [("short values", 24), ("long values", 2_000)] {
        let text = file(value_length);
        let mut group = criterion.benchmark_group(format!("env file of 64 KiB, {shape}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("baseline: memchr for a byte that is not there", |bencher| {
            bencher.iter(|| memchr::memchr(0, black_box(&text)));
        });
        group.bench_function("baseline: memchr for each quote", |bencher| {
            bencher.iter(|| {
                memchr::memchr_iter(b'\'', black_box(&text)).for_each(|at| {
                    black_box(at);
                });
            });
        });
        group.bench_function("parse", |bencher| {
            bencher.iter(|| EnvFile::parse(black_box(&text), NameRules::Relaxed).is_ok());
        });
        group.finish();
    }
}

fn merge(criterion: &mut Criterion) {
    let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..1_000)
        // Every fourth variable is defined twice.
        .map(|number| (format!("VARIABLE_{:04}", number - number % 4 / 3), value(number)))
        .map(|(name, value)| (name.into_bytes(), value.into_bytes()))
        .collect();
    let vars = || -> Vec<EnvVar> {
        let var = |(name, value): &(Vec<u8>, Vec<u8>)| EnvVar {
            name: EnvName::parse_bytes(name, NameRules::Relaxed).expect("a good name"),
            value: EnvValue::plain(value.as_slice()).expect("a good value"),
            origin: Origin::Literal,
        };
        pairs.iter().map(var).collect()
    };
    let mut group = criterion.benchmark_group("merge of 1,000 variables");
    group.throughput(Throughput::Elements(1_000));
    group.bench_function("baseline: HashMap of the same strings", |bencher| {
        bencher.iter_batched(
            || pairs.clone(),
            |pairs| pairs.into_iter().collect::<HashMap<_, _>>(),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("environment with provenance", |bencher| {
        bencher.iter_batched(
            vars,
            |vars| {
                let mut environment = Environment::new();
                environment.extend(Tier::Baseline, vars);
                environment
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn expansion(criterion: &mut Criterion) {
    let known = EnvValue::plain(*b"value").expect("a good value");
    let template = "prefix-$(NAME)-$$(NAME)-$(UNKNOWN)/".repeat(32);
    let mut group = criterion.benchmark_group("expansion of 96 references");
    group.throughput(Throughput::Bytes(template.len() as u64));
    group.bench_function("baseline: copy of the template", |bencher| {
        bencher.iter(|| black_box(template.as_bytes()).to_vec());
    });
    group.bench_function("expand", |bencher| {
        let lookup = |name: &[u8]| (name == b"NAME").then_some(&known);
        bencher.iter(|| expand(black_box(template.as_bytes()), lookup, usize::MAX).is_ok());
    });
    group.finish();
}

/// As many lines as fit into the limit.
fn file(value_length: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for number in 0.. {
        let line = format!("APP_SETTING_{number}='{}'\n", "v".repeat(value_length));
        if text.len() + line.len() > FILE_BYTES {
            return text;
        }
        text.extend_from_slice(line.as_bytes());
    }
    unreachable!("the file fills up")
}

fn value(number: usize) -> String {
    format!("value {number} of a usual length")
}

criterion_group!(benches, env_file, merge, expansion);
criterion_main!(benches);
