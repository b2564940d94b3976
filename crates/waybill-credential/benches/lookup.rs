//! What a request pays for a credential that is there, beside a plain atomic load; alone and among 64 tasks.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use criterion::{Criterion, criterion_group, criterion_main};
use kube::{Config, config::ExecConfig};
use tokio::runtime::Runtime;
use waybill_credential::{Authenticator, Authenticators, Options};

const TASKS: u64 = 64;

fn authenticator(runtime: &Runtime) -> Arc<Authenticator> {
    let answer = r#"echo '{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential",
        "status":{"token":"t","expirationTimestamp":"2999-01-01T00:00:00Z"}}'"#;
    let mut config = Config::new(http::Uri::from_static("https://127.0.0.1:1"));
    config.auth_info.exec = Some(ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1beta1".to_owned()),
        command: Some("/bin/sh".to_owned()),
        args: Some(vec!["-c".to_owned(), answer.to_owned()]),
        ..ExecConfig::default()
    });
    let plugin = Authenticators::default().take_plugin("u", &mut config, &Options::default());
    let plugin = plugin.ok().flatten().expect("the stanza is sound");
    runtime.block_on(plugin.credential()).expect("the plugin answers");
    plugin
}

/// Splits `iterations` over tasks.
fn spread(runtime: &Runtime, iterations: u64, work: impl Fn() + Clone + Send + 'static) {
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..TASKS {
            let work = work.clone();
            tasks.spawn(async move { (0..iterations / TASKS + 1).for_each(|_| work()) });
        }
        tasks.join_all().await;
    });
}

fn lookup(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let plugin = authenticator(&runtime);
    let plain = Arc::new(AtomicU64::new(0));
    let mut group = criterion.benchmark_group("lookup");
    group.bench_function("atomic load", |bencher| {
        bencher.iter(|| black_box(plain.load(Ordering::Acquire)));
    });
    group.bench_function("atomic load, 64 tasks", |bencher| {
        bencher.iter_custom(|iterations| {
            let (plain, begin) = (Arc::clone(&plain), std::time::Instant::now());
            spread(&runtime, iterations, move || {
                black_box(plain.load(Ordering::Acquire));
            });
            begin.elapsed()
        });
    });
    group.bench_function("shared count, 64 tasks", |bencher| {
        // What any handle costs that a request takes with it, whatever it leads to.
        let shared = Arc::new(());
        bencher.iter_custom(|iterations| {
            let (shared, begin) = (Arc::clone(&shared), std::time::Instant::now());
            spread(&runtime, iterations, move || drop(black_box(Arc::clone(&shared))));
            begin.elapsed()
        });
    });
    group.bench_function("cached credential", |bencher| {
        bencher.iter(|| black_box(plugin.cached()));
    });
    group.bench_function("cached credential, 64 tasks", |bencher| {
        bencher.iter_custom(|iterations| {
            let (plugin, begin) = (Arc::clone(&plugin), std::time::Instant::now());
            spread(&runtime, iterations, move || drop(black_box(plugin.cached())));
            begin.elapsed()
        });
    });
    group.finish();
}

criterion_group!(benches, lookup);
criterion_main!(benches);
