//! The image that the containers of these tests are made of.

use std::fs;

use waybill_runtime::image::build::ImageBuilder;
use waybill_testkit::skip::skip;

pub(crate) const NAME: &str = "localhost/crash:1";

const BUSYBOX: &str = "/bin/busybox";

/// An archive with a shell; `None` if this machine cannot run containers.
pub(crate) fn busybox() -> Option<Vec<u8>> {
    let status = fs::read_to_string("/proc/self/status").expect("proc is mounted");
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t0")) {
        skip("root", "only root may run a container runtime");
        return None;
    }
    let Ok(busybox) = fs::read(BUSYBOX) else {
        skip("busybox", "install the Debian package busybox-static");
        return None;
    };
    let image = ImageBuilder::new()
        .directory("/proc", 0o755)
        .file("/bin/busybox", 0o755, busybox)
        .variable("PATH", "/bin");
    let image = ["sh", "sleep", "test", "true"]
        .iter()
        .fold(image, |image, applet| image.symlink(&format!("/bin/{applet}"), "busybox"));
    Some(image.archive(NAME).expect("a good name"))
}
