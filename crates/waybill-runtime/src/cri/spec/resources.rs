//! Limits of a container, from CRI's terms to OCI's; the OCI runtime translates those to cgroup v1 or v2.

use oci_spec::runtime::{
    LinuxCpuBuilder, LinuxHugepageLimit, LinuxHugepageLimitBuilder, LinuxMemoryBuilder,
    LinuxResources,
};
use waybill_proto::cri::LinuxContainerResources;

use crate::cri::{
    error::{CriError, Result},
    machine::Machine,
};

/// The limits of `request`; what it does not give is left as it is.
pub(crate) fn resources(
    request: &LinuxContainerResources,
    machine: &Machine,
) -> Result<LinuxResources> {
    let mut resources = LinuxResources::default();
    let mut cpu = LinuxCpuBuilder::default();
    if request.cpu_shares != 0 {
        cpu = cpu.shares(not_negative(request.cpu_shares, "cpu_shares")?);
    }
    if request.cpu_period != 0 {
        cpu = cpu.period(not_negative(request.cpu_period, "cpu_period")?);
    }
    if request.cpu_quota != 0 {
        cpu = cpu.quota(request.cpu_quota);
    }
    if !request.cpuset_cpus.is_empty() {
        cpu = cpu.cpus(request.cpuset_cpus.clone());
    }
    if !request.cpuset_mems.is_empty() {
        cpu = cpu.mems(request.cpuset_mems.clone());
    }
    resources.set_cpu(Some(cpu.build()?));

    let mut memory = LinuxMemoryBuilder::default();
    if request.memory_limit_in_bytes != 0 {
        memory = memory.limit(request.memory_limit_in_bytes);
    }
    // Without swap accounting there is nothing to limit; kubelets send a limit all the same.
    if request.memory_swap_limit_in_bytes != 0 && machine.swap {
        memory = memory.swap(request.memory_swap_limit_in_bytes);
    }
    resources.set_memory(Some(memory.build()?));

    let pages = hugepages(request, machine)?;
    resources.set_hugepage_limits((!pages.is_empty()).then_some(pages));
    if !request.unified.is_empty() {
        if !machine.unified {
            let advice = "this machine has cgroup v1; leave `unified` out";
            return Err(CriError::unsupported("`unified` in resources", advice));
        }
        let files = request.unified.iter().map(|(name, value)| (name.clone(), value.clone()));
        resources.set_unified(Some(files.collect()));
    }
    Ok(resources)
}

/// Adds the limits of `update` to those that a container has, as status shows them.
pub(crate) fn merge(current: &mut LinuxContainerResources, update: &LinuxContainerResources) {
    let number = |current: &mut i64, new: i64| {
        if new != 0 {
            *current = new;
        }
    };
    let text = |current: &mut String, new: &String| {
        if !new.is_empty() {
            current.clone_from(new);
        }
    };
    number(&mut current.cpu_period, update.cpu_period);
    number(&mut current.cpu_quota, update.cpu_quota);
    number(&mut current.cpu_shares, update.cpu_shares);
    number(&mut current.memory_limit_in_bytes, update.memory_limit_in_bytes);
    number(&mut current.memory_swap_limit_in_bytes, update.memory_swap_limit_in_bytes);
    text(&mut current.cpuset_cpus, &update.cpuset_cpus);
    text(&mut current.cpuset_mems, &update.cpuset_mems);
    for limit in &update.hugepage_limits {
        current.hugepage_limits.retain(|other| other.page_size != limit.page_size);
        current.hugepage_limits.push(limit.clone());
    }
    let files = update.unified.iter().map(|(name, value)| (name.clone(), value.clone()));
    current.unified.extend(files);
}

/// How ready the kernel is to kill the container's processes when memory runs out.
pub(super) fn oom_score_adj(request: &LinuxContainerResources) -> Result<i32> {
    let score = request.oom_score_adj;
    i32::try_from(score).ok().filter(|score| (-1000..=1000).contains(score)).ok_or_else(|| {
        CriError::invalid(format!("oom_score_adj: {score} is not a number from -1000 to 1000"))
    })
}

fn hugepages(
    request: &LinuxContainerResources,
    machine: &Machine,
) -> Result<Vec<LinuxHugepageLimit>> {
    if !machine.hugetlb {
        // Kubelets send a limit of nothing for every size, which holds by itself here.
        if request.hugepage_limits.iter().any(|limit| limit.limit > 0) {
            let advice = "this machine has no hugetlb controller; leave hugepage_limits out";
            return Err(CriError::unsupported("a limit of huge pages", advice));
        }
        return Ok(Vec::new());
    }
    let limit = |limit: &waybill_proto::cri::HugepageLimit| {
        let bytes = i64::try_from(limit.limit).map_err(|_| {
            CriError::invalid(format!("limit of {} pages is too large", limit.page_size))
        })?;
        Ok(LinuxHugepageLimitBuilder::default()
            .page_size(limit.page_size.clone())
            .limit(bytes)
            .build()?)
    };
    request.hugepage_limits.iter().map(limit).collect()
}

fn not_negative(number: i64, field: &str) -> Result<u64> {
    u64::try_from(number)
        .map_err(|_| CriError::invalid(format!("{field}: {number} is less than nothing")))
}

#[cfg(test)]
mod tests {
    use waybill_proto::cri::HugepageLimit;

    use super::*;

    fn request() -> LinuxContainerResources {
        LinuxContainerResources::default()
    }

    #[test]
    fn what_is_not_given_is_not_set() {
        let resources = resources(&request(), &Machine::plain()).unwrap();
        assert_eq!(resources.cpu().as_ref().unwrap().shares(), None);
        assert_eq!(resources.memory().as_ref().unwrap().limit(), None);
        assert_eq!(resources.hugepage_limits(), &None);
        assert_eq!(resources.unified(), &None);
    }

    #[test]
    fn limits_are_passed_on() {
        let request = LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: -1,
            cpu_shares: 512,
            cpuset_cpus: "0-1".into(),
            memory_limit_in_bytes: 1 << 30,
            memory_swap_limit_in_bytes: 1 << 31,
            unified: [("memory.high".to_owned(), "1".to_owned())].into(),
            ..request()
        };
        let resources = resources(&request, &Machine::plain()).unwrap();
        let (cpu, memory) = (resources.cpu().clone().unwrap(), resources.memory().unwrap());
        assert_eq!((cpu.shares(), cpu.quota(), cpu.period()), (Some(512), Some(-1), Some(100_000)));
        assert_eq!((memory.limit(), memory.swap()), (Some(1 << 30), Some(1 << 31)));
        assert_eq!(resources.unified().as_ref().unwrap()["memory.high"], "1");
    }

    #[test]
    fn what_the_machine_cannot_limit_is_refused_or_holds_anyway() {
        let machine = Machine { unified: false, hugetlb: false, swap: false, ..Machine::plain() };
        let pages = |limit| LinuxContainerResources {
            hugepage_limits: vec![HugepageLimit { page_size: "2MB".into(), limit }],
            memory_swap_limit_in_bytes: 1,
            ..request()
        };
        let none = resources(&pages(0), &machine).unwrap();
        assert_eq!(none.hugepage_limits(), &None);
        assert_eq!(none.memory().unwrap().swap(), None);
        assert!(resources(&pages(1), &machine).is_err());
        let unified = LinuxContainerResources {
            unified: [(String::new(), String::new())].into(),
            ..request()
        };
        assert!(resources(&unified, &machine).is_err());
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let shares = LinuxContainerResources { cpu_shares: -2, ..request() };
        assert!(resources(&shares, &Machine::plain()).is_err());
        for (score, good) in
            [(0, true), (-1000, true), (1000, true), (1001, false), (1 << 40, false)]
        {
            let request = LinuxContainerResources { oom_score_adj: score, ..request() };
            assert_eq!(oom_score_adj(&request).is_ok(), good, "{score}");
        }
    }

    #[test]
    fn an_update_keeps_what_it_does_not_name() {
        let mut current = LinuxContainerResources { cpu_shares: 2, cpu_quota: 5, ..request() };
        merge(&mut current, &LinuxContainerResources { cpu_shares: 9, ..request() });
        assert_eq!((current.cpu_shares, current.cpu_quota), (9, 5));
    }
}
