//! What went wrong in runc, containerd, CRI-O, youki and the kernel under them, and which test tries it here.
//!
//! A case is only worth its line while its test is there, so each is looked up.

use std::{fs, path::Path};

/// The case, the file of its test from the crate's folder on, and the test.
#[rustfmt::skip]
const HISTORY: &[(&str, &str, &str)] = &[
    ("CVE-2014-9356..9358: paths in layers that lead out", "src/image/layer/tests.rs", "hostile_archives_are_refused_and_reach_nothing_outside"),
    ("CVE-2015-3627, CVE-2024-21626: open directories behind /proc/self/fd, sessions", "tests/it/engine_escape.rs", "a_session_finds_no_directory_of_the_machine_behind_a_descriptor"),
    ("CVE-2024-21626: workingDir in /proc/self/fd, first processes", "tests/it/engine_escape.rs", "a_first_process_finds_no_directory_of_the_machine_behind_a_descriptor"),
    ("CVE-2024-21626: a working directory outside of the root", "tests/it/hostile.rs", "a_program_starts_in_a_directory_of_its_container"),
    ("CVE-2016-8867: capabilities that stay", "tests/it/engine_exec.rs", "a_session_is_what_the_first_process_is"),
    ("CVE-2016-9962: a process that enters is traced", "tests/it/hostile.rs", "those_who_enter_are_not_seen_before_they_are_inside"),
    ("CVE-2016-9962: descriptors that stay open", "tests/it/hostile.rs", "nothing_of_ours_is_left_open_to_a_program"),
    ("CVE-2019-5736: /proc/self/exe is written", "tests/it/engine_escape.rs", "our_program_cannot_be_written_through_a_process_that_enters_a_container"),
    ("CVE-2019-5736: our program is run as /proc/self/exe, and written from inside", "tests/it/hostile_program.rs", "a_container_that_runs_our_program_cannot_write_it"),
    ("CVE-2020-15257: abstract sockets of the machine's network", "tests/it/hostile_network.rs", "no_socket_of_ours_is_open_to_the_machines_network"),
    ("CVE-2025-52881: links swapped meanwhile lead volumes into /proc", "tests/it/hostile_proc.rs", "links_swapped_meanwhile_lead_no_volume_into_proc"),
    ("CVE-2025-52881: a container's own /proc takes what is told about sessions", "tests/it/hostile_proc.rs", "what_is_told_about_a_session_does_not_go_to_a_proc_of_the_containers_making"),
    ("CVE-2019-16884, CVE-2025-52881: a volume at /proc takes labels and sysctls", "tests/it/cri_mount_target.rs", "a_link_in_a_volume_leads_no_other_volume_into_proc"),
    ("CVE-2019-16884: the word to AppArmor goes elsewhere", "src/engine/monitor/apparmor.rs", "no_link_leads_the_word_elsewhere"),
    ("CVE-2019-19921, CVE-2021-30465, CVE-2024-45310: mount targets swapped for links", "tests/it/cri_mount_target.rs", "links_swapped_into_a_mount_target_do_not_lead_out"),
    ("CVE-2017-1002101, CVE-2021-25741: sub-paths swapped for links", "../waybill-node/src/volume/tests/sub_paths.rs", "links_swapped_in_meanwhile_do_not_lead_out"),
    ("CVE-2025-31133: /dev/null is a link when paths are masked", "tests/it/cri_mount_target.rs", "links_in_dev_lead_no_mask_and_no_console_elsewhere"),
    ("CVE-2025-52565: /dev/console is a link", "tests/it/cri_mount_target.rs", "links_in_dev_lead_no_mask_and_no_console_elsewhere"),
    ("CVE-2022-0492: release_agent", "tests/it/hostile.rs", "no_release_agent_can_be_written"),
    ("CVE-2022-0811: core_pattern and other sysctls of the machine", "tests/it/hostile.rs", "no_file_that_moves_the_whole_machine_can_be_written"),
    ("masked paths are read", "tests/it/hostile.rs", "what_the_kernel_keeps_to_itself_is_hidden"),
    ("CVE-2016-0728: keyrings of others", "tests/it/hostile.rs", "no_two_share_a_session_keyring"),
    ("CVE-2022-0185: namespaces and mounts for everybody", "tests/it/engine_seccomp.rs", "sessions_and_first_processes_cannot_make_a_user_namespace"),
    ("CVE-2022-1708: output without end", "tests/it/cri_exec.rs", "much_output_is_cut_and_the_command_goes_on"),
    ("CVE-2022-29162: inheritable capabilities", "tests/it/engine_exec.rs", "a_session_is_what_the_first_process_is"),
    ("CVE-2024-40635: an image's user that is no number", "src/cri/spec/user.rs", "an_image_names_nobody_by_a_number_that_is_none"),
    ("image config: /etc/passwd is a link, a pipe, a device", "src/engine/monitor/child.rs", "a_list_of_users_is_a_file_of_reasonable_length"),
    ("image config: paths that are links out of the root", "src/cri/spec/rootfs.rs", "links_do_not_lead_out_of_the_root"),
    ("whiteouts: what a layer hides", "src/image/layer/tests.rs", "whiteouts_become_those_of_overlayfs"),
    ("user namespaces: capabilities reach the machine", "tests/it/hostile_users.rs", "all_rights_in_a_pod_are_none_on_the_machine"),
    ("user namespaces: files of the machine, and of other pods", "tests/it/hostile_users.rs", "files_of_the_machine_and_of_other_pods_are_closed"),
    ("user namespaces, CVE-2016-9962: who enters is looked at by root of the pod", "tests/it/hostile_users.rs", "those_who_enter_a_pod_are_not_seen_by_its_root"),
    ("user namespaces: ids that were not given, CVE-2018-18955", "tests/it/hostile_users.rs", "no_process_of_a_pod_becomes_a_user_of_another"),
    ("user namespaces: processes open to their new user", "src/engine/user_namespace.rs", "machines_that_open_processes_to_their_new_user_have_no_user_namespaces"),
    ("setuid programs in the file for last words, and in what a sandbox gives", "tests/it/hostile_files.rs", "no_program_is_run_from_a_file_that_every_container_has"),
    ("processes that are being made are stopped by a neighbour", "tests/it/cri_stopped.rs", "a_pod_whose_creation_a_neighbour_stops_can_be_removed"),
    ("cgroup file systems mounted again", "tests/it/engine_cgroup.rs", "a_cgroup_file_system_mounted_again_shows_no_session"),
];

#[test]
fn every_case_of_the_past_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (case, file, test) in HISTORY {
        let text = fs::read_to_string(root.join(file));
        let text = text.unwrap_or_else(|error| panic!("{case}: {file}: {error}"));
        assert!(text.contains(&format!("fn {test}(")), "{case}: no test {test} is in {file}");
    }
}
