#!/usr/bin/env python3
"""What an administrator sets and says, with a real node manager, plexrl-run and plexrl-ctl. Exit 0 passed, 1 failed.

teams: who is no member of a team is refused before the command runs; `plexrl-ctl reload` takes the teams of the file as it is then,
and a bad file changes nothing.
quotas: two teams share a GPU; the one with a quota is refused or waits by its figures, the other never for it; a smaller quota breaks no
promise, and plexrl-ctl limits sets another one, which a restart of the manager does not lose.
hold: a job that is held has its GPU alone, also while it is idle; another waits until that ends.
usage: GPU time held and saved is booked by job, user and team, over restarts of the manager.
pause: a paused job gives its GPU back and does no work until it is resumed; priority, drain and undrain beside it.
"""
import os
import pwd
import subprocess
import sys

from sandbox import Failure, run_case, wait_until

ME = pwd.getpwuid(os.getuid()).pw_name


def expect(what, seen, wanted):
    if seen != wanted:
        raise Failure(f"{what}: {seen!r}, not {wanted!r}")


def expect_in(what, text, part):
    if part not in text:
        raise Failure(f"{what}: nothing of {part!r} in {text!r}")


def write_settings(sandbox, text):
    file = sandbox.folder / "nodemgr.toml"
    file.write_text(text)
    return file


def ctl(sandbox, *arguments):
    done = subprocess.run([str(sandbox.prefix / "bin/plexrl-ctl"), *arguments], env=sandbox.environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stdout, done.stderr


def refused(sandbox, name, *options):
    """What plexrl-run says of a job that must not run."""
    marker = sandbox.folder / f"{name}.ran"
    sandbox.wait(sandbox.shared(["touch", marker], name, options), expected=125)
    if marker.exists():
        raise Failure(f"{name} was refused, and its command ran")
    return sandbox.errors(name)


def teams(sandbox):
    file = write_settings(sandbox, "[[team]]\nname = 'theirs'\nmembers = ['nobody-here']\n"
                                   f"[[team]]\nname = 'ours'\nweight = 3\nmembers = ['{ME}']\npriority_max = 60\n")
    sandbox.start_manager(PLEXRL_CONFIG=file)
    expect_in("a team of others", refused(sandbox, "a", "--team", "theirs"), f"user '{ME}' is no member of team 'theirs'")
    expect_in("no team", refused(sandbox, "b", "--team", "our"), "this node has no team 'our', did you mean 'ours'?")
    expect_in("priority", refused(sandbox, "c", "--team", "ours", "--priority", "61"), "give --priority 60 or less")
    sandbox.wait(sandbox.shared(["true"], "d", ["--team", "ours", "--priority", "60"]))

    def weights():
        return {team["name"]: team["weight"] for team in sandbox.tool("plexrl-ctl", "limits", "--json")["teams"]}

    expect("weights", weights(), {"theirs": 1, "ours": 3})
    write_settings(sandbox, "[[team]]\nname = 'ours'\nweight = 'much'\n")
    status, out, err = ctl(sandbox, "reload")
    expect("reload of a bad file", (status, out), (1, ""))
    expect_in("reload of a bad file", err, f"{file}:3: weight is not a number")
    expect("weights after a bad file", weights(), {"theirs": 1, "ours": 3})
    write_settings(sandbox, "[[team]]\nname = 'theirs'\n[[team]]\nname = 'ours'\nweight = 5\n")
    expect("reload", ctl(sandbox, "reload"), (0, "done\n", ""))
    expect("weights", weights(), {"theirs": 1, "ours": 5})
    sandbox.wait(sandbox.shared(["true"], "e", ["--team", "theirs"]))
    return "who is no member is refused, and a reload takes the file's teams or none of them"


def quotas(sandbox):
    programs = sandbox.build / "tests/integration/programs"

    def settings(hbm, host):
        return write_settings(sandbox, f"[[team]]\nname = 'small'\nhbm = '{hbm}'\nhost = '{host}'\n[[team]]\nname = 'large'\n")

    def small():
        return next(team for team in sandbox.tool("plexrl-ctl", "limits", "--json")["teams"] if team["name"] == "small")

    def job(name):
        return next((job for job in sandbox.ask_manager("jobs")["jobs"] if job["name"] == name), None)

    def options(team, memory):
        return ["--team", team, "--memory", memory]

    config = settings("64MiB", "96MiB")
    sandbox.start_manager(PLEXRL_CONFIG=config)
    expect_in("HBM", refused(sandbox, "big", *options("small", "66MiB")), "team 'small' may be promised 64MiB of HBM")
    half = sandbox.shared([programs / "half_busy"], "half", options("small", "64MiB"), PLEXRL_TEST_PEER=sandbox.peer_file)
    wait_until(lambda: sandbox.peer()["pauses"] == 1, "the program's pause", half)
    text = refused(sandbox, "second", *options("small", "64MiB"), "--no-wait")
    expect_in("host memory", text, "team 'small' may have 96MiB of host memory")
    expect_in("host memory", text, "it would be 128MiB")
    expect_in("who may give more", text, "plexrl-ctl limits --team small --host SIZE")
    waiting = sandbox.shared([programs / "memset_kinds"], "waiting", options("small", "64MiB"))
    wait_until(lambda: (job("waiting") or {}).get("state") == "queued", "the second job of the team in the queue", waiting)
    sandbox.wait(sandbox.shared([programs / "memset_kinds"], "other", options("large", "128MiB")))
    expect_in("explain", ctl(sandbox, "explain", "waiting")[1], "it is not admitted: team 'small' may have 96MiB of host memory")
    expect_in("explain", ctl(sandbox, "explain", "half")[1],
              "quota: team 'small' may be promised 64MiB of HBM; its jobs have been promised 64MiB")
    expect("what was promised", (small()["hbm_promised_bytes"], small()["promised_bytes"]), (64 << 20, 64 << 20))

    settings("32MiB", "96MiB")
    expect("reload", ctl(sandbox, "reload"), (0, "done\n", ""))
    sandbox.wait(waiting, expected=125)
    expect_in("who waited", sandbox.errors("waiting"), "will never fit")
    expect("the promise of before", job("half")["promised_bytes"], 64 << 20)
    expect_in("who is new", refused(sandbox, "new", *options("small", "16MiB"), "--no-wait"), "its jobs have been promised 64MiB")

    for wrong in (["--team", "small"], ["--hbm", "1GiB"], ["--team", "small", "--each-job", "--hbm", "1GiB"],
                  ["--team", "small", "--hbm", "much"]):
        expect("wrong usage", ctl(sandbox, "limits", *wrong)[0], 2)
    status, out, err = ctl(sandbox, "limits", "--team", "smal", "--hbm", "1GiB")
    expect("a team that is not there", (status, out), (1, ""))
    expect_in("a team that is not there", err, "did you mean 'small'?")
    status, out, err = ctl(sandbox, "limits", "--team", "small", "--hbm", "128MiB", "--host", "none")
    expect("limits", (status, err), (0, ""))
    expect_in("limits", out, "128 MiB*")
    late = sandbox.shared([programs / "memset_kinds"], "late", options("small", "64MiB"))
    sandbox.wait(late)
    sandbox.stop_antagonist()
    sandbox.wait(half)
    sandbox.stop_manager()
    sandbox.start_manager("again", PLEXRL_CONFIG=config)
    expect("limits of the next manager", (small()["hbm_bytes"], small()["host_bytes"], small()["changed"]),
           (128 << 20, None, ["hbm", "host"]))
    expect("taken back", ctl(sandbox, "limits", "--team", "small", "--hbm", "file", "--host", "file")[0], 0)
    expect("limits of the file", (small()["hbm_bytes"], small()["changed"]), (32 << 20, []))
    expect("each job", ctl(sandbox, "limits", "--each-job", "--hbm", "100MiB")[0], 0)
    expect_in("each job", refused(sandbox, "huge", *options("large", "102MiB")), "a job may be promised 100MiB of HBM")
    return "a team's quota held for its jobs and for nobody else, and an administrator changed it"


def pause(sandbox):
    sandbox.start_manager()
    program = sandbox.shared([sandbox.build / "tests/integration/programs/half_busy"], "half", PLEXRL_TEST_PEER=sandbox.peer_file)
    wait_until(lambda: sandbox.peer()["pauses"] == 1, "the program's pause", program)

    def job():
        return sandbox.tool("plexrl-ctl", "jobs", "half", "--json")["jobs"][0]

    status, out, err = ctl(sandbox, "pause", "half")
    expect("pause", (status, err), (0, ""))
    wait_until(lambda: job()["state"] == "paused", "the job paused", program)
    sandbox.stop_antagonist()  # the word to go on: the program comes to the gate
    wait_until(lambda: "plexrl-ctl resume" in ctl(sandbox, "explain", "half")[1], "explain tells of the pause", program)
    expect("priority", ctl(sandbox, "priority", "half", "101")[0], 2)
    expect("priority", ctl(sandbox, "priority", "half", "77")[0], 0)
    expect("priority of the job", job()["priority"], 77)
    expect("a job that is not there", ctl(sandbox, "resume", "haf")[0], 1)
    expect("drain", ctl(sandbox, "drain"), (0, "done\n", ""))
    expect_in("drained", refused(sandbox, "late", "--no-wait"), "being drained")
    expect("undrain", ctl(sandbox, "undrain"), (0, "done\n", ""))
    if program.poll() is not None:
        raise Failure("the program ended, though its job was paused and it had work left")
    expect("resume", ctl(sandbox, "resume", "half")[0], 0)
    sandbox.wait(program)
    sandbox.stop_manager()
    trace = sandbox.trace("export", "--format", "json")
    times = next(one for one in trace["summary"]["jobs"] if one["name"] == "half")
    if not times["paused_s"] > 0:
        raise Failure(f"the trace has no time of the pause: {times}")
    kinds = [decision["kind"] for decision in trace["decisions"] if decision["kind"] in ("pause", "resume", "priority")]
    expect("decisions", kinds, ["pause", "priority", "resume"])
    return f"the job was paused for {times['paused_s']:.3f} s and then went on"


def hold(sandbox):
    programs = sandbox.build / "tests/integration/programs"
    sandbox.start_manager()
    half = sandbox.shared([programs / "half_busy"], "half", PLEXRL_TEST_PEER=sandbox.peer_file)
    wait_until(lambda: sandbox.peer()["pauses"] == 1, "the program's pause", half)
    for wrong in ([], ["--exclusive", "long"], ["--exclusive", "10"]):
        expect("wrong usage", ctl(sandbox, "hold", "half", *wrong)[0], 2)
    expect("hold", ctl(sandbox, "hold", "half", "--exclusive", "1h")[::2], (0, ""))
    other = sandbox.shared([programs / "memset_kinds"], "other")
    wait_until(lambda: "keeps the GPU for another job" in ctl(sandbox, "explain", "other")[1], "the other job kept off", other)
    job, = sandbox.tool("plexrl-ctl", "jobs", "half", "--json")["jobs"]
    if not 0 < job["alone_s"] <= 3600:
        raise Failure(f"held for {job['alone_s']} s")
    if other.poll() is not None:
        raise Failure("the other job ended, though the GPU was kept for this one")
    expect("the end of it", ctl(sandbox, "hold", "half", "--exclusive", "0")[::2], (0, ""))
    sandbox.wait(other)
    sandbox.stop_antagonist()
    sandbox.wait(half)
    sandbox.stop_manager()
    kinds = [decision["kind"] for decision in sandbox.trace("export", "--format", "json")["decisions"]]
    expect("decisions of an administrator", kinds.count("hold"), 2)
    return "while an administrator kept a job's GPU for it, another job waited for it"


def usage(sandbox):
    def booked(by, *options):
        return sandbox.tool("plexrl-ctl", "usage", "--by", by, *options, "--json")["usage"]

    programs = sandbox.build / "tests/integration/programs"
    sandbox.start_manager()
    half = sandbox.shared([programs / "half_busy"], "half", PLEXRL_TEST_PEER=sandbox.peer_file)
    wait_until(lambda: sandbox.peer()["pauses"] == 1, "the program's pause", half)
    sandbox.wait(sandbox.shared([programs / "memset_kinds"], "other"))
    rows = {row["name"]: row for row in booked("job")}
    expect("who has used the GPU", sorted(rows), ["half", "other"])
    for row in rows.values():
        if not (row["held_gpu_s"] > 0 and row["slowdown_ratio"] >= 1):
            raise Failure(f"no figures: {row}")
    if not rows["half"]["saved_gpu_s"] > 0:
        raise Failure(f"the other job had the GPU while this one was idle, and nothing was saved: {rows['half']}")
    sandbox.stop_antagonist()
    sandbox.wait(half)
    sandbox.stop_manager()

    sandbox.start_manager()
    after = {row["name"]: row for row in booked("job")}
    expect("jobs after a restart", sorted(after), ["half", "other"])
    for name, row in rows.items():
        if after[name]["held_gpu_s"] < row["held_gpu_s"]:
            raise Failure(f"before the restart: {row}, after it: {after[name]}")
    sandbox.wait(sandbox.shared([programs / "memset_kinds"], "again"))
    mine, = booked("user")
    expect("user and jobs", (mine["user"], mine["jobs"]), (ME, 3))
    status, out, err = ctl(sandbox, "usage", "--by", "job", "--csv")
    expect("lines of CSV", (status, len(out.splitlines()), err), (0, 4, ""))
    sandbox.stop_manager()

    (sandbox.state / "accounts.sqlite").write_text("x" * 9000)
    sandbox.start_manager()
    status, out, err = ctl(sandbox, "usage")
    expect("usage of a damaged file", (status, out), (1, ""))
    expect_in("usage of a damaged file", err, "move it away")
    sandbox.wait(sandbox.shared([programs / "memset_kinds"], "last"))
    return "what jobs held is booked over restarts, and a damaged file hinders no job"


CASES = {"teams": teams, "quotas": quotas, "pause": pause, "hold": hold, "usage": usage}


sys.exit(run_case(__doc__, CASES, "link=4GB/s,hbm=40GB/s,ctx=4MiB"))
