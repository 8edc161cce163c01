"""What the jobs here talk to while their GPU is idle, as RL jobs do: a service that verifies answers and takes what is logged.

The service is the test (run_framework.py), at the socket JOB_SERVICE; it decides when to answer, never what. Without JOB_SERVICE
a job answers itself, so each can be run by hand: `JOB_SEED=1 DEV=CUDA python jobs/tinygrad_policy_gradient.py`.
"""
import hashlib
import json
import os
import socket

ANSWERS = 8  # a prompt has one right answer of so many


def right_answer(prompt):
    """Of the prompt with this number."""
    return (prompt * 2654435761 % 2**32) * ANSWERS >> 32


def answer(request):
    """What the service says to a request, both JSON objects."""
    if request["verb"] == "verify":
        return {"rewards": [float(said == right_answer(prompt)) for prompt, said in zip(request["prompts"], request["answers"])]}
    return {"logged": request["step"]}


class Service:
    def __init__(self, job):
        self.job, self.connection = job, None
        if "JOB_SERVICE" in os.environ:
            self.connection = socket.socket(socket.AF_UNIX)
            self.connection.connect(os.environ["JOB_SERVICE"])
            self.lines = self.connection.makefile("r")

    def ask(self, **request):
        if self.connection is None:
            return answer(request)
        self.connection.sendall(json.dumps(request | {"job": self.job}).encode() + b"\n")
        return json.loads(self.lines.readline())

    def verify(self, prompts, answers):
        """The reward, 0 or 1, of each answer."""
        return self.ask(verb="verify", prompts=[int(p) for p in prompts], answers=[int(a) for a in answers])["rewards"]

    def log(self, step, **figures):
        """Prints the figures, each bit of them, and waits until they are logged."""
        print(step, *(f"{name}={float(value).hex()}" for name, value in figures.items()), flush=True)
        self.ask(verb="log", step=step)


def digest(*arrays):
    """Of the bytes of NumPy arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(array.tobytes())
    return total.hexdigest()[:32]
