//! The runtime's public face, on this machine's kernel. Most of it needs root and says SKIPPED without.

#![cfg(test)]

mod cri_attach;
mod cri_container;
mod cri_contract;
mod cri_exec;
mod cri_host_path;
mod cri_image_volume;
mod cri_images;
mod cri_lab;
mod cri_metrics;
mod cri_mount_target;
mod cri_movable;
mod cri_privilege;
mod cri_restart;
mod cri_run_directory;
mod cri_sandbox;
mod cri_sensitive;
mod cri_status;
mod cri_stopped;
mod cri_tomorrow;
mod cri_unified;
mod cri_users;
mod engine_cgroup;
mod engine_container;
mod engine_escape;
mod engine_exec;
mod engine_full_disk;
mod engine_recovery;
mod engine_sandbox;
mod engine_seccomp;
mod engine_silence;
mod engine_spawner;
mod engine_tomorrow;
mod history;
mod hostile;
mod hostile_files;
mod hostile_network;
mod hostile_proc;
mod hostile_program;
mod hostile_users;
mod lab;
