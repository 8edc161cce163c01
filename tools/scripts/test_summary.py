#!/usr/bin/env python3
"""Closes ctest runs: `N passed, N failed, N skipped` from their JUnit files, all together.

FILE or NAME=FILE; names of tests are printed with NAME in front. Exit 1 if a test failed or ctest left no result.
"""
import argparse
import sys
import xml.etree.ElementTree as xml


def read(argument):
    """(name for people, element) of each test; None when ctest left no result."""
    name, _, path = argument.rpartition("=")
    try:
        cases = xml.parse(path).getroot().iter("testcase")
    except (OSError, xml.ParseError) as error:
        print(f"test_summary.py: no result of ctest: {error}", file=sys.stderr)
        return None
    return [(f"{name}: {case.get('name')}" if name else case.get("name"), case) for case in cases]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--none", default="no test", help="what to say where there was no test")
    parser.add_argument("reports", nargs="+", metavar="[NAME=]FILE", help="JUnit files")
    options = parser.parse_args()
    results = [read(report) for report in options.reports]
    cases = [case for result in results for case in result or []]
    skipped, failed, passed = [], [], 0
    for name, case in cases:
        if case.get("status") in ("notrun", "disabled") and case.find("skipped") is not None:
            skipped.append(name)
        elif case.get("status") != "run":
            failed.append(name)
        else:
            passed += 1
    for name in skipped:
        print(f"skipped: {name}")
    for name in failed:
        print(f"failed: {name}")
    if not cases and None not in results:
        print(options.none)
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or None in results else 0


sys.exit(main())
