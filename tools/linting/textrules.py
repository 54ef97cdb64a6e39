# SPDX-License-Identifier: Apache-2.0
"""Rules on the text of one file. Each rule is a function of (Source, Law) that yields findings;
RULES lists them, and selftest.py has a case for each."""
import re

from .law import Finding, folder_of, inside
from .source import blank

FUNCTION_LINES, FILE_LINES, PARAMETERS, NESTING, COLUMNS, HEAD = 80, 600, 8, 4, 100, 12
# Words that must not stay behind; joined here so that this file does not hold them.
LEFTOVERS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")


def spdx(source, law):
    if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(source.lines[:3]):
        yield Finding("spdx", source.name, 1, "no SPDX-License-Identifier line in the first three")


def leftovers(source, law):
    for number, line in enumerate(source.lines, 1):
        match = LEFTOVERS.search(line)
        if match:
            yield Finding("leftover", source.name, number,
                          "%s; do it, or open an issue" % match.group(1))


def layout(source, law):
    """Columns, tabs, trailing space, the last newline."""
    for number, line in enumerate(source.lines, 1):
        if len(line) > COLUMNS:
            yield Finding("layout", source.name, number, "%d columns, at most %d"
                          % (len(line), COLUMNS))
        if source.is_c and "\t" in line:
            yield Finding("layout", source.name, number, "a tab; indent with 4 spaces")
        if line != line.rstrip():
            yield Finding("layout", source.name, number, "space at the end of the line")
    if source.text and not source.text.endswith("\n"):
        yield Finding("layout", source.name, len(source.lines), "no newline at the end of the file")


def head(source, law):
    """What, contract and why in a few lines; charts, which are indented, are not counted."""
    if not source.is_c or not source.text.startswith("/*") or "*/" not in source.text:
        return
    lines = source.text[:source.text.index("*/")].split("\n")[1:]
    prose = sum(bool(line.strip(" *")) and not line.startswith(" *     ") for line in lines)
    if prose > HEAD:
        yield Finding("head", source.name, 1, "the comment that opens the file has %d lines, at "
                      "most %d; derivations go to docs/design" % (prose, HEAD))


def comments(source, law):
    if not source.is_c:
        return
    stripped = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                      lambda m: re.sub(r"[^\n]", " ", m.group(0)), source.text, flags=re.S)
    for number, line in enumerate(stripped.split("\n"), 1):
        if "//" in line:
            yield Finding("comment", source.name, number, "comments are written /* so */")


def includes(source, law):
    """The layer law: which folders, and only their faces."""
    folder = folder_of(source.name) if source.is_c else None
    if folder is None:
        return
    if folder not in law.layers:
        yield Finding("layer", source.name, 1, "folder %s has no line in tools/layers" % folder)
        return
    for number, header, quoted in source.includes():
        if not quoted:
            continue
        used = header.split("/")[0]
        if folder == "cmd" and (header.startswith("cmd") and "/" not in header):
            continue
        if not law.may_use(folder, used):
            allowed = " ".join(sorted(law.layers[folder])) or "nothing"
            yield Finding("layer", source.name, number, "%s may not use %s (%s); it may use: %s"
                          % (folder, used, header, allowed))
        elif law.stands_below(source.name, "src/" + header):
            yield Finding("below", source.name, number, "%s stands above and is not known here"
                          % header)
        elif used != folder and used != "plait.h" and not law.is_face(used, header):
            yield Finding("face", source.name, number, "%s is %s's own; other folders include %s"
                          % (header, used, " ".join(sorted(law.face(used)))))


def own_face_first(source, law):
    """The first quoted include of a .c of src/ is of its own folder, so that it stands alone."""
    folder = folder_of(source.name) if source.is_c else None
    if folder in (None, "cmd") or not source.name.endswith(".c"):
        return
    first = next(((n, header) for n, header, quoted in source.includes() if quoted), None)
    own = (folder, "plait.h") if folder == "api" else (folder,)
    if first and first[1].split("/")[0] not in own:
        yield Finding("face", source.name, first[0], "the first include is %s; it must be of %s/"
                      % (first[1], folder))


def vendors(source, law):
    if not source.is_c:
        return
    for number, header, _ in source.includes():
        for vendor in law.vendors:
            if vendor.owns_header(header) and not inside(source.name, vendor.places):
                yield Finding("vendor", source.name, number, "%s stays in %s"
                              % (header, " ".join(vendor.places)))


def banned_calls(source, law):
    if not source.is_c:
        return
    bound = law.bounds.get(folder_of(source.name), set())
    # Not a member (x->free, x.read), not a declaration of one ((*free)).
    for match in re.finditer(r"(?<![\w.>])(\w+)\s*\(", source.code):
        name, line = match.group(1), source.code.count("\n", 0, match.start()) + 1
        ban = law.bans.get(name)
        if ban and not inside(source.name, ban.places):
            yield Finding("banned", source.name, line, "%s; use %s" % (name, ban.instead))
        if name in bound:
            yield Finding("bound", source.name, line, "%s in the thinking half" % name)


def form(source, law):
    """No typedef of a struct or enum, no name-pasting macros, the function brace in column 0."""
    if not source.is_c:
        return
    for number, line in enumerate(source.code.split("\n"), 1):
        if re.match(r"\s*typedef\s+(struct|enum|union)\b(?!.*\()", line):
            yield Finding("form", source.name, number, "write struct and enum, no typedef of them")
        if "##" in line:
            yield Finding("form", source.name, number, "no macro may paste names together")
    for function in source.functions:
        body = source.code.split("\n")[function.first - 1:function.last]
        one_line = function.length == 1
        if not one_line and not any(line.startswith("{") for line in body):
            yield Finding("form", source.name, function.first,
                          "%s: the brace of a function stands in column 0" % function.name)


def test_files(source, law):
    """What a test writes lies in a folder of its process: it may run several times at once."""
    if not source.name.startswith("tests/"):
        return
    text = blank(source.text, keep_strings=True) if source.is_c else source.text
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(r"(/var)?/tmp/|/dev/shm/", line)
        if match:
            yield Finding("test file", source.name, number, "%s; a test's files lie in its folder, "
                          "test_folder() or mktemp -d" % match.group(0))


def budgets(source, law):
    if not source.is_c:
        return
    if len(source.lines) > FILE_LINES:
        head = source.functions[0].first if source.functions else len(source.lines)
        reason = re.search(r"/\*\s*long:\s*\S", "\n".join(source.lines[:head])) is not None
        yield Finding("file length", source.name, 1, "%d lines, at most %d"
                      % (len(source.lines), FILE_LINES), reason)
    for name, parameters, line in source.slots:
        if parameters > PARAMETERS:
            yield Finding("budget", source.name, line, "slot %s has %d parameters, at most %d"
                          % (name, parameters, PARAMETERS),
                          source.reason_near(source.struct_line(line), line))
    for function in source.functions:
        reason = source.reason_near(function.first, function.last)
        # The signature of an implementation is the table's, and is judged there.
        slots = law.slots.get(function.parameters, ())
        fills_slot = any(function.name.endswith("_" + slot) for slot in slots)
        parameters = 0 if fills_slot else function.parameters
        over = [(value, what, most)
                for what, value, most in (("lines", function.length, FUNCTION_LINES),
                                          ("parameters", parameters, PARAMETERS),
                                          ("levels of nesting", function.depth, NESTING))
                if value > most]
        for excess in over:
            yield Finding("budget", source.name, function.first, "%s has %d %s, at most %d"
                          % (function.name, *excess), reason)
        if reason and not over:
            yield Finding("budget", source.name, function.first,
                          "%s is within its budget; its reason (long: ...) goes" % function.name)


RULES = (spdx, leftovers, layout, head, comments, includes, own_face_first, vendors,
         banned_calls, form, test_files, budgets)


def learn_slots(source, law):
    """Remember the slots of tables, by their number of parameters."""
    if source.is_c and source.name.endswith(".h"):
        for name, parameters, _ in source.slots:
            law.slots.setdefault(parameters, set()).add(name)


def check(source, law):
    return [finding for rule in RULES for finding in rule(source, law)]
