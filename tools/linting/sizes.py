# SPDX-License-Identifier: Apache-2.0
"""Lines of each place of the program against its budget (size statements of tools/layers). A file
belongs to the nearest place above it; what stands in none is a finding."""
from .law import Finding, inside

ROOTS = ("src", "cmd", "include")


def place_of(name, law):
    places = [place for place in law.sizes if inside(name, [place])]
    return max(places, key=len, default=None)


def count(sources, law):
    """{place: lines}, files of no place under None."""
    lines = dict.fromkeys(law.sizes, 0)
    for source in sources:
        if source.is_c and source.name.split("/")[0] in ROOTS:
            place = place_of(source.name, law)
            lines[place] = lines.get(place, 0) + len(source.lines)
    return lines


def spine(sources, law):
    """Lines of the places that a newcomer has to read, and those of them that are not there."""
    lines = dict.fromkeys(law.spine, 0)
    for source in sources:
        for place in law.spine:
            if source.is_c and inside(source.name, [place]):
                lines[place] += len(source.lines)
                break
    return sum(lines.values()), [place for place in law.spine if not lines[place]]


def check(sources, law):
    found = []
    lines, missing = spine(sources, law)
    for place in missing:
        found.append(Finding("size", "tools/layers", 0, "%s of the spine is not there" % place))
    if lines > law.spine_size:
        found.append(Finding("size", "tools/layers", 0, "%d lines in the spine, its budget is %d"
                             % (lines, law.spine_size)))
    for place, lines in count(sources, law).items():
        if place is None:
            found.append(Finding("size", "tools/layers", 0,
                                 "%d lines of the program have no budget" % lines))
        elif lines > law.sizes[place]:
            found.append(Finding("size", place, 0, "%d lines, its budget is %d; make it smaller, "
                                 "or say in the commit why it may grow (tools/layers)"
                                 % (lines, law.sizes[place])))
    return found


def table(sources, law):
    lines = count(sources, law)
    rows = [(place, lines[place], law.sizes[place]) for place in sorted(law.sizes)]
    rows.append(("all", sum(r[1] for r in rows), sum(r[2] for r in rows)))
    if law.spine:
        rows.append(("spine", spine(sources, law)[0], law.spine_size))
    return "\n".join(["%-16s %8s %8s" % ("place", "lines", "budget")] +
                     ["%-16s %8d %8d" % row for row in rows])
