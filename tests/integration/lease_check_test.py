#!/usr/bin/env python3
"""The rules of lease_check.py, each with a hand-made trace and device log that break it and nothing else."""
import unittest

import lease_check

CHUNK = lease_check.CHUNK
A, MATE, B = 100, 101, 200  # pids: A and MATE are in gang 1, B in gang 2
PAGER, HASHER, OWN = 2, 3, 7  # streams


def piece(pid, kind, start, end, stream=OWN, size=0, gpu=0, name=""):
    return {"pid": pid, "gpu": gpu, "ctx": 1, "stream": stream, "kind": kind, "name": name, "bytes": size, "start_ns": start,
            "end_ns": end}


def state(gang, name, start, end):
    return {"job": f"job{gang}", "gang": gang, "state": name, "start_mono_ns": start, "end_mono_ns": end}


def window(kind, pid, gang, asked, start, end, told, size, outcome="done", gpus=(0,)):
    return {"kind": kind, "pid": pid, "gang": gang, "gpus": list(gpus), "outcome": outcome, "asked_mono_ns": asked,
            "start_mono_ns": start, "end_mono_ns": end, "told_mono_ns": told, "out_bytes": size if kind == "evict" else 0,
            "in_bytes": 0 if kind == "evict" else size}


def process(pid, gang, since=0):
    return {"pid": pid, "gangs": [{"gang": gang, "since_mono_ns": since}]}


class LeaseCheck(unittest.TestCase):
    """Gang 1 runs 0–100, leaves 105–130 (A's and MATE's memory), gang 2 loads 130–150 and runs to 200; gang 1 loads 205–230 and
    runs to 300."""

    def setUp(self):
        self.trace = {
            "processes": [process(A, "1"), process(MATE, "1"), process(B, "2")],
            "slices": [state("1", "running", 0, 90), state("1", "draining", 90, 100), state("1", "waiting", 100, 204),
                       state("2", "loading", 130, 150), state("2", "running", 150, 200), state("1", "loading", 204, 235),
                       state("1", "running", 235, 300)],
            "paging": [window("evict", A, "1", 105, 110, 120, 122, 2 * CHUNK), window("evict", MATE, "1", 105, 112, 126, 130, CHUNK),
                       window("load", A, "1", 204, 206, 220, 222, 2 * CHUNK), window("load", MATE, "1", 204, 207, 230, 232, CHUNK)]}
        self.work = [piece(A, "kernel", 10, 20), piece(MATE, "memset", 80, 99), piece(B, "kernel", 150, 190),
                     piece(A, "d2h", 111, 114, PAGER, CHUNK), piece(A, "d2h", 114, 119, PAGER, CHUNK),
                     piece(MATE, "d2h", 113, 126, PAGER, CHUNK), piece(A, "h2d", 206, 212, PAGER, CHUNK),
                     piece(A, "h2d", 212, 220, PAGER, CHUNK), piece(MATE, "h2d", 208, 229, PAGER, CHUNK),
                     piece(A, "h2d", 240, 250, OWN, CHUNK), piece(MATE, "d2h", 240, 250, OWN, CHUNK),
                     piece(A, "h2h", 105, 108)]

    def expect(self, *patterns):
        """Exactly so many violations, each of them of its kind."""
        found = list(lease_check.violations(self.trace, self.work))
        self.assertEqual(len(found), len(patterns), found)
        for line, pattern in zip(found, patterns):
            self.assertRegex(line, pattern)

    def test_all_is_well(self):
        self.expect()

    def test_hashes_and_fills_in_their_windows(self):
        hashed = {"stream": HASHER, "name": lease_check.HASH_KERNEL}
        self.work += [piece(A, "h2d", 110, 111, HASHER, 17408), piece(A, "memset", 111, 112, HASHER, 4),
                      piece(A, "kernel", 112, 113, **hashed), piece(A, "d2h", 113, 114, HASHER, 64),
                      piece(A, "memset", 206, 207, PAGER, CHUNK)]
        self.expect()

    def prefetched(self, start, end):
        """A chunk of A comes back in [start, end] instead of with its load."""
        self.trace["paging"][2] = window("load", A, "1", 204, 206, 220, 222, CHUNK)
        self.trace["paging"].append(window("prefetch", A, "1", start - 2, start, end, end + 2, CHUNK))
        self.work = [p for p in self.work if (p["pid"], p["start_ns"]) != (A, 206)] + [piece(A, "h2d", start, end, PAGER, CHUNK)]

    def test_a_prefetch_under_the_lease_of_another(self):
        self.prefetched(160, 170)
        self.expect()

    def test_a_prefetch_while_its_own_gang_runs(self):
        self.prefetched(260, 270)
        self.expect("its gang ran")

    def test_a_prefetch_that_an_eviction_calls_off(self):
        self.trace["paging"] += [window("prefetch", A, "1", 158, 160, 165, 169, CHUNK), window("evict", A, "1", 162, 166, 168, 170, CHUNK)]
        self.work += [piece(A, "h2d", 160, 164, PAGER, CHUNK), piece(A, "d2h", 166, 168, PAGER, CHUNK)]
        self.expect()

    def test_a_copy_in_after_the_prefetch(self):
        self.prefetched(160, 170)
        self.work.append(piece(A, "h2d", 171, 175, PAGER, CHUNK))
        self.expect("outside its windows")

    def test_a_hash_after_the_window(self):
        self.work.append(piece(A, "kernel", 119, 121, HASHER, name=lease_check.HASH_KERNEL))
        self.expect("hashed outside the evict windows")

    def test_a_hash_under_the_lease_of_another(self):
        self.work.append(piece(A, "kernel", 160, 161, HASHER, name=lease_check.HASH_KERNEL))
        self.expect("hashed outside the evict windows")

    def test_a_fill_under_the_lease_of_another(self):
        self.work.append(piece(A, "memset", 160, 161, 9, CHUNK))
        self.expect("outside its lease")

    def test_work_before_the_lease(self):
        self.work.append(piece(B, "kernel", 140, 145))
        self.expect("^outside its lease")

    def test_work_that_outlasts_the_lease(self):
        self.work.append(piece(B, "kernel", 190, 201))
        self.expect("^outside its lease")

    def test_work_of_a_stranger(self):
        self.work.append(piece(999, "kernel", 10, 20))
        self.expect("in no gang")

    def test_work_before_the_process_belonged_to_its_gang(self):
        self.trace["processes"][1] = process(MATE, "1", since=50)
        self.work.append(piece(MATE, "kernel", 10, 20))
        self.expect("^outside its lease")

    def test_work_in_the_lease_of_another_gang_of_the_job(self):
        self.trace["slices"].append(state("3", "running", 160, 180))
        self.work.append(piece(A, "kernel", 165, 170))
        self.expect("^outside its lease")

    def test_a_gang_that_was_united_goes_on(self):
        self.trace["processes"][2] = {"pid": B, "gangs": [{"gang": "2", "since_mono_ns": 0}, {"gang": "4", "since_mono_ns": 195}]}
        self.trace["slices"].append(state("4", "running", 160, 260))
        self.work.append(piece(B, "kernel", 160, 250))
        self.expect()

    def test_a_copy_out_before_its_window(self):
        self.trace["paging"][0]["start_mono_ns"] = 112
        self.expect("^the pager's copy outside its windows", "bytes were copied")

    def test_a_copy_out_after_its_window(self):
        self.work.append(piece(A, "d2h", 121, 123, PAGER, CHUNK))
        self.expect("^the pager's copy outside its windows")

    def test_a_copy_out_in_the_window_of_another_process(self):
        del self.trace["paging"][0]
        self.work[3:5] = [piece(A, "d2h", 113, 114, PAGER, CHUNK)]
        self.expect("^the pager's copy outside its windows")

    def test_a_copy_out_on_another_gpu(self):
        self.work[3]["gpu"] = 1
        self.expect("^the pager's copy outside its windows", "bytes were copied")

    def test_a_copy_in_after_its_window(self):
        self.work.append(piece(MATE, "h2d", 230, 231, PAGER, CHUNK))
        self.expect("^the pager's copy outside its windows")

    def test_a_copy_in_that_an_evict_window_does_not_allow(self):
        self.work.append(piece(A, "h2d", 111, 113, PAGER, CHUNK))
        self.expect("^the pager's copy outside its windows", "^not at rest", "^not at rest")

    def test_own_work_while_memory_leaves(self):
        self.trace["slices"][1] = state("1", "draining", 90, 115)
        self.trace["slices"][2] = state("1", "waiting", 115, 204)
        self.work.append(piece(A, "kernel", 95, 113))
        self.expect(*["^not at rest", "had a lease"] * 2)

    def test_work_of_a_mate_while_memory_leaves(self):
        # The mate has opened its gate again, as its lease says, while the rest of its gang still leaves.
        self.trace["slices"][2:2] = [state("1", "running", 124, 129)]
        self.trace["paging"][1] = window("evict", A, "1", 105, 120, 126, 130, CHUNK)
        self.work[5] = piece(A, "d2h", 121, 126, PAGER, CHUNK)
        self.work.append(piece(MATE, "kernel", 125, 128))
        self.expect("^not at rest", "had a lease")

    def test_a_lease_while_the_manager_awaits_an_answer(self):
        self.trace["paging"][1]["told_mono_ns"] = 210
        self.expect(*["^not at rest"] * 2, "had a lease")

    def test_a_load_without_a_lease(self):
        self.trace["slices"][5]["start_mono_ns"] = 210
        self.expect("had no lease", "had no lease")

    def test_bytes_that_nobody_copied(self):
        self.trace["paging"][2]["in_bytes"] = 3 * CHUNK
        self.expect("bytes were copied")

    def test_what_a_dead_process_copied_is_not_counted(self):
        self.trace["paging"][0].update(outcome="died", out_bytes=0)
        self.expect()

    def test_a_window_without_an_end_stays_open(self):
        self.trace["paging"][0].update(outcome="lost", end_mono_ns=None, out_bytes=0)
        self.work.append(piece(A, "d2h", 121, 140, PAGER, CHUNK))
        self.expect()

    def test_a_log_whose_last_line_was_cut_short(self):
        import pathlib
        import tempfile
        with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
            log.write('{"pid":1}\n{"pid":')
            log.flush()
            self.assertEqual(lease_check.read_device_log(pathlib.Path(log.name)), [{"pid": 1}])


if __name__ == "__main__":
    unittest.main()
