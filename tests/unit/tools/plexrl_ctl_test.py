"""plexrl-ctl and plexrl-trace from the outside: output, complaints, exit codes; the manager is a fake one.

Usage: plexrl_ctl_test.py PLEXRL_CTL PLEXRL_TRACE [unittest arguments]
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

CTL, TRACE = sys.argv[1:3]
HANG_S = 600
JOBS = [{"id": "aa11", "name": "ppo", "state": "running", "gangs": [
            {"waits_for": "job 'eval': holder's process 8 is stopped", "stopped_pids": [9, 10]}]},
        {"id": "aa22", "name": "eval", "state": "idle", "gangs": []},
        {"id": "bb33", "name": "eval", "state": "idle", "gangs": []}]
MEMORY = [{"job": "aa11", "pid": 7, "gpu": 0, "kind": "alloc", "bytes": 1048576, "tier": "hbm", "pageable": "yes",
           "reason": None},
          {"job": "bb33", "pid": 8, "gpu": 0, "kind": "context", "bytes": 5, "tier": "hbm", "pageable": "no",
           "reason": "the driver's"}]
PROCESSES = [{"job": "aa11", "pid": 7, "gpu": 0, "driver_bytes": 3145728, "accounted_bytes": 2097152},
             {"job": "bb33", "pid": 8, "gpu": 0, "driver_bytes": None, "accounted_bytes": 5}]
HEAD = {"schema": 1, "simulated": True, "node": "n1"}
ANSWERS = {"status": {**HEAD, "manager": {"pid": 41, "generation": 3, "socket": "/run/nodemgr.sock",
                      "started_mono_ns": 7, "uptime_s": 1.5, "grants": 17, "journal_ok": False, "trace_lost_records": 0,
                      "host_budget_bytes": 4 << 30, "host_promised_bytes": 2 << 30, "host_used_bytes": 1 << 20,
                      "new_figure_bytes": 3072}, "gpus": [{"index": 0, "holder": "11" * 16, "queue": ["22" * 16, "33" * 16]}]}, "jobs": {**HEAD, "jobs": JOBS}, "gpus": {"error": "GPUs are asleep"},
           "memory": {**HEAD, "memory": MEMORY, "processes": PROCESSES},
           "usage": {**HEAD, "since": "2026-11-01T00:00:00Z", "until": "2026-11-02T00:00:00Z", "by": "user", "unwritten": None,
                     "usage": [{"user": "o,b", "jobs": 2, "held_gpu_s": 3600, "needed_gpu_s": 7200.5, "saved_gpu_s": 3600.5,
                                "slowdown_ratio": 1.04, "wait_s": 90}]},
           "explain": {**HEAD, "explain": {"id": "aa11", "name": "ppo", "text": "", "gangs": [
               {"id": "3", "state": "waiting", "gpus": [0], "text": "it waits for 'eval': quantum over",
                "decision": {"kind": "wait", "reason": "quantum over", "figures": {"switch_cost_ns": 4e7, "other_gang": 2}},
                "now": {"figures": {"load_bytes": 1 << 20, "response_ratio": 1.5}}}]}}}


class Case(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="plexrl-ctl-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.env = {**{name: value for name, value in os.environ.items() if not name.startswith("PLEXRL_")},
                    "PLEXRL_SOCKET": str(self.root / "nodemgr.sock"), "XDG_STATE_HOME": str(self.root / "state"),
                    "XDG_RUNTIME_DIR": str(self.root / "run")}

    def call(self, program, *arguments):
        done = subprocess.run([program, *arguments], env=self.env, capture_output=True, text=True, timeout=HANG_S)
        return done.returncode, done.stdout, done.stderr


class Ctl(Case):
    def serve(self, path=None):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path or self.root / "admin.sock"))
        listener.listen()

        def answer():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rw") as lines:
                    lines.write(json.dumps(ANSWERS[json.loads(lines.readline())["verb"]]) + "\n")
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()

        def stop():
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            listener.close()
        self.addCleanup(stop)

    def test_doctor_looks_at_the_machine_itself(self):
        self.env["PLEXRL_SIMGPU"] = f"name=doctor-{os.getpid()},memory=64MiB"
        status, out, err = self.call(CTL, "doctor", "--json")
        found = {finding["check"]: finding for finding in json.loads(out)["doctor"]}
        self.assertIn("simulated", found["driver"]["text"])
        self.assertEqual(found["GPU 0"]["state"], "ok")
        self.assertIn("none answers", found["manager"]["text"])
        wrong = [finding for finding in found.values() if finding["state"] == "problem"]
        self.assertEqual((status, err), (1 if wrong else 0, ""))
        self.serve()
        self.assertIn("answers", json.loads(self.call(CTL, "doctor", "--json")[1])["doctor"][-1]["text"])
        self.assertIn("CHECK", self.call(CTL, "doctor")[1])

    def test_json_is_the_answer_and_nothing_else(self):
        self.serve()
        status, out, err = self.call(CTL, "jobs", "--json")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(json.loads(out), ANSWERS["jobs"])

    def test_tables_say_that_the_gpu_is_simulated(self):
        self.serve()
        status, out, _ = self.call(CTL, "memory")
        self.assertEqual(status, 0)
        self.assertTrue(out.startswith("node n1 (simulated GPU)\n"), out)
        self.assertIn("1 MiB", out)
        self.assertIn("the driver's", out)
        self.assertRegex(out, "aa11 +7 +0 +3 MiB +2 MiB\n")

    def test_a_gpus_holder_and_queue_are_shown(self):
        self.serve()
        status, out, _ = self.call(CTL, "status")
        self.assertEqual(status, 0)
        self.assertRegex(out, "11111111 +22222222 33333333")

    def test_a_job_is_named_by_id_prefix_or_name(self):
        self.serve()
        for word in ("aa11", "aa1", "ppo"):
            status, out, _ = self.call(CTL, "memory", word, "--json")
            self.assertEqual(status, 0)
            for array in ("memory", "processes"):
                self.assertEqual([row["pid"] for row in json.loads(out)[array]], [7])
        status, out, err = self.call(CTL, "jobs", "eval")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("aa22 bb33", err)

    def test_the_managers_complaint_is_passed_on(self):
        self.serve()
        self.assertEqual(self.call(CTL, "gpus", "--json"), (1, "", "plexrl-ctl: GPUs are asleep\n"))

    def test_explain_tells_decisions_with_their_figures(self):
        self.serve()
        status, out, err = self.call(CTL, "explain", "ppo")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("gang 3 on GPU 0, waiting: it waits for 'eval': quantum over\n", out)
        self.assertIn("switch cost: 40.0 ms\n", out)
        self.assertIn("load: 1 MiB\n", out)
        self.assertIn("    response: 1.50x\n", out)
        self.assertNotIn("other gang", out)
        status, out, _ = self.call(CTL, "explain", "ppo", "--json")
        self.assertEqual(json.loads(out), ANSWERS["explain"])
        for arguments in (["explain"], ["priority", "ppo"], ["priority", "ppo", "101"], ["pause"]):
            self.assertEqual(self.call(CTL, *arguments)[0], 2, arguments)

    def test_usage_is_a_table_in_hours_or_csv_in_seconds(self):
        self.serve()
        status, out, err = self.call(CTL, "usage", "--by", "user")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("(simulated GPU)", out)
        self.assertIn("from 2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z\n", out)
        self.assertRegex(out, r"o,b +2 +1\.00 +2\.00 +1\.00 +50\.0 % +1\.04x +90\.0 s")
        status, out, _ = self.call(CTL, "usage", "--by", "user", "--csv")
        self.assertEqual(out, 'user,jobs,held_gpu_s,needed_gpu_s,saved_gpu_s,slowdown_ratio,wait_s\n"o,b",2,3600,7200.5,3600.5,1.04,90\n')

    def test_usage_refuses_what_is_no_time_and_no_owner(self):
        self.serve()
        for arguments, why in ((["--since", "soon"], "'soon' is no time"), (["--since", "7"], "is no time"),
                               (["--since", "2999-01-01"], "is yet to come"), (["--since", "30000d"], "is before 1970"),
                               (["--by", "gpu"], "gpu"), (["--csv", "--json"], "not both")):
            status, out, err = self.call(CTL, "usage", *arguments)
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertIn(why, err)
        for since in ("0s", "12h", "2026-11-01", "2026-11-01T08:00:00Z", "2026-11-01T08:00:00+01:00"):
            self.assertEqual(self.call(CTL, "usage", "--since", since)[0], 0, since)

    def test_no_manager_is_said_with_the_places_tried(self):
        status, out, err = self.call(CTL, "status")
        self.assertEqual((status, out), (1, ""))
        self.assertIn(str(self.root / "admin.sock"), err)

    def test_what_is_no_managers_socket_is_named_with_the_remedy(self):
        (self.root / "admin.sock").write_text("not a socket")
        status, out, err = self.call(CTL, "status")
        self.assertEqual((status, out), (1, ""))
        self.assertIn(f"{self.root}/admin.sock is not a node manager's socket: set PLEXRL_SOCKET", err)
        self.env["PLEXRL_SOCKET"] = "/" + "x" * 200 + "/nodemgr.sock"
        status, _, err = self.call(CTL, "status")
        self.assertEqual(status, 1)
        self.assertIn("x" * 200, err)
        self.assertIn("PLEXRL_SOCKET to a shorter one", err)

    def test_status_is_for_people(self):
        self.serve()
        status, out, _ = self.call(CTL, "status")
        self.assertEqual(status, 0)
        self.assertIn("manager      pid 41, up 1.50 s, 17 leases granted, generation 3\n", out)
        self.assertIn("host memory  1 MiB in use, 2 GiB promised, 4 GiB budget\n", out)
        self.assertIn("new figure: 3 KiB\n", out)
        self.assertNotIn("_", out.split("GPU ")[0])
        self.assertIn("journal      can't be written", out)

    def test_a_job_that_waits_for_a_stopped_one_says_so(self):
        self.serve()
        status, out, _ = self.call(CTL, "jobs", "ppo")
        self.assertEqual(status, 0)
        self.assertIn("waits: job 'eval': holder's process 8 is stopped; stopped: pid 9 10", out)

    def test_a_simulated_gpus_manager_is_found_by_itself_and_by_name(self):
        del self.env["PLEXRL_SOCKET"]
        folder = self.root / "run/plexrl/simgpu-x"
        folder.mkdir(parents=True)
        self.serve(folder / "admin.sock")
        if not os.path.exists("/run/plexrl/admin.sock"):
            self.assertEqual(self.call(CTL, "status")[0], 0)
        self.assertEqual(self.call(CTL, "status", "--simgpu=name=x")[0], 0)
        self.assertEqual(self.call(CTL, "status", "--simgpu=name=y")[0], 1)

    def test_wrong_usage_gives_2_and_the_nearest_verb(self):
        status, _, err = self.call(CTL, "statsu")
        self.assertEqual(status, 2)
        self.assertIn("did you mean status?", err)
        for arguments in ([], ["jobs", "a", "b"], ["gpus", "--colour"]):
            self.assertEqual(self.call(CTL, *arguments)[0], 2, arguments)

    def test_an_empty_job_is_wrong_usage_not_all_jobs(self):
        self.serve()
        for verb in ("jobs", "memory"):
            status, out, err = self.call(CTL, verb, "")
            self.assertEqual((status, out), (2, ""))
            self.assertIn("JOB is empty", err)

    def test_a_simulated_gpu_that_nobody_could_have_made_is_refused(self):
        status, out, err = self.call(CTL, "status", "--simgpu=bogus")
        self.assertEqual((status, out), (2, ""))
        self.assertRegex(err, "plexrl-ctl: --simgpu: .*bogus")
        self.env["PLEXRL_SIMGPU"] = "nmae=x"
        status, _, err = self.call(CTL, "status")
        self.assertEqual(status, 2)
        self.assertRegex(err, "plexrl-ctl: PLEXRL_SIMGPU: .*nmae")


class Trace(Case):
    def test_wrong_usage_gives_2(self):
        status, _, err = self.call(TRACE, "sumary")
        self.assertEqual(status, 2)
        self.assertIn("did you mean summary?", err)
        for arguments in ([], ["export"], ["export", "--format", "pdf"], ["timeline", "--from", "soon"],
                          ["timeline", "--width", "3"], ["why"], ["diff", "a"]):
            self.assertEqual(self.call(TRACE, *arguments)[0], 2, arguments)

    def test_no_trace_is_said_with_the_places_searched(self):
        status, out, err = self.call(TRACE, "summary")
        if os.path.isdir("/var/lib/plexrl"):
            self.skipTest("this machine has traces of a system's manager")
        self.assertEqual((status, out), (1, ""))
        self.assertIn(str(self.root / "state/plexrl/trace"), err)

    def test_a_window_past_the_end_is_a_failure_not_an_empty_frame(self):
        file = self.root / "000000.plxt"
        file.write_bytes(b"")
        for arguments in (["--from", "1h"], ["--from", "1h", "--json"], ["--from", "1h", "--to", "2h"]):
            status, out, err = self.call(TRACE, "timeline", *arguments, str(file))
            self.assertEqual((status, out), (1, ""))
            self.assertIn("--from 60m00s lies past the end of the trace", err)

    def test_a_moment_is_asked_for_with_its_job(self):
        file = self.root / "000000.plxt"
        file.write_bytes(b"")
        status, out, err = self.call(TRACE, "why", "ppo", str(file))
        self.assertEqual((status, out), (2, ""))
        self.assertIn("'ppo' is not JOB@TIME", err)
        status, out, err = self.call(TRACE, "why", "ppo@0s", str(file))
        self.assertEqual((status, out), (1, ""))
        self.assertIn("no job 'ppo'", err)

    def test_a_diff_needs_both_runs(self):
        file = self.root / "000000.plxt"
        file.write_bytes(b"")
        status, out, err = self.call(TRACE, "diff", str(file), str(self.root / "none"))
        self.assertEqual((status, out), (1, ""))
        self.assertIn("none", err)
        status, out, _ = self.call(TRACE, "diff", "--json", str(file), str(file))
        self.assertEqual((status, json.loads(out)["diff"]["jobs"]), (0, []))

    def test_a_report_is_a_file_or_says_why_not(self):
        file, page = self.root / "000000.plxt", self.root / "run.html"
        file.write_bytes(b"")
        self.assertEqual(self.call(TRACE, "report", "--output", str(page), str(file)), (0, "", ""))
        self.assertIn("<title>PlexRL trace</title>", page.read_text())
        status, _, err = self.call(TRACE, "report", "--output", str(self.root / "no/run.html"), str(file))
        self.assertEqual(status, 1)
        self.assertIn("no/run.html: No such file or directory", err)

    def test_what_is_no_trace_is_said_and_is_a_failure(self):
        file = self.root / "000000.plxt"
        file.write_bytes(b"this is not a trace")
        status, out, err = self.call(TRACE, "summary", "--json", str(file))
        self.assertEqual((status, out), (1, ""))
        self.assertIn("no frame begins at byte 0 of 19; read up to there", err)
        self.assertIn("nothing there is a trace", err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
