"""Trains a policy on tinygrad by group-relative policy gradients: answers are sampled, a service verifies them, what was better than its
group becomes more likely. Ends well only if it has learned to answer."""
import os

import numpy as np
from tinygrad import Context, Device, Tensor, TinyJit, nn

from service import ANSWERS, Service, digest, right_answer

PROMPTS, FEATURES, HIDDEN = 24576, 512, 64  # 48 MiB of prompts stay on the GPU
BATCH, GROUP, STEPS = 32, 8, 14


def make_prompts(random):
    """Each is noise with the mark of its answer in it."""
    marks = random.standard_normal((ANSWERS, FEATURES)).astype(np.float32)
    answers = [right_answer(prompt) for prompt in range(PROMPTS)]
    return marks[answers] + random.standard_normal((PROMPTS, FEATURES), dtype=np.float32)


class Policy:
    def __init__(self):
        self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, ANSWERS)

    def __call__(self, prompts):
        return self.last(self.first(prompts).relu()).log_softmax()


def main():
    assert Device.DEFAULT == "CUDA"
    seed = int(os.environ["JOB_SEED"])
    service = Service(f"seed{seed}")
    Tensor.manual_seed(seed)
    prompts = Tensor(make_prompts(np.random.default_rng(seed))).realize()
    policy = Policy()
    optimizer = nn.optim.Adam(nn.state.get_parameters(policy), lr=0.002)

    @TinyJit
    def sample(batch):
        logits = policy(batch).unsqueeze(1).expand(BATCH, GROUP, ANSWERS)
        gumbel = -(-Tensor.rand(BATCH, GROUP, ANSWERS).maximum(1e-9).log()).log()
        return (logits + gumbel).argmax(-1).realize()

    @TinyJit
    def learn(batch, answers, rewards):
        optimizer.zero_grad()
        likely = policy(batch).unsqueeze(1).expand(BATCH, GROUP, ANSWERS)
        likely = (likely * answers.one_hot(ANSWERS)).sum(-1)
        advantages = rewards - rewards.mean(-1, keepdim=True)
        loss = -(advantages * likely).mean()
        loss.backward()
        return loss.realize(*optimizer.schedule_step())

    rewards = np.zeros((BATCH, GROUP))
    for step in range(STEPS):
        which = range(step * BATCH, (step + 1) * BATCH)
        batch = prompts[which.start:which.stop].clone().realize()  # a view would not do: TinyJit takes the whole buffer
        answers = sample(batch).numpy()
        rewards = service.verify(np.repeat(which, GROUP), answers.reshape(-1))
        rewards = np.array(rewards, dtype=np.float32).reshape(BATCH, GROUP)
        with Context(TRAINING=1):
            loss = learn(batch, Tensor(answers).realize(), Tensor(rewards).realize())
        service.log(step, loss=loss.item(), reward=rewards.mean())
    print("weights", digest(*(weights.numpy() for weights in nn.state.get_parameters(policy))))
    print("prompts", digest(prompts.numpy()))
    assert rewards.mean() > 0.9, f"it has not learned: the mean reward is {rewards.mean()}"


main()
