#!/usr/bin/env python3
"""What Prometheus reads of a real node manager, with a job on the simulated GPU.

node: the figures are those of plexrl-ctl. outage: a port that is taken, a manager that stands still, a killed exporter: the manager goes
on, and says what is missing. off: a manager of plexrl-run's serves nothing.
"""
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

from sandbox import Failure, run_case, wait_until


def expect(what, seen, wanted):
    if seen != wanted:
        raise Failure(f"{what}: {seen!r}, not {wanted!r}")


def ports(sandbox):
    """Of every exporter that the manager has started, in order."""
    return [int(port) for port in re.findall(r"served port=(\d+)", sandbox.errors("nodemgr"))]


def page(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode()


def value(text, name, *labels):
    """Of the one series of that name with all these labels, as text; none without it."""
    found = [line for line in text.splitlines() if line.startswith(name + "{") and all(label in line for label in labels)]
    if len(found) > 1:
        raise Failure(f"several series: {found}")
    return float(found[0].rsplit(" ", 1)[1]) if found else None


def exporters(sandbox):
    """Process ids of those that this manager has started."""
    done = subprocess.run(["ps", "--ppid", str(sandbox.manager.pid), "-o", "pid=,comm="], stdout=subprocess.PIPE, text=True, check=False)
    return [int(line.split()[0]) for line in done.stdout.splitlines() if "plexrl-exporter" in line]


def start(sandbox, listen="127.0.0.1:0"):
    sandbox.start_manager(PLEXRL_METRICS_LISTEN=listen)


def hold_job(sandbox):
    """A job with memory on the GPU, that waits at the FIFO."""
    fifo = sandbox.folder / "go"
    os.mkfifo(fifo)
    script = f"{sandbox.build}/tests/bin/rlvr --name a --steps 1 --state-bytes {1 << 20} && read line < {fifo}"
    job = sandbox.shared(["/bin/sh", "-c", script], "trainer")
    wait_until(lambda: b"digest" in sandbox.output("trainer").read_bytes(), "the job has computed", beside=job)
    return job, fifo


def node(sandbox):
    start(sandbox)
    job, fifo = hold_job(sandbox)
    wait_until(lambda: ports(sandbox), "metrics are served", beside=sandbox.manager)
    text = page(ports(sandbox)[-1])
    expect("up", re.search(r"^plexrl_manager_up 1$", text, re.M) is not None, True)
    told = sandbox.ask_manager("status")
    gpu, its = told["gpus"][0], 'gpu="0"'
    expect("all figures are called simulated",
           [line for line in text.splitlines() if line.startswith("plexrl_") and "{" in line and 'simulated="true"' not in line], [])
    expect("total", value(text, "plexrl_gpu_memory_bytes", its, 'kind="total"'), gpu["total_bytes"])
    expect("budget", value(text, "plexrl_gpu_memory_bytes", its, 'kind="budget"'), gpu["budget_bytes"])
    expect("host budget", value(text, "plexrl_host_bytes", 'kind="budget"'), told["manager"]["host_budget_bytes"])
    expect("promise", value(text, "plexrl_job_promised_bytes", 'name="trainer"'), told["jobs"][0]["promised_bytes"])
    expect("grants", value(text, "plexrl_grants_total"), told["manager"]["grants"])
    fifo.write_text("\n")
    sandbox.wait(job)
    wait_until(lambda: value(page(ports(sandbox)[-1]), "plexrl_job_promised_bytes", 'name="trainer"') is None, "the job's series have ended")
    sandbox.stop_manager()
    wait_until(lambda: not answers(ports(sandbox)[-1]), "the exporter ends with its manager")
    return "as plexrl-ctl has it"


def answers(port):
    try:
        page(port)
    except OSError:
        return False
    return True


def outage(sandbox):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        start(sandbox, f"127.0.0.1:{taken.getsockname()[1]}")
        wait_until(lambda: "nobody serves metrics" in sandbox.errors("nodemgr"), "the log says so", beside=sandbox.manager)
        expect("what to do is said", "metrics.listen" in sandbox.errors("nodemgr"), True)
        expect("the manager answers", sandbox.ask_manager("status")["jobs"], [])
    wait_until(lambda: ports(sandbox), "it is served once the port is free", beside=sandbox.manager)
    port = ports(sandbox)[-1]
    os.kill(exporters(sandbox)[0], signal.SIGKILL)
    wait_until(lambda: len(ports(sandbox)) > 1 and answers(port), "one that was killed is started again", beside=sandbox.manager)
    sandbox.manager.send_signal(signal.SIGSTOP)
    text = page(port)
    sandbox.manager.send_signal(signal.SIGCONT)
    expect("a manager that stands still", re.findall(r"^plexrl_\w+.*$", text, re.M), ["plexrl_manager_up 0"])
    return "the manager goes on, and one sees what is missing"


def off(sandbox):
    environment = {name: text for name, text in sandbox.environment().items() if name != "PLEXRL_METRICS_LISTEN"}
    fifo = sandbox.folder / "go"
    os.mkfifo(fifo)
    job = sandbox.start([sandbox.prefix / "bin/plexrl-run", "--require", f"--simgpu={sandbox.spec()}", "--", "/bin/sh", "-c", f"read l < {fifo}"],
                        environment, "job")
    wait_until(lambda: (sandbox.state / "nodemgr.log").exists() and sandbox.socket.exists() and sandbox.ask_manager("jobs")["jobs"],
               "the job is there", beside=job)
    manager = sandbox.ask_manager("status")["manager"]["pid"]
    children = subprocess.run(["ps", "--ppid", str(manager), "-o", "comm="], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    expect("programs beside it", children, [])
    fifo.write_text("\n")
    sandbox.wait(job)
    return "a user's own manager opens no port"


CASES = {case.__name__: case for case in (node, outage, off)}

if __name__ == "__main__":
    sys.exit(run_case(__doc__, CASES, spec=""))
