#!/usr/bin/env python3
"""Two RL jobs share a simulated GPU; the page of `plexrl-trace report` is opened in a real browser, read and clicked. It must ask for
nothing but itself and say what `plexrl-trace summary` says. Leaves a picture in BUILD/compat-results. Exit 0 passed, 1 failed, 77 skipped.
"""
import argparse
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]
import browser  # noqa: E402
import two_jobs  # noqa: E402
from sandbox import SKIPPED, Failure, Sandbox  # noqa: E402

CELL = "document.querySelector('#{} tbody tr:nth-child({}) td:nth-child({})').textContent"
# The middle of the first slice that is busy on the first row, a GPU's, in CSS pixels of the window.
BUSY_SLICE = """(() => {
  const [start, length] = data.rows[0].slices.find(slice => data.texts[slice[2]] === "running");
  const box = document.getElementById("timeline").getBoundingClientRect();
  const x = LABELS + (start + length / 2 - from) / (to - from) * (box.width - LABELS);
  return [box.x + x, box.y + SCALE + ROW / 2, start, length];
})()"""
PAINTED = """(id => {
  const canvas = document.getElementById(id);
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
})('{}')"""


def expect(what, got, wanted):
    if got != wanted:
        raise Failure(f"{what}: {got!r}, not {wanted!r}")


def check(holds, what):
    if not holds:
        raise Failure(what)


def column(page, table, number):
    return page.value(f"[...document.querySelectorAll('#{table} tbody tr')].map(row => row.cells[{number - 1}].textContent)")


def check_texts(page, summary):
    check("simulated GPU" in page.value("document.getElementById('about').textContent"), "the page hides that the GPU is simulated")
    expect("the jobs", column(page, "jobs", 1), [job["name"] for job in summary["jobs"]])
    swaps = sum(gpu["swaps"] for gpu in summary["gpus"])
    expect("the switches", page.value(CELL.format("gpus", 1, 6)), str(swaps))
    expect("the lines of switches", len(column(page, "swaps", 1)), swaps)
    check(len(column(page, "causes", 1)) >= len(two_jobs.SEEDS), "a job's idle time has no cause, not even an unknown one")


def check_sorting(page, summary):
    busy = sorted((job["busy_s"], job["name"]) for job in summary["jobs"])
    names = [name for _, name in busy]
    page.click_on("#jobs th:nth-child(4)")
    expect("the jobs by busy time", column(page, "jobs", 1), names[::-1])
    page.click_on("#jobs th:nth-child(4)")
    expect("the jobs by busy time, clicked twice", column(page, "jobs", 1), names)


def check_timeline(page):
    for canvas in ("timeline", "duty"):
        check(page.value(PAINTED.replace("{}", canvas)) >= 4, f"the canvas '{canvas}' is not painted")
    page.click_on("#closer")
    expect("the window, zoomed", page.value("to - from"), page.value("whole / 2"))
    page.click_on("#all")
    expect("the window, all of it", page.value("[from, to]"), [0, page.value("whole")])
    x, y, start, length = page.value(BUSY_SLICE)
    page.click(x, y)
    begin, end = page.value("[from, to]")
    check(begin <= start and end >= start + length and end - begin < 1.3 * length + 1000,
          f"a click on the slice {start}+{length} shows {begin} to {end}")
    page.click_on("#all")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True, type=pathlib.Path, help="the build folder")
    options = parser.parse_args()
    with Sandbox(options.build, memory="128MiB", spec="link=4GB/s,hbm=40GB/s,ctx=4MiB") as sandbox:
        try:
            page = browser.Browser(sandbox.folder / "browser")
        except FileNotFoundError as error:
            print(f"skipped: {error}: install the Debian package chromium")
            return SKIPPED
        try:
            two_jobs.run(sandbox)
            file = sandbox.folder / "report.html"
            subprocess.run([str(sandbox.prefix / "bin/plexrl-trace"), "report", "--output", str(file), str(sandbox.state / "trace")], check=True)
            summary = sandbox.trace("summary", "--json")["summary"]
            page.open(f"file://{file}")
            check_texts(page, summary)
            check_sorting(page, summary)
            check_timeline(page)
            results = options.build / "compat-results"
            results.mkdir(exist_ok=True)
            page.screenshot(results / "report.png")
            expect("complaints of the page", page.complaints(), [])
            expect("what the page asked for", page.requested(), [f"file://{file}"])
        except Failure as failure:
            print(f"FAILED: {failure}")
            return 1
        finally:
            page.close()
    print("the report works in a browser and asks for nothing but itself")
    return 0


sys.exit(main())
