"""Two RL jobs, ada and bob, share a simulated GPU that holds one of them, until it has changed hands GRANTS times."""
import time

SEEDS = {"ada": 1, "bob": 2}
GRANTS = 8
STATE_BYTES = 90 << 20  # of each


def run(sandbox):
    """The trace is then in sandbox.state / "trace"."""
    def rlvr(name):
        return [sandbox.build / "tests/bin/rlvr", "--name", name, "--seed", SEEDS[name], "--steps", 5, "--state-bytes", STATE_BYTES,
                "--rollout-ms", 60, "--tool-ms", 120, "--train-ms", 40, "--until", released]
    released = sandbox.folder / "released"
    sandbox.start_manager()
    jobs = [sandbox.shared(rlvr(name), name) for name in SEEDS]
    # Both want the GPU until then, so that it changes hands, and memory moves, however slow the machine is.
    while sandbox.ask_manager("status")["manager"]["grants"] < GRANTS and all(job.poll() is None for job in jobs):
        time.sleep(0.02)
    released.touch()
    for job in jobs:
        sandbox.wait(job)
    sandbox.stop_manager()
