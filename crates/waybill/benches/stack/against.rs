//! Two stacks side by side: of the program that was built for this, and of another, older one. They take turns and take turns to
//! be the first, so that both see the same machine.

use std::time::Instant;

use waybill_client::exec::Executor;

use crate::{
    numbers::Times,
    pods::Pods,
    sessions::{POD, WARM_UP, exec},
    up::{PROGRAM, Up},
};

pub(crate) async fn measure(other: &str, pods: usize, execs: usize) {
    let mut sides = [Side::start(PROGRAM).await, Side::start(other).await];
    for at in 0..execs + WARM_UP {
        for side in turn(at, &mut sides) {
            side.times.add(exec(&side.executor, 0).await);
        }
    }
    show("exec of /bin/true through API server, node and runtime", &sides);
    for at in 0..pods + WARM_UP {
        for side in turn(at, &mut sides) {
            side.run_pod(at).await;
        }
    }
    show("a pod, created to Running", &sides);
    sides.iter_mut().for_each(|side| side.up.stop());
}

/// Both, the other one first every second time. The first times of each kind warm up.
fn turn(at: usize, sides: &mut [Side; 2]) -> Vec<&mut Side> {
    if at == WARM_UP || at == 0 {
        sides.iter_mut().for_each(|side| side.times = Times::new());
    }
    let [one, other] = sides;
    if at.is_multiple_of(2) { vec![one, other] } else { vec![other, one] }
}

struct Side {
    up: Up,
    pods: Pods,
    executor: Executor,
    times: Times,
}

impl Side {
    async fn start(program: &str) -> Self {
        let up = Up::start_program(program, &[]);
        let pods = Pods::connect(&up.options()).await;
        pods.run(POD).await;
        let executor = Executor::new(&up.options()).await.unwrap();
        Self { up, pods, executor, times: Times::new() }
    }

    async fn run_pod(&mut self, at: usize) {
        let name = format!("one-{at}");
        let begin = Instant::now();
        self.pods.run(&name).await;
        self.times.add(begin.elapsed());
        self.pods.delete(&name).await;
    }
}

fn show(what: &str, [new, old]: &[Side; 2]) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("{what}, load {}", load.split(' ').next().unwrap());
    for (name, percent) in [("least", 0), ("p10", 10), ("p50", 50), ("p90", 90)] {
        let [new, old] = [new, old].map(|side| side.times.percentile(percent));
        println!("  {name:<8} new {new:>8.2} ms   old {old:>8.2} ms   ratio {:.3}", new / old);
    }
}
