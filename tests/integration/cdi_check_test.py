#!/usr/bin/env python3
"""cdi_check takes a good specification, and each thing that is wrong with one is found."""
import copy
import sys
import unittest

from cdi_check import problems

GOOD = {"cdiVersion": "0.3.0", "kind": "vendor.example/thing",
        "devices": [{"name": "one", "containerEdits": {"env": ["A=b"], "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}]}}]}


def changed(change):
    spec = copy.deepcopy(GOOD)
    change(spec)
    return spec


def edits(spec):
    return spec["devices"][0]["containerEdits"]


WRONG = {
    "cdiVersion": lambda spec: spec.update(cdiVersion="0.2.0"),
    "no vendor": lambda spec: spec.update(kind="-a/thing"),
    "no name": lambda spec: spec.update(kind="vendor.example/"),
    "a dot": lambda spec: spec.update(kind="vendor.example/a.b"),
    "unknown": lambda spec: spec.update(schema=1),
    "no device": lambda spec: spec.update(devices=[]),
    "changes nothing": lambda spec: spec["devices"][0].update(containerEdits={}),
    "lacks": lambda spec: spec["devices"][0].pop("name"),
    "no device's name": lambda spec: spec["devices"][0].update(name="-a"),
    "begins with a digit": lambda spec: spec["devices"][0].update(name="0"),
    "one name": lambda spec: spec["devices"].append(spec["devices"][0]),
    "NAME=VALUE": lambda spec: edits(spec)["env"].append("=b"),
    "list of strings": lambda spec: edits(spec)["env"].append(1),
    "not absolute": lambda spec: edits(spec)["mounts"][0].update(hostPath="a"),
    "containerPath": lambda spec: edits(spec)["mounts"][0].pop("containerPath"),
    "0.4.0": lambda spec: edits(spec)["mounts"][0].update(type="bind"),
    "0.6.0": lambda spec: spec.update(annotations={"a": "b"}),
    "no hook": lambda spec: edits(spec).update(hooks=[{"hookName": "never", "path": "/a"}]),
}


class CdiCheck(unittest.TestCase):
    def test_a_good_one_is_taken(self):
        self.assertEqual(problems(GOOD), [])

    def test_each_fault_is_found(self):
        for words, change in WRONG.items():
            with self.subTest(words):
                self.assertRegex("; ".join(problems(changed(change))), words)

    def test_what_is_no_specification_is_refused(self):
        for spec in ({}, [], None, {"cdiVersion": 3, "kind": 3, "devices": 3}, {**GOOD, "devices": ["a"]}):
            with self.subTest(spec):
                self.assertNotEqual(problems(spec), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
