"""Group-relative policy optimisation of a small random transformer: it samples answers, waits for their rewards without work for the
GPU, and learns from how each answer did within its group. Prints loss and reward of each step and a digest of the last weights."""
import copy

import torch
from torch import nn

from job import Job, print_loss

VOCABULARY, WIDTH, HEADS, LAYERS = 32, 64, 2, 2
PROMPT, ANSWER = 4, 8  # tokens
PROMPTS, GROUP, EPOCHS = 4, 8, 2
CLIP, KL_WEIGHT = 0.2, 0.02


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed(self.between(x))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Parameter(0.02 * torch.randn(PROMPT + ANSWER, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, tokens):
        return self.head(self.blocks(self.token(tokens) + self.place[: tokens.shape[1]]))


def log_probabilities(policy, tokens):
    """Of each token of the answers."""
    logits = policy(tokens[:, :-1])[:, PROMPT - 1 :]
    chosen = tokens[:, PROMPT:, None] == torch.arange(VOCABULARY, device=tokens.device)
    return (logits.log_softmax(-1) * chosen).sum(-1)


@torch.no_grad()
def sample(policy, prompts, generator):
    tokens = prompts
    for _ in range(ANSWER):
        probabilities = policy(tokens)[:, -1].softmax(-1)
        noise = torch.empty_like(probabilities).exponential_(generator=generator)
        tokens = torch.cat([tokens, (probabilities / noise).argmax(-1, keepdim=True)], 1)
    return tokens


def rewards(tokens):
    """Judged on the host: the share of an answer's tokens that are multiples of four."""
    return [sum(token % 4 == 0 for token in row[PROMPT:]) / ANSWER for row in tokens.tolist()]


def advantages(reward):
    groups = reward.view(PROMPTS, GROUP)
    centred = groups - groups.mean(1, keepdim=True)
    return (centred / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)


def learn(policy, reference, optimizer, tokens, advantage):
    with torch.no_grad():
        old, fixed = log_probabilities(policy, tokens), log_probabilities(reference, tokens)
    for _ in range(EPOCHS):
        new = log_probabilities(policy, tokens)
        ratio = (new - old).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        divergence = (fixed - new).exp() - (fixed - new) - 1
        loss = (KL_WEIGHT * divergence - gain).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return loss.detach()


def main():
    job = Job(__doc__)
    policy = Policy().to(job.device)
    reference = copy.deepcopy(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    generator = job.generator(0)
    for step in job.rounds():
        prompts = torch.randint(VOCABULARY, (PROMPTS, PROMPT), generator=generator, device=job.device).repeat_interleave(GROUP, 0)
        tokens = sample(policy, prompts, generator)
        job.pause()  # the rollout's long tail, and the judge
        reward = torch.tensor(rewards(tokens.cpu()), device=job.device)
        loss = learn(policy, reference, optimizer, tokens, advantages(reward))
        print_loss(step, loss)
        print(f"reward {step}: {float(reward.mean()):.4f}")
    job.finish(weights=policy.parameters())


if __name__ == "__main__":
    main()
