#!/usr/bin/env python3
"""Starts ranks on this machine as torchrun does, where there is no PyTorch: the environment that its documentation names, one process a
rank, and the end of all when one fails.

usage: torchrun_stand_in.py [--standalone] --nproc-per-node N SCRIPT [ARGUMENT…]
"""
import argparse
import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--nproc-per-node", "--nproc_per_node", type=int, default=1)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    port, ranks = free_port(), []
    for rank in range(options.nproc_per_node):
        its = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(options.nproc_per_node),
                   LOCAL_WORLD_SIZE=str(options.nproc_per_node), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        ranks.append(subprocess.Popen([sys.executable, "-u", options.script, *options.arguments], env=its))
    left = list(ranks)
    while left:
        pid, status = os.wait()
        ended = next(rank for rank in ranks if rank.pid == pid)
        ended.returncode = os.waitstatus_to_exitcode(status)
        left.remove(ended)
        if ended.returncode != 0:
            for rank in left:
                rank.terminate()
    return 1 if any(rank.returncode for rank in ranks) else 0


if __name__ == "__main__":
    sys.exit(main())
