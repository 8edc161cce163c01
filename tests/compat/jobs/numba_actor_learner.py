"""An actor and a learner, two processes that share arrays on one GPU by IPC handles of numba-cuda, sent pickled: the learner's prompts
and weights (the latter inside of a larger array), and what the actor answers. Ends well only if they have learned to answer."""
import multiprocessing
import os

import numpy as np
from numba import cuda
from numba.cuda.random import create_xoroshiro128p_states

from numba_policy_gradient import BATCH, FEATURES, GROUP, STEPS, THREADS, judge, learn, make_prompts, sample
from service import ANSWERS, Service, digest


def act(learner, seed):
    """Answers the prompts from each number on that comes through the pipe, with the weights as they are then; ends at None."""
    with learner.recv() as prompts, learner.recv() as weights:
        likely = cuda.device_array((BATCH, ANSWERS), np.float32)
        answers = cuda.device_array((BATCH, GROUP), np.int32)
        counts = cuda.to_device(np.zeros(ANSWERS, np.int32))
        states = create_xoroshiro128p_states(BATCH * GROUP, seed=seed)
        learner.send(likely.get_ipc_handle())
        learner.send(answers.get_ipc_handle())
        while (first := learner.recv()) is not None:
            judge[BATCH, THREADS](prompts, first, weights, likely)
            sample[2, THREADS](likely, states, answers, counts)
            cuda.synchronize()
            learner.send("answered")
        learner.send([int(count) for count in counts.copy_to_host()])


def train(actor, service, prompts, weights):
    """Returns the last mean reward."""
    with actor.recv() as likely, actor.recv() as answers:
        for step in range(STEPS):
            first = step * BATCH
            actor.send(first)
            assert actor.recv() == "answered"
            rewards = service.verify(np.repeat(range(first, first + BATCH), GROUP), answers.copy_to_host().reshape(-1))
            rewards = np.array(rewards, dtype=np.float32).reshape(BATCH, GROUP)
            learn[(FEATURES // 16, 1), (16, ANSWERS)](prompts, first, weights, likely, answers, cuda.to_device(rewards))
            service.log(step, weights=np.abs(weights.copy_to_host()).sum(), reward=rewards.mean())
    return rewards.mean()


def main():
    seed = int(os.environ["JOB_SEED"])
    service = Service(f"seed{seed}")
    processes = multiprocessing.get_context("spawn")
    actor, its_end = processes.Pipe()
    process = processes.Process(target=act, args=(its_end, seed))
    process.start()
    prompts = cuda.to_device(make_prompts(np.random.default_rng(seed)))
    versions = cuda.to_device(np.zeros((2, FEATURES, ANSWERS), np.float32))
    weights = versions[1]
    actor.send(prompts.get_ipc_handle())
    actor.send(weights.get_ipc_handle())
    reward = train(actor, service, prompts, weights)
    actor.send(None)
    print("counts", *actor.recv())
    process.join()
    print("weights", digest(versions.copy_to_host()), "prompts", digest(prompts.copy_to_host()), "actor", process.exitcode)
    assert reward > 0.9, f"it has not learned: the mean reward is {reward}"


if __name__ == "__main__":
    main()
