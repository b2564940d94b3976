//! Two programs side by side, each with a runtime of its own: the one that was built for this, and another, older one. They take
//! turns and take turns to be the first, so that both see the same machine.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{Lab, PROGRAM, Script, parent, processes};

const WARM_UP: usize = 20;

pub(crate) async fn measure(other: &str, archive: Vec<u8>, (execs, containers): (usize, usize)) {
    let mut sides = [Side::open(PROGRAM, "-new").await, Side::open(other, "-old").await];
    for side in &mut sides {
        side.lab.client.import(archive.clone()).await;
        side.container = side.lab.start("box").await;
    }
    for at in 0..execs + WARM_UP {
        for side in turn(at, &mut sides) {
            side.exec().await;
        }
    }
    show("ExecSync of /bin/true", &mut sides, 0);
    show_processor_time("ExecSync", &sides, execs);
    for at in 0..containers + WARM_UP {
        for side in turn(at, &mut sides) {
            side.run_container(at).await;
        }
    }
    show("container, create and start", &mut sides, 1);
    show("container, remove", &mut sides, 2);
    show_processor_time("container, all of it", &sides, containers);
    for side in sides {
        side.close().await;
    }
}

/// Both, the other one first every second time. The first times of each kind warm up.
fn turn(at: usize, sides: &mut [Side; 2]) -> Vec<&mut Side> {
    if at == WARM_UP {
        sides.iter_mut().for_each(Side::begin);
    }
    let [one, other] = sides;
    if at.is_multiple_of(2) { vec![one, other] } else { vec![other, one] }
}

/// A program, and how long things took it.
struct Side {
    lab: Lab,
    container: String,
    /// What counts the processor time of all that belongs to it; empty where the kernel has no such cgroups.
    cgroups: Vec<PathBuf>,
    before: Duration,
    times: [Vec<Duration>; 3],
}

impl Side {
    async fn open(program: &str, name: &str) -> Self {
        let mut lab = Lab::open(program, name).await;
        let root = PathBuf::from("/sys/fs/cgroup/cpuacct");
        let containers = root.join(lab.cgroup.trim_start_matches('/'));
        let roles = root.join(format!("{}-roles", lab.cgroup.trim_start_matches('/')));
        let mut cgroups = Vec::new();
        if containers.exists() && fs::create_dir(&roles).is_ok() {
            let runtime = lab.runtime.pid();
            for (pid, _) in processes() {
                if pid == runtime || parent(pid) == Some(runtime) {
                    fs::write(roles.join("cgroup.procs"), pid.to_string()).unwrap();
                }
            }
            cgroups = vec![containers, roles];
        }
        let (container, times) = (String::new(), [const { Vec::new() }; 3]);
        Self { lab, container, cgroups, before: Duration::ZERO, times }
    }

    fn begin(&mut self) {
        self.before = self.processor_time();
        self.times = [const { Vec::new() }; 3];
    }

    async fn exec(&mut self) {
        let begin = Instant::now();
        self.lab.run_true(&self.container).await;
        self.times[0].push(begin.elapsed());
    }

    async fn run_container(&mut self, at: usize) {
        let client = &self.lab.client;
        let name = format!("one-{at}");
        let begin = Instant::now();
        let id = client.create(&self.lab.sandbox, &name, Script::Elder, 0).await.unwrap();
        client.start(&id).await.unwrap();
        self.times[1].push(begin.elapsed());
        let begin = Instant::now();
        client.remove(&id).await.unwrap();
        self.times[2].push(begin.elapsed());
    }

    /// Of runtime, spawner, monitors and containers, those that are gone as well.
    fn processor_time(&self) -> Duration {
        let read = |cgroup: &PathBuf| fs::read_to_string(cgroup.join("cpuacct.usage")).unwrap();
        let usages = self.cgroups.iter().map(read);
        Duration::from_nanos(usages.map(|usage| usage.trim().parse::<u64>().unwrap()).sum())
    }

    async fn close(self) {
        self.lab.close().await;
        if let Some(roles) = self.cgroups.last() {
            // The last monitors may end a little later.
            while fs::remove_dir(roles).is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn show(what: &str, sides: &mut [Side; 2], kind: usize) {
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    println!(
        "{what}, {} of each, load {}",
        sides[0].times[kind].len(),
        load.split(' ').next().unwrap()
    );
    for side in sides.iter_mut() {
        side.times[kind].sort_unstable();
    }
    for (name, percent) in [("least", 0), ("p10", 10), ("p50", 50), ("p90", 90)] {
        let [new, old] = sides.each_ref().map(|side| {
            let times = &side.times[kind];
            times[times.len() * percent / 100]
        });
        line(name, new, old);
    }
}

fn show_processor_time(what: &str, sides: &[Side; 2], count: usize) {
    let count = u32::try_from(count).unwrap();
    let [new, old] =
        sides.each_ref().map(|side| (side.processor_time() - side.before).div_f64(count.into()));
    println!("{what}, processor time of runtime, spawner, monitors and containers");
    line("mean", new, old);
}

fn line(name: &str, new: Duration, old: Duration) {
    let ratio = new.as_secs_f64() / old.as_secs_f64();
    println!("  {name:<16} new {new:>12.2?}   old {old:>12.2?}   ratio {ratio:.3}");
}
