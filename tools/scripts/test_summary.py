#!/usr/bin/env python3
"""Closes a ctest run: `N passed, N failed, N skipped` from its JUnit file. Exit 1 if a test failed or the file is missing."""
import sys
import xml.etree.ElementTree as xml


def main():
    try:
        cases = list(xml.parse(sys.argv[1]).getroot().iter("testcase"))
    except (OSError, xml.ParseError) as error:
        print(f"test_summary.py: no result of ctest: {error}", file=sys.stderr)
        cases = []
        failed_to_run = True
    else:
        failed_to_run = False
    skipped = [c for c in cases if c.get("status") in ("notrun", "disabled") and c.find("skipped") is not None]
    failed = [c for c in cases if c not in skipped and c.get("status") != "run"]
    for case in skipped:
        print(f"skipped: {case.get('name')}")
    for case in failed:
        print(f"failed: {case.get('name')}")
    print(f"{len(cases) - len(skipped) - len(failed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or failed_to_run else 0


sys.exit(main())
