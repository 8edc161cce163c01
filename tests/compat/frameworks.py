#!/usr/bin/env python3
"""The table of frameworks in docs/compatibility.md is made of the records of runs in docs/results/compat, by frameworks.toml.

usage: frameworks.py [--take PATH]…    takes records over and writes the table anew
       frameworks.py --check           exit 1, with what is wrong, where the table, the records and the pinned versions disagree

PATH is a record that a compat test has written (BUILD/compat-results/TEST.json), a folder of them, or the report.json of
tools/gpu-validate. Who has looked at a run takes its record over and commits it with the table.
"""
import argparse
import json
import pathlib
import re
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BEGIN, END = "<!-- made by tests/compat/frameworks.py: begin -->\n", "<!-- end -->\n"


class Tree:
    """Where everything is."""

    def __init__(self, root=ROOT):
        self.compat = root / "tests/compat"
        self.records = root / "docs/results/compat"
        self.doc = root / "docs/compatibility.md"

    def rows(self):
        return tomllib.loads((self.compat / "frameworks.toml").read_text())["row"]

    def load_records(self):
        """name of the file without .json -> record"""
        return {path.stem: json.loads(path.read_text()) for path in sorted(self.records.glob("*.json"))}

    def pins(self, environment):
        """package -> version, as requirements-NAME.txt pins them"""
        lines = (self.compat / f"requirements-{environment}.txt").read_text().splitlines()
        return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))

    def framework_tests(self):
        return re.findall(r"^plexrl_framework_test\((\w+) ", (self.compat / "CMakeLists.txt").read_text(), re.M)


def gpu_result(record, row):
    """(version, where, result) as a report of a real GPU has it, or None. Several programs are one row's when it names none."""
    results = [one for one in record["results"] if one["set"] == row["gpu"] and row.get("program") in (None, one["name"])]
    if not results:
        return None
    ran = [one["result"] for one in results if one["result"] in ("passed", "failed")]
    passed = ran.count("passed")
    if not ran:
        words = f"not run: {results[0]['detail']}"
    elif row["gpu"] == "bench" and len(results) == passed == 1:
        words = results[0]["detail"]  # the figures
    elif len(results) == 1:
        words = ran[0]
    else:
        words = f"{passed} of {len(results)} passed" + (f", {len(results) - len(ran)} not run" if len(ran) < len(results) else "")
    versions = sorted({one["version"] for one in results if "version" in one})
    return ", ".join(versions), f"{record['gpu']}, driver {record['driver']}", f"{words}, {record['date']}"


def newest_gpu_result(records, row):
    """Of the newest report that ran it, else the newest that says why it was not run."""
    reports = sorted((record for record in records.values() if "gpu" in record), key=lambda record: record["date"], reverse=True)
    found = [result for record in reports if (result := gpu_result(record, row))]
    return next((result for result in found if not result[2].startswith("not run")), found[0] if found else None)


def cells(row, records):
    """framework, version, what was run, where, result"""
    name, what = row["framework"], row["what"]
    if "not_run" in row:
        return name, "", what, "", f"not run: {row['not_run']}"
    if "every" in row:
        return name, row["version"], what, "simulated", f"in every `{row['every']}`"
    if "gpu" in row:
        version, where, result = newest_gpu_result(records, row) or ("", "GPU", "not run: there was no GPU at hand")
        return name, version, what, where, result
    record = records.get(row["test"])
    if record is None:
        return name, "", what, "", "not run"
    versions = [record["packages"][package] for package in row["packages"]]
    others = [f"{package} {version}" for package, version in zip(row["packages"][1:], versions[1:])]
    version = versions[0] + (f" ({', '.join(others)})" if others else "")
    return name, version, what, record["where"], f"{record['result']}, {record['date']}"


def table(rows, records):
    lines = ["| framework | version | what was run | where | result |", "| --- | --- | --- | --- | --- |"]
    lines += ["| " + " | ".join(cells(row, records)) + " |" for row in rows]
    return "\n".join(re.sub(r"  +", " ", line) for line in lines) + "\n"


def with_table(text, made):
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + made + "\n" + END + after


def problems(tree):
    rows, records = tree.rows(), tree.load_records()
    text = tree.doc.read_text()
    if with_table(text, table(rows, records)) != text:
        yield f"{tree.doc.name}: its table is not what the records give: run tests/compat/frameworks.py"
    tests = {row["test"] for row in rows if "test" in row}
    for test in set(tree.framework_tests()) ^ tests:
        yield f"{test}: is in one of CMakeLists.txt and frameworks.toml, and not in the other"
    for name, record in records.items():
        if "gpu" in record:
            if record["simulated"]:
                yield f"{name}.json: a run on the simulated GPU is no record of a real one"
        elif name not in tests:
            yield f"{name}.json: no row is about this test"
        else:
            pins = tree.pins(record["environment"])
            differ = {package for package in {*pins, *record["packages"]} if pins.get(package) != record["packages"].get(package)}
            for package in sorted(differ):
                yield (f"{name}.json: it was {package} {record['packages'].get(package)}, requirements-{record['environment']}.txt "
                       f"has {pins.get(package)}: run tools/dev test compat -R {name}, and take its record over")


def take(tree, path):
    tree.records.mkdir(parents=True, exist_ok=True)
    for source in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        record = json.loads(source.read_text())
        name = source.name if "gpu" not in record else "gpu-" + re.sub(r"\W+", "-", record["gpu"]).lower() + ".json"
        (tree.records / name).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--take", action="append", default=[], type=pathlib.Path, metavar="PATH", help="a record, or a folder of them")
    options = parser.parse_args()
    tree = Tree()
    for path in options.take:
        take(tree, path)
    if not options.check:
        tree.doc.write_text(with_table(tree.doc.read_text(), table(tree.rows(), tree.load_records())))
    found = list(problems(tree))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
