#!/usr/bin/env python3
"""What plexrl-ctl says of jobs, against what is known about the same run from elsewhere. Exit 0 passed, 1 failed.

duty: a job uses the simulated GPU about half of the time. plexrl-ctl and the trace both get their figures from the same edges, so
they must agree however fast the machine is.
overhead: a process's context takes what the simulated GPU was told (ctx=); the manager measures that, and keeps it for the next run.
kinds: plexrl-ctl memory names what the driver owns, with its size and reason, and all of its rows together are what the GPU shows.
modules: what a module takes that is loaded later is shown as what the process has grown by.
pinned: it names memory that others have, by kind and reason, as long as they have it.
memory: the rows of a process in HBM add up to what the driver shows for it, with all in HBM and with some in the host.
visible: CUDA_VISIBLE_DEVICES permutes GPUs or names them by UUID, and each is charged for what is on it, by its own index.
departed: memory of a killed process is free as late as the simulated GPU was told (free_delay=); who needs it waits as long.
"""
import collections
import json
import os
import signal
import sys
import time

from sandbox import PATIENCE_S, Failure, run_case, wait_until

MIB = 1 << 20
CONTEXT = 24 * MIB
MODULES = 8 * MIB
FREE_DELAY_S = 4
SPEC = f"link=4GB/s,hbm=40GB/s,vmm=20us,ctx={CONTEXT // MIB}MiB,free_delay={FREE_DELAY_S}s"
MIPMAPS = 4 * sum((1024 >> n) ** 2 for n in range(6))  # of programs/mipmaps_and_cubes.cc
# Program, kind, bytes that it has when it pauses first, and what the reason says.
DRIVER_MEMORY = [("managed_memory", "managed", 6 * MIB, "the driver itself moves it"),
                 ("external_memory", "other", 4 * MIB, "of another API"),
                 ("mipmaps_and_cubes", "array", MIPMAPS, "arrays have a layout that only the driver knows"),
                 ("graph_left_memory", "graph", 8 * MIB, "nodes of a CUDA graph allocate it"),
                 ("arrays_and_textures", "array", 8 * MIB, "arrays have a layout that only the driver knows")]
ROUNDS = 0  # of the antagonist, in the page shared with the program (programs/peer.h)
ROUNDING = 0.02  # the two reports begin to count some milliseconds apart


def busy_by_trace(trace, asked_ns):
    """Seconds of the running slices until the gap in which plexrl-ctl was asked, less the gaps in them."""
    gaps = sorted((gap["mono_ns"], gap["mono_ns"] + gap["length_ns"]) for gap in trace["gaps"])
    end = max((start for start, end in gaps if start <= asked_ns <= end), default=None)
    if end is None:
        raise Failure(f"plexrl-ctl says that the job was idle at {asked_ns}, the trace has no gap there: {gaps}")
    busy = 0
    for piece in trace["slices"]:
        if piece["state"] != "running":
            continue
        first, last = piece["start_mono_ns"], min(piece["end_mono_ns"], end)
        busy += max(0, last - first) - sum(max(0, min(last, g_end) - max(first, g_start)) for g_start, g_end in gaps)
    return busy / 1e9, len(gaps)


def check_summary(trace):
    """The job had its lease for longer than it used it, and the summary tells the two apart."""
    job, gpu = trace["summary"]["jobs"][0], trace["summary"]["gpus"][0]
    gaps = sum(gap["length_ns"] for gap in trace["gaps"]) / 1e9
    if not trace["summary"]["has_activity"] or not 0 < job["duty_ratio"] < 1 or not 0 < job["busy_s"] < job["held_s"]:
        raise Failure(f"a job that used the GPU half of the time: {job}")
    if not close(job["busy_s"] + gaps, job["running_s"]) or not close(job["busy_s"], gpu["busy_s"]):
        raise Failure(f"busy for {job['busy_s']} s and {gaps} s of gaps, of {job['running_s']} s running; the GPU: {gpu}")


def close(a, b):
    return abs(a - b) <= ROUNDING * max(a, b) + 0.02


def check_gpu(status, least_busy_s):
    gpu, age = status["gpus"][0], status["manager"]["uptime_s"]
    if not 0 < gpu["duty_ratio"] < 1 or not 0 < gpu["duty_since_start_ratio"] < 1:
        raise Failure(f"a GPU that was busy and idle in turn: {gpu}")
    busy = gpu["duty_since_start_ratio"] * age
    if busy < least_busy_s * (1 - ROUNDING):
        raise Failure(f"busy for {busy:.3f} s, the kernels alone took {least_busy_s:.3f} s")
    if gpu["out_bytes"] != 0 or gpu["out_bytes_s"] != 0:
        raise Failure(f"bytes left, though nobody else was there: {gpu}")
    return busy


def check_job(job):
    if job["share_ratio"] != 1:
        raise Failure(f"the only job has all of the time granted, not {job['share_ratio']}")
    if job["slowdown_ratio"] is None or job["slowdown_ratio"] < 1:
        raise Failure(f"slowdown {job['slowdown_ratio']}")
    if job["next_wake_s"] is None:
        raise Failure("it is idle and has had gaps, but its next wake is not known")


def start_half_busy(sandbox, name, **more):
    return sandbox.shared([sandbox.build / "tests/integration/programs/half_busy"], name,
                          **{"PLEXRL_TEST_PEER": sandbox.peer_file, **more})


def start_and_pause(sandbox, name, **more):
    """Returns when the program has its memory and waits, idle."""
    program = start_half_busy(sandbox, name, **more)
    wait_until(lambda: sandbox.peer()["pauses"] == 1 or program.poll() is not None, "the program's last pause")
    if program.poll() is not None:
        sandbox.wait(program)
        raise Failure("the program ended without its pause")
    return program


def duty(sandbox):
    sandbox.start_manager()
    program = start_and_pause(sandbox, "half_busy")

    def idle_status():
        # Its last edge may still be on the way.
        sandbox.status = sandbox.tool("plexrl-ctl", "status", "--json")
        gangs = [gang for job in sandbox.status["jobs"] for gang in job["gangs"]]
        return gangs and all(gang["idle"] for gang in gangs)

    wait_until(idle_status, "the job is idle")
    sandbox.stop_antagonist()  # the word that half_busy waits for
    output = sandbox.wait(program).decode()
    sandbox.stop_manager()
    manager = sandbox.status["manager"]
    busy = check_gpu(sandbox.status, int(output.split()[1]) / 1e9)
    check_job(sandbox.status["jobs"][0])
    trace = sandbox.trace("export", "--format", "json")
    traced, gaps = busy_by_trace(trace, manager["started_mono_ns"] + int(manager["uptime_s"] * 1e9))
    check_summary(trace)
    if not close(busy, traced):
        raise Failure(f"plexrl-ctl: busy for {busy:.3f} s; trace: {traced:.3f} s")
    return f"busy for {busy:.3f} s by plexrl-ctl, {traced:.3f} s by the trace, with {gaps} gaps"


def overhead(sandbox):
    sandbox.start_manager()
    program = start_and_pause(sandbox, "half_busy")
    wait_until_told(lambda: add_up(sandbox, set()), sandbox, program)
    measured = sum(row["bytes"] for row in sandbox.last["memory"] if row["kind"] in ("context", "other"))
    if not CONTEXT <= measured <= CONTEXT + MODULES:
        raise Failure(f"a context of {CONTEXT} bytes and modules of less than {MODULES} are measured as {measured}")
    sandbox.stop_antagonist()
    sandbox.wait(program)
    profile = sandbox.state / "profiles" / str(os.getuid()) / "half_busy.json"
    wait_until(profile.exists, f"{profile} kept")
    sandbox.stop_manager()
    kept = json.loads(profile.read_text())["overhead_bytes"]
    if kept != measured:
        raise Failure(f"the profile keeps {kept} bytes, not {measured}")
    return f"the manager measured {measured} bytes, {CONTEXT} of them the context, and keeps them for the next run"


BALLAST = 20 * MIB  # as those with a second process choose it themselves
# Programs, and the kinds of their memory in their first pause beside the ballast, which is "alloc", and the context.
# Ways of programs/pinned_kinds.cc, and the kind and reason of the memory meanwhile.
LATE_MODULE = 40 * MIB  # of programs/late_module.cc
PINNED_BYTES = 6 * MIB
PINNED = {"dma_buf": ("rdma", "exported as a dma-buf"), "sync_memops": ("alloc", "attribute SYNC_MEMOPS set"),
          "multicast": ("vmm", "bound to a multicast object"), "nccl_memory": ("nccl", "allocated by ncclMemAlloc"),
          "nccl_buffer": ("nccl", "registered with NCCL"), "nccl_window": ("nccl", "registered with NCCL")}
OF_MANY_KINDS = {"expandable_segments": {"vmm"}, "graph_memory": set(), "ipc_memory": {"ipc"}, "managed_memory": {"managed"},
                 "memory_pools": {"pool"}, "module_variables": set(), "own_mappings": {"vmm"},
                 "pinned_host_memory": {"host_registered"}, "several_contexts": set(), "shared_handles": set(),
                 "small_allocations": set()}


def add_up(sandbox, kinds):
    """There are rows of these kinds; the rows of each process in HBM are together what the GPU shows for it, and the answer says so."""
    sandbox.last = answer = sandbox.tool("plexrl-ctl", "memory", "--json")
    sums, found = collections.Counter(), collections.Counter()
    for row in answer["memory"]:
        sums[row["pid"], row["gpu"]] += row["bytes"] if row["tier"] == "hbm" else 0
        found[row["kind"]] += row["bytes"]
    if found["alloc"] < BALLAST or not {*found} >= kinds or any("set aside" in (row["reason"] or "") for row in answer["memory"]):
        return False
    told = {(process["pid"], process["gpu"]): (process["driver_bytes"], process["accounted_bytes"]) for process in answer["processes"]}
    gpu = {key: sandbox.gpu_bytes(*key) for key in told}
    answer["gpu"] = [*gpu.items()]
    return told == {key: (gpu[key], sums[key]) for key in sums}


def memory(sandbox):
    sandbox.start_manager()
    for name, kinds in OF_MANY_KINDS.items():
        # Its first pause lasts until a neighbour has run, and there is none.
        program = sandbox.shared([sandbox.build / "tests/integration/programs" / name], name, PLEXRL_TEST_BALLAST=BALLAST,
                                 PLEXRL_TEST_PEER=sandbox.make_peer(f"{name}.peer"))
        wait_until_told(lambda its=kinds: add_up(sandbox, its), sandbox, program)
        program.terminate()
        sandbox.wait(program, expected=128 + signal.SIGTERM)
        wait_until(lambda: not sandbox.ask_manager("jobs")["jobs"], f"{name} has gone")
    fitting = {"options": ["--memory", "110MiB"], "PLEXRL_TEST_BALLAST": 100 * MIB}
    first = start_and_pause(sandbox, "first", **fitting)
    second = start_half_busy(sandbox, "second", **fitting, PLEXRL_TEST_PEER=sandbox.make_peer("second.peer"))

    def in_both_places():
        tiers = {row["tier"] for row in sandbox.ask_manager("memory")["memory"]}
        return tiers >= {"hbm", "host"} and add_up(sandbox, set())

    wait_until_told(in_both_places, sandbox, second)
    for program in (first, second):
        program.terminate()
        sandbox.wait(program, expected=128 + signal.SIGTERM)
    return f"{len(OF_MANY_KINDS)} programs, and two that don't fit together: every byte that the GPU shows is in a row"


def modules(sandbox):
    """What a module takes is the driver's, and stands in the row of what the process has grown by."""
    sandbox.start_manager()
    program = sandbox.shared([sandbox.build / "tests/integration/programs/late_module"], "late_module", PLEXRL_TEST_BALLAST=BALLAST,
                             PLEXRL_TEST_PEER=sandbox.peer_file)
    for pause, grown in enumerate((0, LATE_MODULE, 0), 1):
        def grown_by_it(its=grown):
            if not add_up(sandbox, set()):
                return False
            others = [row for row in sandbox.last["memory"] if row["kind"] == "other"]
            return sum(row["bytes"] for row in others) == its and all("modules" in row["reason"] for row in others)

        wait_until_told(grown_by_it, sandbox, program)
        sandbox.end_pause(program, sandbox.peer_file, pause)
    sandbox.wait(program)
    return f"a module that took {LATE_MODULE} bytes and gave them back"


def pinned(sandbox):
    """Each way is looked at while others have the memory, and when they have it no more."""
    sandbox.gpus, sandbox.more_spec = 2, f"{SPEC},sm=90"
    sandbox.start_manager()
    for way, (kind, reason) in PINNED.items():
        peer = sandbox.make_peer(f"{way}.peer")
        program = sandbox.shared([sandbox.build / "tests/integration/programs/pinned_kinds", way], way, PLEXRL_TEST_BALLAST=BALLAST,
                                 PLEXRL_TEST_PEER=peer)

        def pinned_rows_are(expected):
            sandbox.last = rows = sandbox.memory_rows()
            found = [(row["kind"], row["bytes"], row["tier"], row["reason"]) for row in rows if row["pageable"] == "pinned"]
            return found == expected and add_up(sandbox, set())

        its_row = [(kind, PINNED_BYTES, "hbm", reason)]
        wait_until(lambda row=its_row: pinned_rows_are(row), f"{way}: a row {its_row}, and all that the GPU shows is in a row", program,
                   lambda: sandbox.last)
        sandbox.end_pause(program, peer, 1)
        wait_until(lambda: pinned_rows_are([]), f"{way}: no row any more", program, lambda: sandbox.last)
        sandbox.end_pause(program, peer, 2)
        sandbox.wait(program)
        wait_until(lambda: not sandbox.ask_manager("jobs")["jobs"], f"{way} has gone")
    return f"{len(PINNED)} ways in which others get hold of memory: pinned by kind and reason as long as they have it"


def wait_until_told(condition, sandbox, program):
    sandbox.last = None
    wait_until(condition, "the rows add up", program, lambda: sandbox.last)


def visible(sandbox):
    """Two GPUs, a program that uses the first of those that it sees, and what each of them has."""
    sandbox.gpus = 2
    sandbox.start_manager()
    uuids = [gpu["uuid"] for gpu in sorted(sandbox.tool("plexrl-ctl", "gpus", "--json")["gpus"], key=lambda gpu: gpu["index"])]
    forms = {"1": 1, "1,0": 1, "0,1": 0, uuids[1]: 1, f"{uuids[1]},{uuids[0]}": 1, uuids[0][:12]: 0}
    for count, (form, gpu) in enumerate(forms.items()):
        sandbox.peer_file = sandbox.make_peer(f"visible{count}.peer")
        program = start_and_pause(sandbox, f"visible{count}", CUDA_VISIBLE_DEVICES=form, PLEXRL_TEST_BALLAST=BALLAST,
                                  PLEXRL_TEST_PEER=sandbox.peer_file)

        def charged_rightly(its=gpu):
            sandbox.last = answer = sandbox.tool("plexrl-ctl", "memory", "--json")
            told = sum(row["bytes"] for row in answer["memory"] if row["tier"] == "hbm")
            return ({row["gpu"] for row in answer["memory"]} == {its} and BALLAST < told == sandbox.gpu_bytes(answer["memory"][0]["pid"], its))

        wait_until_told(charged_rightly, sandbox, program)
        sandbox.stop_antagonist()
        sandbox.wait(program)
        wait_until(lambda: not sandbox.ask_manager("jobs")["jobs"], f"{program.name} has gone")
    return f"{len(forms)} forms of CUDA_VISIBLE_DEVICES, and each time the right GPU of two was charged"


def departed(sandbox):
    """Two jobs, each of which fits only alone; the first is killed."""
    sandbox.start_manager()
    first = start_and_pause(sandbox, "first", PLEXRL_TEST_BALLAST=100 * MIB)
    job = sandbox.tool("plexrl-ctl", "jobs", "first", "--json")["jobs"][0]
    os.kill(job["gangs"][0]["pids"][0], signal.SIGKILL)
    sandbox.wait(first, expected=128 + signal.SIGKILL)
    sandbox.stop_antagonist()
    sandbox.wait(start_half_busy(sandbox, "second", PLEXRL_TEST_BALLAST=100 * MIB))
    sandbox.stop_manager()
    trace = sandbox.trace("export", "--format", "json")
    died_ns = next(p["end_mono_ns"] for p in trace["processes"] if p["job"] == job["id"])
    granted_ns = min(s["start_mono_ns"] for s in trace["slices"] if s["name"] == "second" and s["state"] in ("loading", "running"))
    waited = (granted_ns - died_ns) / 1e9
    # The simulated GPU notices a death at the first look after it, the manager's own.
    if waited < FREE_DELAY_S - 0.1:
        raise Failure(f"the second job got the GPU {waited:.3f} s after the first one's death, its memory takes {FREE_DELAY_S} s")
    return f"the second job got the GPU {waited:.3f} s after the first one's death (free_delay {FREE_DELAY_S} s)"


def end_pauses(sandbox, job):
    """Plays the neighbour until the job ends."""
    deadline = time.monotonic() + PATIENCE_S
    while job.poll() is None and time.monotonic() < deadline:
        sandbox.set_peer(ROUNDS, sandbox.peer()["rounds"] + 1)
        time.sleep(0.005)


def kinds(sandbox):
    """Each program is looked at in its first pause, which lasts until we say that a neighbour has run."""
    sandbox.start_manager()
    found = []
    for program, kind, least, reason in DRIVER_MEMORY:
        job = sandbox.shared([sandbox.build / "tests/integration/programs" / program], program, PLEXRL_TEST_PEER=sandbox.peer_file)

        def row_shown():
            if job.poll() is not None:
                sandbox.wait(job)
                raise Failure(f"{program} ended without a pause")
            return any(row["kind"] == kind and row["bytes"] >= least for row in sandbox.memory_rows())

        wait_until(row_shown, f"{program}: a row of kind {kind} with at least {least} bytes")

        def rows_are_the_gpus():
            rows = [row for row in sandbox.memory_rows() if row["tier"] == "hbm"]
            return sum(row["bytes"] for row in rows) == sandbox.gpu_bytes(rows[0]["pid"])

        wait_until(rows_are_the_gpus, f"{program}: the rows are together what the GPU shows of the process")
        row = next(row for row in sandbox.memory_rows() if row["kind"] == kind)
        if row["tier"] != "hbm" or row["pageable"] != "no" or reason not in row["reason"]:
            raise Failure(f"{program}: {row}")
        found.append(f"{kind} {row['bytes']} bytes")
        end_pauses(sandbox, job)
        sandbox.wait(job)
    sandbox.stop_manager()
    return "plexrl-ctl memory: " + ", ".join(found)


CASES = {"duty": duty, "overhead": overhead, "kinds": kinds, "modules": modules, "pinned": pinned, "memory": memory, "visible": visible, "departed": departed}


sys.exit(run_case(__doc__, CASES, SPEC))
