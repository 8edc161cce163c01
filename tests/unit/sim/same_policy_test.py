"""plexrl-sim runs the policy that the daemon runs: the same functions of the same size from the same
library, and no copy of one in the simulator's own libraries."""

import argparse
import subprocess

NAMESPACE = "plexrl::nodemgr::policy::"
NEEDED = ["step(", "apply(", "judge_withdrawal(", "waiting_in_order(", "make_room(", "switch_cost("]


def functions(nm, path, kinds):
    out = subprocess.run([nm, "-S", "--defined-only", "-C", path], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in out.splitlines():
        parts = line.split(None, 3)
        # An implicit destructor is inline: the compiler makes what suits each user of it. So is a template of the standard
        # library, which begins with the policy's name where it returns one of its types.
        if (len(parts) == 4 and parts[2] in kinds and parts[3].startswith(NAMESPACE) and "::~" not in parts[3]
                and " std::" not in parts[3].split("(")[0]):
            found.setdefault(parts[3], []).append(int(parts[1], 16))
    return {name: sorted(sizes) for name, sizes in found.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--sim", required=True)
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--no-copy", nargs="+", required=True)
    args = parser.parse_args()

    # In programs hidden functions are local ("t"). Inline ones ("W") belong to every user.
    sim = functions(args.nm, args.sim, "tT")
    daemon = functions(args.nm, args.daemon, "tT")
    for needed in NEEDED:
        assert any(name.startswith(NAMESPACE + needed) for name in sim), f"plexrl-sim lacks {needed}"
    # Object files that only the daemon needs (names of phases and decisions) are not linked into the simulator.
    differ = [name for name in sim if sim[name] != daemon.get(name)]
    assert not differ, f"differ: {differ}"
    for library in args.no_copy:
        copies = functions(args.nm, library, "T")
        assert not copies, f"{library} defines {sorted(copies)}"
    print(f"{len(sim)} functions of the policy, the same in both")


if __name__ == "__main__":
    main()
