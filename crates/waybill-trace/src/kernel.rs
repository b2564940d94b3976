//! What the kernel tells about programs as they start and end.

mod assembler;
mod btf;
mod ebpf;
mod layout;
mod offsets;
mod program;

pub use self::{
    btf::{Btf, BtfError},
    ebpf::{Ebpf, EbpfError},
    layout::{ExecEvent, ExitEvent, KernelEvent, ParentProcess},
};
