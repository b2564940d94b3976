//! EXEC-57: the suite for variables of exec sessions, against our runtime and against a stock one.

use std::fs;

use waybill_runtime::image::build::ImageBuilder;
use waybill_testkit::{
    conformance::{self, Report, Target, Verdict},
    containerd::Containerd,
};

use crate::image::{Runtime, is_root};

const BUSYBOX: &str = "/bin/busybox";
const IMAGE: &str = "localhost/conformance:1";

/// One static program and nothing else: no shell, no `env`, no library. `None` if there is none.
fn image() -> Option<Vec<u8>> {
    let Ok(busybox) = fs::read(BUSYBOX) else {
        waybill_testkit::skip::skip("busybox", "install the Debian package busybox-static");
        return None;
    };
    // Stock containerd holds sandboxes with what the image runs by itself.
    let image = ImageBuilder::new()
        .file("/busybox", 0o755, busybox)
        .directory("/proc", 0o755)
        .entrypoint(&["/busybox", "sleep", "86400"]);
    Some(image.archive(IMAGE).expect("a good name"))
}

async fn suite(socket: std::path::PathBuf) -> Vec<Report> {
    let target = Target::new(socket, IMAGE);
    conformance::run(&target).await.expect("the suite runs")
}

/// EXEC-02 to EXEC-12 on our runtime, as EXEC-57 asks.
#[tokio::test(flavor = "multi_thread")]
async fn our_runtime_passes_every_case_exec_57() {
    let Some(image) = image() else { return };
    let Some(runtime) = Runtime::start() else { return };
    let imported = runtime.image_with_input(&["import", "-"], &image);
    assert_eq!(imported.code, 0, "{imported:?}");
    let reports = suite(runtime.directory.path("socket")).await;
    assert!(reports.iter().all(|report| report.verdict == Verdict::Passed), "{reports:#?}");
}

/// EXEC-12: the variables are absent, nothing else suffers, and that is not called a failure.
#[tokio::test(flavor = "multi_thread")]
async fn stock_containerd_does_not_know_the_variables_and_keeps_all_other_rules_exec_57() {
    let Some(image) = image() else { return };
    if !is_root() {
        waybill_testkit::skip::skip("root", "only root may run a container runtime");
        return;
    }
    let Some(containerd) = Containerd::start(IMAGE) else { return };
    containerd.import(&image);
    let reports = suite(containerd.socket()).await;
    let of = |verdict: fn(&Verdict) -> bool| {
        reports.iter().filter(|report| verdict(&report.verdict)).count()
    };
    assert_eq!(of(|verdict| matches!(verdict, Verdict::Failed(_))), 0, "{reports:#?}");
    assert_eq!(of(|verdict| *verdict == Verdict::Unsupported), 9, "{reports:#?}");
}
