"""What is run, by sets, the most telling first: time may run out."""
import functools

import bench
import machine as this_machine
import sharing

SETS = {
    "rlvr": "two RL jobs on the driver API",
    "torch": "PyTorch: a GRPO loop, its three allocators, CUDA graphs, torch.compile, DataLoader, shared tensors, profiler",
    "cudart": "a program on NVIDIA's runtime library, linked statically and shared",
    "cublas": "a program on the machine's cuBLAS",
    "nccl": "a program on the machine's NCCL, with one rank",
    "bench": "what a switch costs, both directions of the link at once, virtual memory management by size",
    "integration": "the programs of the driver API, one for each behaviour, each beside another",
}

TORCH = {  # name -> program of tests/gpu/torch, what it gets in its environment
    "grpo": ("grpo.py", {}),
    "default_allocator": ("allocations.py", {}),
    "expandable_segments": ("allocations.py", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "malloc_async": ("allocations.py", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    "cuda_graphs": ("graphs.py", {}),
    "shared_tensors": ("shared_tensors.py", {}),
    "data_loader": ("loader.py", {}),
    "compile": ("compiled.py", {}),
    "profiler": ("profiled.py", {}),
}
TORCH_ROUNDS = (30, 120, 480)


def skipped(name, reason):
    return {"name": name, "result": "skipped", "detail": reason}


def checks(machine):
    """(set, name, what to call for its result) of each check. A library that is not here is looked for once."""
    mib, programs = machine.mib, machine.programs
    share = functools.partial(sharing.check_sharing, machine)
    bind = functools.partial

    rlvr = [[programs / "rlvr", "--steps", steps, "--state-bytes", 4096 * mib, "--seed", 1] for steps in (10, 40, 160)]
    yield "rlvr", "rlvr", bind(share, "rlvr", rlvr, 7168 * mib)
    why_no_torch = functools.cache(bind(this_machine.why_no_torch, machine.python))
    names = list(TORCH)
    yield "torch", names[0], bind(torch_program, machine, names[0], why_no_torch)
    for kind in ("static", "shared"):
        yield "cudart", f"cudart_mix_{kind}", bind(runtime_program, machine, f"cudart_mix_{kind}")
    yield "bench", "evict_and_restore", bind(bench.measure_switch, machine)
    for name in names[1:]:
        yield "torch", name, bind(torch_program, machine, name, why_no_torch)
    yield "cublas", "cublas_mix", bind(runtime_program, machine, "cublas_mix", "cublas")
    yield "nccl", "nccl_mix", bind(runtime_program, machine, "nccl_mix", "nccl")
    yield "bench", "link_both_ways", bind(bench.measure_both_ways, machine)
    yield "bench", "vmm_cost", bind(bench.measure_vmm, machine)
    for program in sorted((programs / "integration").glob("*")):
        if program.name != "antagonist":
            yield "integration", program.name, bind(integration_program, machine, program)


def integration_program(machine, program):
    if program.name in ("peer_access", "shared_pool_access", "two_devices") and machine.devices < 2:
        return skipped(program.name, "needs two GPUs")
    options = ["--export=real"] if program.name == "exported_memory" else []
    return sharing.check_beside_antagonist(machine, program, *options)


def runtime_program(machine, name, stem=None):
    """A program on NVIDIA's runtime library, which refuses any driver but NVIDIA's. `stem`: of the library that it opens beside."""
    program = machine.programs / name
    if not program.exists():
        return skipped(name, "not in this pack: nvcc or a header was missing where it was made")
    if machine.simulated:
        return skipped(name, "NVIDIA's libraries refuse the simulated GPU")
    library = this_machine.find_library(stem, machine.python) if stem else None
    if stem and library is None:
        return skipped(name, f"no lib{stem}.so of the loader, in /usr/local/cuda*, or beside the Python packages of {machine.python}")
    arguments = [library] if stem else []
    commands = [[program, *arguments, 2048 * machine.mib >> 20, rounds, 100] for rounds in (20, 80, 320)]
    return sharing.check_sharing(machine, name, commands, 4096 * machine.mib)


def torch_program(machine, name, why_not):
    reason = why_not()
    if reason is not None:
        return skipped(name, reason)
    # The kernels that torch.compile has made when the program was alone are those that it uses when it shares.
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(machine.sessions / name / "kernels"), **TORCH[name][1]}
    return sharing.check_sharing(machine, name, torch_commands(machine.python, machine.programs / "torch", name, 5120 * machine.mib >> 20),
                                 10240 * machine.mib, environment)


def torch_commands(python, folder, name, ballast_mib):
    """One for each number of rounds. `folder` is where tests/gpu/torch is."""
    return [[python, folder / TORCH[name][0], "--rounds", rounds, "--ballast-mib", ballast_mib, "--pause-ms", 100]
            for rounds in TORCH_ROUNDS]
