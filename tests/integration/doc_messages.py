#!/usr/bin/env python3
"""docs/troubleshooting.md against the sources: each message that the page quotes is one that a program prints, and each that asks the user
to do something, of those that a job or its plexrl-run may meet, is on the page.

usage: doc_messages.py [ROOT]
"""
import pathlib
import re
import sys

LITERAL = r'"(?:[^"\\\n]|\\.)*"'
PROGRAMS = ("shim", "nodemgr", "tools/run", "tools/ctl", "tools/cli", "tools/trace", "tools/cluster", "clustermgr", "tools/simgpu")
# Whose messages come to somebody who starts a job; what is wrong with an option is told with the option, and needs no page.
MET_BY_USERS = ("shim/*.cc", "tools/run/*.cc", "nodemgr/admission.cc", "nodemgr/ledger.cc", "nodemgr/quotas.cc", "nodemgr/gpu_watch.cc",
                "nodemgr/checkpoints*.cc", "nodemgr/gpu_lock.cc",
                "tools/ctl/admin_client.cc")
LEFT_OUT = ("options.cc", "settings.cc")
ASKS = re.compile(r"(?:[:;,] |^)(?:or |and |be part |so )?(?:raise|lower|start|give|set|ask|install|unset|wait for|put|make room|name|end the) ")
LEAST = 12  # letters of a piece that tell which message it is


def literals(path):
    """The strings of a source file, those that the compiler joins joined."""
    lines = ["" if re.match(r"\s*(//|#include)", line) else line for line in path.read_text().splitlines()]
    for found in re.finditer(rf"{LITERAL}(?:\s*{LITERAL})*", "\n".join(lines)):
        yield "".join(part[1:-1] for part in re.findall(LITERAL, found.group())).replace('\\"', '"')


def quoted(page):
    """The messages in the first column of its tables: lists of pieces, between which stands what differs each time."""
    for line in page.read_text().splitlines():
        first = re.match(r"\| (`.*?`) \|", line)
        if first:
            for message in re.findall(r"`([^`]+)`", first.group(1)):
                yield message, [piece.strip() for piece in message.split("…") if piece.strip()]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    messages = list(quoted(root / "docs/troubleshooting.md"))
    printed = [text for program in PROGRAMS for path in sorted((root / program).rglob("*.cc")) for text in literals(path)]
    wrong = [f"no program prints '{piece}' of '{message}'" for message, pieces in messages for piece in pieces
             if not any(piece in text for text in printed)]
    pieces = [piece for _, its in messages for piece in its if len(piece) >= LEAST]
    for pattern in MET_BY_USERS:
        for path in sorted(root.glob(pattern)):
            if path.name in LEFT_OUT:
                continue
            for text in literals(path):
                if ASKS.search(text) and not any(piece in text for piece in pieces):
                    wrong.append(f"{path.relative_to(root)} asks for something that the page does not have: '{text}'")
    if len(messages) < 20:
        wrong.append(f"only {len(messages)} messages were found on the page")
    print("\n".join(wrong) or f"{len(messages)} messages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
