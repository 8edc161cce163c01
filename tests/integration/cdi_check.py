"""Whether a specification for container runtimes is a good one, after SPEC.md of the Container Device Interface
(https://github.com/cncf-tags/container-device-interface), and after what its loader refuses beyond that: unknown names, a device without
edits, a version below what the names in use need. Only names that are in version 0.8.0."""
import re

VERSIONS = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0"]
LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NEEDS = {"annotations": "0.6.0", "additionalGids": "0.7.0", "intelRdt": "0.7.0"}  # a mount's type: 0.4.0, a node's hostPath: 0.5.0
EDITS = {"env": list, "deviceNodes": list, "mounts": list, "hooks": list, "additionalGids": list, "intelRdt": dict}


def problems(spec):
    """In words; none: it is good."""
    found = []

    def check(holds, what):
        if not holds:
            found.append(what)

    def members(value, where, needed, possible):
        check(isinstance(value, dict), f"{where} is no object")
        names = set(value) if isinstance(value, dict) else set()
        check(needed <= names, f"{where} lacks {sorted(needed - names)}")
        check(names <= needed | possible, f"{where} has the unknown {sorted(names - needed - possible)}")
        for name in names & set(NEEDS):
            check(version >= VERSIONS.index(NEEDS[name]), f"{name} needs version {NEEDS[name]}")
        return value if isinstance(value, dict) else {}

    def strings(value, where):
        check(isinstance(value, list) and all(isinstance(one, str) for one in value), f"{where} is no list of strings")
        return value if isinstance(value, list) else []

    def edits(value, where):
        value = members(value, where, set(), set(EDITS))
        for name, kind in EDITS.items():
            check(name not in value or isinstance(value[name], kind), f"{where}.{name} is no {kind.__name__}")
        for one in strings(value.get("env", []), f"{where}.env"):
            check(re.fullmatch(r"[^=]+=.*", str(one), re.S), f"{where}.env: '{one}' is no NAME=VALUE")
        for mount in value.get("mounts", []):
            mount = members(mount, f"{where}.mounts", {"hostPath", "containerPath"}, {"options", "type"})
            for path in ("hostPath", "containerPath"):
                check(str(mount.get(path, "")).startswith("/"), f"{where}.mounts: {path} '{mount.get(path)}' is not absolute")
            strings(mount.get("options", []), f"{where}.mounts.options")
            check("type" not in mount or version >= VERSIONS.index("0.4.0"), "a mount's type needs version 0.4.0")
        for node in value.get("deviceNodes", []):
            node = members(node, f"{where}.deviceNodes", {"path"}, {"hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"})
            check("hostPath" not in node or version >= VERSIONS.index("0.5.0"), "a node's hostPath needs version 0.5.0")
        for hook in value.get("hooks", []):
            hook = members(hook, f"{where}.hooks", {"hookName", "path"}, {"args", "env", "timeout"})
            check(hook.get("hookName") in ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"),
                  f"{where}.hooks: no hook '{hook.get('hookName')}'")
        return any(value.values())

    version = VERSIONS.index(spec["cdiVersion"]) if isinstance(spec, dict) and spec.get("cdiVersion") in VERSIONS else -1
    check(version >= 0, "cdiVersion is not one that was released")
    spec = members(spec, "the specification", {"cdiVersion", "kind", "devices"}, {"containerEdits", "annotations"})
    vendor, _, kind = str(spec.get("kind", "")).partition("/")
    check(re.fullmatch(rf"{LABEL}(\.{LABEL})*", vendor) and vendor[0].isalpha() and len(vendor) <= 253, f"kind: '{vendor}' is no vendor's name")
    check(re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", kind), f"kind: '{kind}' is no name")
    check("." not in kind or version >= VERSIONS.index("0.6.0"), "a dot in the kind's name needs version 0.6.0")
    devices = spec.get("devices")
    check(isinstance(devices, list) and devices, "there is no device")
    names = []
    for device in devices if isinstance(devices, list) else []:
        device = members(device, "a device", {"name", "containerEdits"}, {"annotations"})
        name = str(device.get("name", ""))
        names.append(name)
        check(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", name), f"'{name}' is no device's name")
        check(name[:1].isalpha() or version >= VERSIONS.index("0.5.0"), "a name that begins with a digit needs version 0.5.0")
        check(edits(device.get("containerEdits", {}), f"device '{name}'"), f"device '{name}' changes nothing")
    check(len(set(names)) == len(names), "two devices have one name")
    edits(spec.get("containerEdits", {}), "containerEdits")
    return found
