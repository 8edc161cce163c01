"""Trains a softmax policy with kernels of numba-cuda: shared memory, atomics, two streams with events, its random numbers, device
functions. Answers are sampled, a service verifies them, what was better than its group becomes more likely. Ends well only if it has
learned to answer."""
import os

import numpy as np
from numba import cuda, float32
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

from service import ANSWERS, Service, digest, right_answer

PROMPTS, FEATURES = 24576, 512  # 48 MiB of prompts stay on the GPU
BATCH, GROUP, STEPS, RATE = 32, 8, 14, 0.2
THREADS = 128


def make_prompts(random):
    """Each is noise with the mark of its answer in it."""
    marks = random.standard_normal((ANSWERS, FEATURES)).astype(np.float32)
    answers = [right_answer(prompt) for prompt in range(PROMPTS)]
    return marks[answers] + random.standard_normal((PROMPTS, FEATURES), dtype=np.float32)


@cuda.jit(device=True)
def pick(likely, uniform):
    """The answer at `uniform` of 1 along the probabilities."""
    answer = 0
    while answer < ANSWERS - 1 and uniform >= likely[answer]:
        uniform -= likely[answer]
        answer += 1
    return answer


@cuda.jit
def judge(prompts, first, weights, likely):
    """A block for each prompt: the probability of each answer."""
    sums = cuda.shared.array((ANSWERS, THREADS), float32)
    prompt, thread = cuda.blockIdx.x, cuda.threadIdx.x
    for answer in range(ANSWERS):
        total = float32(0)
        for feature in range(thread, FEATURES, THREADS):
            total += prompts[first + prompt, feature] * weights[feature, answer]
        sums[answer, thread] = total
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if thread < half:
            for answer in range(ANSWERS):
                sums[answer, thread] += sums[answer, thread + half]
        half //= 2
    cuda.syncthreads()
    if thread == 0:
        largest, total = sums[0, 0], float32(0)
        for answer in range(1, ANSWERS):
            largest = max(largest, sums[answer, 0])
        for answer in range(ANSWERS):
            likely[prompt, answer] = cuda.libdevice.expf(sums[answer, 0] - largest)
            total += likely[prompt, answer]
        for answer in range(ANSWERS):
            likely[prompt, answer] /= total


@cuda.jit
def sample(likely, states, answers, counts):
    """A thread for each answer of each prompt; `counts`: how often each answer was given."""
    i = cuda.grid(1)
    if i < answers.size:
        answer = pick(likely[i // GROUP], xoroshiro128p_uniform_float32(states, i))
        answers[i // GROUP, i % GROUP] = answer
        cuda.atomic.add(counts, answer, 1)


@cuda.jit
def learn(prompts, first, weights, likely, answers, rewards):
    """A thread for each weight."""
    feature, answer = cuda.grid(2)
    if feature < FEATURES and answer < ANSWERS:
        gradient = float32(0)
        for prompt in range(BATCH):
            mean = float32(0)
            for member in range(GROUP):
                mean += rewards[prompt, member] / float32(GROUP)
            pull = float32(0)
            for member in range(GROUP):
                hit = float32(1) if answers[prompt, member] == answer else float32(0)
                pull += (rewards[prompt, member] - mean) * (hit - likely[prompt, answer])
            gradient += pull * prompts[first + prompt, feature]
        weights[feature, answer] += float32(RATE) * gradient / float32(BATCH * GROUP)


def main():
    seed = int(os.environ["JOB_SEED"])
    service = Service(f"seed{seed}")
    copies, kernels = cuda.stream(), cuda.stream()
    prompts = cuda.to_device(make_prompts(np.random.default_rng(seed)), stream=copies)
    weights = cuda.to_device(np.zeros((FEATURES, ANSWERS), np.float32), stream=copies)
    counts = cuda.to_device(np.zeros(ANSWERS, np.int32), stream=copies)
    copied = cuda.event(timing=False)
    copied.record(copies)
    copied.wait(kernels)
    likely = cuda.device_array((BATCH, ANSWERS), np.float32)
    answers = cuda.device_array((BATCH, GROUP), np.int32)
    states = create_xoroshiro128p_states(BATCH * GROUP, seed=seed, stream=kernels)
    said = cuda.pinned_array((BATCH, GROUP), np.int32)
    for step in range(STEPS):
        first = step * BATCH
        judge[BATCH, THREADS, kernels](prompts, first, weights, likely)
        sample[2, THREADS, kernels](likely, states, answers, counts)
        answers.copy_to_host(said, stream=kernels)
        kernels.synchronize()
        rewards = service.verify(np.repeat(range(first, first + BATCH), GROUP), said.reshape(-1))
        rewards = np.array(rewards, dtype=np.float32).reshape(BATCH, GROUP)
        learn[(FEATURES // 16, 1), (16, ANSWERS), kernels](prompts, first, weights, likely, answers,
                                                           cuda.to_device(rewards, stream=kernels))
        service.log(step, weights=np.abs(weights.copy_to_host(stream=kernels)).sum(), reward=rewards.mean())
    print("weights", digest(weights.copy_to_host()), "counts", *counts.copy_to_host())
    print("prompts", digest(prompts.copy_to_host()))
    assert rewards.mean() > 0.9, f"it has not learned: the mean reward is {rewards.mean()}"


if __name__ == "__main__":
    main()
