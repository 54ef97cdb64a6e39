# SPDX-License-Identifier: Apache-2.0
"""Rules on the symbols of compiled objects: what the text cannot hide.

A folder's undefined symbols must be defined in folders that it may use; an external symbol carries
its folder's or its file's name; a vendor's symbols are asked for only in the vendor's places; no
file reaches itself by calls through others of its folder."""
import subprocess

from .law import Finding, folder_of, inside

DEFINED = set("TDBRCGSVWui")
# What compilers and sanitizers add of their own.
FOREIGN_PREFIXES = ("__", "_GLOBAL_", "_Z")


class Object:
    """One object file: the source it came from, what it defines for others, what it asks for."""

    def __init__(self, source, defined, undefined):
        self.source, self.defined, self.undefined = source, defined, undefined


def parse_nm(text):
    """(defined, undefined) external symbols from the output of `nm -P -g`."""
    defined, undefined = set(), set()
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or words[0].startswith(FOREIGN_PREFIXES):
            continue
        if words[1] in ("U", "w", "v"):
            undefined.add(words[0])
        elif words[1] in DEFINED:
            defined.add(words[0])
    return defined, undefined


def source_of(path):
    """src/x/y.c for .../CMakeFiles/plait.dir/src/x/y.c.o; None for tests and the like."""
    parts = path.parts
    for i, part in enumerate(parts):
        if part.endswith(".dir") and i + 1 < len(parts) and parts[i + 1] in ("src", "cmd"):
            return "/".join(parts[i + 1:])[:-len(".o")]
    return None


def read_build(root, build):
    """Objects of src/ and cmd/ in a build folder, leaving out those whose source is gone."""
    found = []
    for path in sorted(build.rglob("*.o")):
        name = source_of(path)
        if name is None or not (root / name).is_file():
            continue
        said = subprocess.run(["nm", "-P", "-g", str(path)], capture_output=True, text=True,
                              check=True)
        found.append(Object(name, *parse_nm(said.stdout)))
    return found


def check_uses(objects, law):
    home = {symbol: folder_of(obj.source) for obj in objects for symbol in obj.defined}
    for obj in objects:
        folder = folder_of(obj.source)
        for symbol in sorted(obj.undefined):
            used = home.get(symbol)
            public = symbol.startswith("plait_") and "plait.h" in law.layers.get(folder, set())
            if used and not public and not law.may_use(folder, used):
                yield Finding("layer", obj.source, 0, "%s of %s is used, %s may not use %s"
                              % (symbol, used, folder, used))


def check_below(objects, law):
    home = {symbol: obj.source for obj in objects for symbol in obj.defined}
    for obj in objects:
        for symbol in sorted(obj.undefined):
            if symbol in home and law.stands_below(obj.source, home[symbol]):
                yield Finding("below", obj.source, 0, "%s of %s is used, which stands above"
                              % (symbol, home[symbol]))


def check_prefixes(objects, law):
    for obj in objects:
        parts = obj.source.split("/")
        folders, stem = [part for part in parts[:-1] if part != "src"], parts[-1].split(".")[0]
        allowed = tuple(law.symbol_prefixes(folder_of(obj.source), folders, stem))
        for symbol in sorted(obj.defined):
            if not symbol.startswith(allowed) and symbol not in (stem, folders[-1]):
                yield Finding("prefix", obj.source, 0, "%s begins with none of %s"
                              % (symbol, " ".join(sorted(set(allowed)))))


def check_vendors(objects, law):
    for obj in objects:
        for symbol in sorted(obj.undefined):
            for vendor in law.vendors:
                if vendor.owns_symbol(symbol) and not inside(obj.source, vendor.places):
                    yield Finding("vendor", obj.source, 0, "%s of %s stays in %s"
                                  % (symbol, vendor.name, " ".join(vendor.places)))


def reach(start, calls):
    """All files that `start` asks something of, directly or through others."""
    found, left = set(), [start]
    while left:
        for used in calls[left.pop()] - found:
            found.add(used)
            left.append(used)
    return found


def check_circles(objects, law):
    """No file reaches itself by calls through others of its folder."""
    home = {symbol: obj.source for obj in objects for symbol in obj.defined}
    calls = {obj.source: {home[symbol] for symbol in obj.undefined if symbol in home and
                          folder_of(home[symbol]) == folder_of(obj.source)} - {obj.source}
             for obj in objects}
    reached = {name: reach(name, calls) for name in calls}
    seen = set()
    for name in sorted(calls):
        if name not in reached[name] or name in seen:
            continue
        circle = [other for other in sorted(reached[name]) if name in reached[other]]
        seen.update(circle)
        yield Finding("circle", name, 0, "%s call each other in a circle: have what they share "
                      "below them, and what knows them all above, with a table between"
                      % " ".join(circle))


def check(objects, law):
    rules = (check_uses, check_below, check_prefixes, check_vendors, check_circles)
    return [finding for rule in rules for finding in rule(objects, law)]
