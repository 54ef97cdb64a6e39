# SPDX-License-Identifier: Apache-2.0
"""tools/layers, read. The form of the file is described at its top."""
import fnmatch
import re

STATEMENT = re.compile(r"(layer|face|prefix|vendor|ban|bound|below|size|spine)\s+([^:]*):\s*(.*)")


class Finding:
    """One thing against a rule, or over a budget with a reason (`allowed`)."""

    def __init__(self, rule, place, line, text, allowed=False):
        self.rule, self.place, self.line, self.text = rule, place, line, text
        self.allowed = allowed

    def __str__(self):
        where = "%s:%d" % (self.place, self.line) if self.line else self.place
        return "%s: %s%s: %s" % (where, "allowed, " if self.allowed else "", self.rule, self.text)


class Vendor:
    def __init__(self, name, headers, symbols, places):
        self.name, self.headers, self.places = name, headers, places
        self.symbols = re.compile("(?:%s)" % "|".join(symbols))

    def owns_header(self, header):
        return any(fnmatch.fnmatch(header, pattern) for pattern in self.headers)

    def owns_symbol(self, symbol):
        return self.symbols.match(symbol) is not None


class Ban:
    def __init__(self, places, instead):
        self.places, self.instead = places, instead


def statements(text):
    """(line, statement) of each: comments dropped, indented lines joined to the one above."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].rstrip()
        if line.startswith(" ") and found:
            found[-1] = (found[-1][0], found[-1][1] + " " + line.strip())
        elif line:
            found.append((number, line))
    return found


def inside(name, places):
    """Is the file `name` one of `places`, or in one of them?"""
    return any(name == place or name.startswith(place + "/") for place in places)


def folder_of(name):
    """Top folder of the layer law: src/device/cpu/x.c -> device, cmd/x.c -> cmd, else None."""
    parts = name.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    return "cmd" if parts[0] == "cmd" else None


class Law:
    def __init__(self):
        self.layers, self.faces, self.prefixes = {}, {}, {}
        self.vendors, self.bans, self.bounds = [], {}, {}
        self.sizes = {}  # place: lines that it may have at most
        self.spine, self.spine_size = [], 0  # places that a newcomer reads, and their lines
        self.below = {}  # place: places of which its files know nothing
        self.slots = {}  # number of parameters: names of table slots that have so many

    @classmethod
    def read(cls, path):
        return cls.parse(path.read_text(), str(path))

    @classmethod
    def parse(cls, text, name="layers"):
        law = cls()
        for number, line in statements(text):
            match = STATEMENT.fullmatch(line)
            if not match:
                raise SystemExit("%s:%d: not a statement: %s" % (name, number, line))
            law.add(match.group(1), match.group(2).split(), match.group(3), number)
        law.check(name)
        return law

    def add(self, kind, subject, rest, number):
        words = rest.split()
        if kind == "layer":
            self.layers[subject[0]] = set(words)
        elif kind == "face":
            self.faces[subject[0]] = set(words)
        elif kind == "prefix":
            self.prefixes[subject[0]] = words
        elif kind == "size":
            if not words or not words[0].isdigit() or len(subject) != 1:
                raise SystemExit("layers:%d: size wants one place and a number" % number)
            self.sizes[subject[0]] = int(words[0])
        elif kind == "spine":
            if len(words) != 1 or not words[0].isdigit():
                raise SystemExit("layers:%d: spine wants places and a number" % number)
            self.spine, self.spine_size = subject, int(words[0])
        elif kind == "vendor":
            match = re.fullmatch(r"headers (.*) symbols (.*) in (.*)", rest)
            if not match:
                raise SystemExit("layers:%d: vendor wants headers, symbols, in" % number)
            self.vendors.append(Vendor(subject[0], *(part.split() for part in match.groups())))
        elif kind == "below":
            self.below.update((place, words) for place in subject)
        elif kind == "ban":
            match = re.fullmatch(r"in (.*) instead (.*)", rest)
            if not match:
                raise SystemExit("layers:%d: ban wants in, instead" % number)
            for call in subject:
                self.bans[call] = Ban(match.group(1).split(), match.group(2))
        else:
            for folder in subject:
                self.bounds[folder] = set(words)

    def check(self, name):
        """Folders named on the right exist on the left, and no two folders use each other."""
        for folder, uses in self.layers.items():
            for used in uses - {"plait.h"}:
                if used not in self.layers:
                    raise SystemExit("%s: layer %s uses %s, which has no line"
                                     % (name, folder, used))
                if folder in self.layers[used]:
                    raise SystemExit("%s: %s and %s use each other" % (name, folder, used))

    def may_use(self, folder, used):
        return used == folder or used in self.layers.get(folder, set())

    def stands_below(self, name, used):
        """May the file `name` know nothing of the file `used`?"""
        return any(inside(name, [place]) and inside(used, above)
                   for place, above in self.below.items())

    def face(self, folder):
        return self.faces.get(folder, {"%s/%s.h" % (folder, folder)})

    def is_face(self, folder, header):
        return any(fnmatch.fnmatch(header, pattern) for pattern in self.face(folder))

    def symbol_prefixes(self, folder, parts, stem):
        """What an external symbol of the file may begin with. `parts`: folders below src/."""
        own = [part + "_" for part in parts] + [stem + "_", stem.split("_")[0] + "_"]
        return own + self.prefixes.get(folder, [])
