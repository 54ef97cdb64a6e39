# SPDX-License-Identifier: Apache-2.0
"""A rule that cannot fail is not a rule: for each one a text or object that breaks it, which must
give exactly the named finding, and a neighbour that keeps it, which must give none. The law is the
tree's own tools/layers, so its lines are tested too."""
import pathlib

from . import law as law_module
from . import sizes, source, symbols, textrules

LAYERS = pathlib.Path(__file__).resolve().parent.parent / "layers"
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


def body(lines):
    return "int sched_x(void)\n{\n" + "    sched_y();\n" * lines + "}\n"


def nested(levels):
    opened = "".join("%sif (x) {\n" % ("    " * (i + 1)) for i in range(levels))
    closed = "".join("%s}\n" % ("    " * (levels - i)) for i in range(levels))
    return "int sched_x(int x)\n{\n" + opened + closed + "}\n"


# rule, path, text that breaks it, text that keeps it (SPDX line is added to both).
TEXTS = [
    ("leftover", "src/sched/a.c", "/* TO" "DO: more */\n", "/* a todo list is data */\n"),
    ("layout", "src/sched/a.c", "/* " + "x" * 98 + " */\n", "/* " + "x" * 94 + " */\n"),
    ("layout", "src/sched/a.c", "int\tx;\n", "int x;\n"),
    ("layout", "src/sched/a.c", "int x; \n", "int x;\n"),
    ("layout", "src/sched/a.c", "int x;", "int x;\n"),
    ("comment", "src/sched/a.c", "int x; // so\n",
     'static const char *u = "http://x"; /* a//b */\n'),
    ("layer", "src/sched/a.c", '#include "sched/sched.h"\n#include "comm/comm.h"\n',
     '#include "sched/sched.h"\n#include "base/mem.h"\n'),
    ("layer", "src/sim/a.c", '#include "sim/sim.h"\n#include "device/device.h"\n',
     '#include "sim/sim.h"\n#include "sched/sched.h"\n'),
    ("layer", "src/plan/a.c", '#include "plan/groups.h"\n#include "exec/exec.h"\n',
     '#include "plan/groups.h"\n#include "sched/sched.h"\n'),
    ("layer", "src/plan/a.c", '#include "plan/groups.h"\n#include "comm/comm.h"\n', None),
    ("layer", "src/plan/a.c", '#include "plan/groups.h"\n#include "device/device.h"\n', None),
    ("bound", "src/plan/a.c", "int plan_t(void)\n{\n    return clock_gettime(1, 0);\n}\n", None),
    ("layer", "src/base/a.c", '#include "base/err.h"\n#include "mesh/mesh.h"\n',
     '#include "base/err.h"\n'),
    ("layer", "src/nowhere/a.c", "int x;\n", None),
    ("layer", "cmd/a.c", '#include "base/err.h"\n', '#include "plait.h"\n#include "cmd.h"\n'),
    ("layer", "src/sched/a.c", '#include "sched/sched.h"\n#include "plait.h"\n', None),
    ("below", "src/comm/core/a.c", '#include "comm/core/core.h"\n#include "comm/host/thread.h"\n',
     '#include "comm/core/core.h"\n#include "comm/comm.h"\n'),
    ("below", "src/comm/gpu/a.c", '#include "comm/gpu/gpu.h"\n#include "comm/host/thread.h"\n',
     '#include "comm/gpu/gpu.h"\n#include "comm/core/core.h"\n'),
    ("face", "src/sim/a.c", '#include "sim/sim.h"\n#include "sched/sched_private.h"\n',
     '#include "sim/sim.h"\n#include "sim/sim_private.h"\n'),
    ("face", "src/sched/a.c", '#include "base/err.h"\n', '#include "sched/sched.h"\n'),
    ("vendor", "src/layer/a.c", "#include <yaml.h>\n", "#include <math.h>\n"),
    ("vendor", "src/train/a.c", "#include <mpi.h>\n", None),
    ("vendor", "src/device/cpu/a.c", "#include <cuda_runtime.h>\n", None),
    ("vendor", "src/comm/host/a.c", "#include <cublasLt.h>\n", "#include <mpi.h>\n"),
    ("vendor", "src/device/a.c", "#include <cudnn.h>\n", None),
    ("vendor", "src/exec/a.c", "#include <nccl.h>\n", None),
    ("vendor", "src/data/a.c", "#include <yaml.h>\n", "#include <xxhash.h>\n"),
    ("vendor", "src/data/a.c", "#include <cjson/cJSON.h>\n", "#include <pcre2.h>\n"),
    ("vendor", "src/mesh/a.c", "#include <xxhash.h>\n", None),
    ("vendor", "src/base/a.c", "#include <pcre2.h>\n", "#include <yaml.h>\n"),
    ("bound", "src/sched/a.c", "double sched_t(void)\n{\n    return clock_gettime(1, 0);\n}\n",
     "double sched_t(void)\n{\n    return sched_clock();\n}\n"),
    ("form", "src/sched/a.c", "typedef struct a b;\n", "typedef enum err (*sched_fn)(int);\n"),
    ("form", "src/sched/a.c", "#define A(x) sched_##x\n", '#define A(x) "##"\n'),
    ("form", "src/sched/a.c", "int sched_x(void) {\n    return 1;\n}\n",
     "int sched_x(void)\n{\n    return 1;\n}\nstatic int y(void) { return 1; }\n"),
    ("test file", "tests/unit/test_a.c", 'static const char *p = "/tmp/a";\n',
     'static const char *p = "a", *folder = "/tmp"; /* not /tmp/a */\n'),
    ("test file", "tests/dist/a.sh", "# SPDX\nx=/var/tmp/a\n", "x=$(mktemp -d)\n"),
    ("test file", "tests/unit/test_a.c", 'static const char *p = "/dev/shm/a";\n', None),
    ("file length", "src/sched/a.c", "\n" * 600, "\n" * 598),
    ("budget", "src/sched/a.c", body(78), body(77)),
    ("budget", "src/sched/a.c",
     "int sched_x(int a, int b, int c, int d, int e, int f, int g, int (*h)(int, int), int i)\n"
     "{\n}\n",
     "int sched_x(int a, int b, int c, int d, int e, int f, int g, int (*h)(int, int))\n{\n}\n"),
    ("budget", "src/sched/a.h",
     "static inline int sched_x(int a, int b, int c, int d, int e, int f, int g, int h, int i)\n"
     "{ return a; }\n",
     "static inline int sched_x(int a, int b, int c, int d, int e, int f, int g, int h)\n"
     "{ return a; }\n"),
    ("budget", "src/sched/a.c", nested(5), nested(4)),
]

# Over budget with a reason: listed, allowed.
REASONS = [
    "/* long: one table */\n" + body(90),
    "int sched_x(void)\n{\n    /* long: one switch */\n" + "    sched_y();\n" * 90 + "}\n",
]
NO_REASON = body(90) + "\n/* long: of the next one */\n" + body(90).replace("_x", "_z")

# rule, objects that break it, objects that keep it: (source, defined, undefined).
OBJECTS = [
    ("layer", [("src/sched/a.c", "sched_x", "comm_x"), ("src/comm/b.c", "comm_x", "")],
     [("src/exec/a.c", "exec_x", "comm_x"), ("src/comm/b.c", "comm_x", "")]),
    ("layer", [("cmd/a.c", "a_x", "api_x"), ("src/api/b.c", "api_x", "")],
     [("cmd/a.c", "a_x", "plait_x"), ("src/api/b.c", "plait_x", "")]),
    ("prefix", [("src/sched/gpipe.c", "push", "")], [("src/sched/gpipe.c", "sched_push", "")]),
    ("prefix", [("src/device/cpu/norm.c", "gemm", "")],
     [("src/device/cpu/norm.c", "cpu_gemm", "")]),
    ("prefix", [("src/sched/a.c", "plait_x", "")], [("src/api/a.c", "plait_x", "")]),
    ("prefix", [("src/base/a.c", "sched_x", "")], [("src/base/a.c", "philox4x32", "")]),
    ("vendor", [("src/layer/a.c", "layer_x", "yaml_parser_load")],
     [("src/base/a.c", "err_x", "yaml_parser_load")]),
    ("vendor", [("src/api/a.c", "api_x", "MPI_Init")],
     [("src/comm/host/a.c", "comm_x", "MPI_Init")]),
    ("vendor", [("src/comm/a.c", "comm_x", "cuMemAlloc_v2")],
     [("src/comm/a.c", "comm_x", "custom")]),
    ("below", [("src/comm/core/a.c", "comm_a", "comm_b"), ("src/comm/host/b.c", "comm_b", "")],
     [("src/comm/core/a.c", "comm_a", ""), ("src/comm/host/b.c", "comm_b", "comm_a")]),
    ("circle", [("src/comm/core/a.c", "comm_a", "comm_b"), ("src/comm/b.c", "comm_b", "comm_c"),
                ("src/comm/c.c", "comm_c", "comm_a")],
     [("src/comm/core/a.c", "comm_a", "malloc"), ("src/comm/b.c", "comm_b", "comm_a"),
      ("src/comm/c.c", "comm_c", "comm_a comm_b")]),
]

NM = "sched_x T 0 10\nmalloc U\n__asan_init U\nlocal t 0 5\nsched_table R 0 8\n"


class Report:
    def __init__(self):
        self.passed, self.failed = 0, 0

    def check(self, ok, what):
        self.passed += bool(ok)
        self.failed += not ok
        if not ok:
            print("FAIL %s" % what)


def rules_of(path, text, law):
    return [f.rule for f in textrules.check(source.Source(path, text), law) if not f.allowed]


def check_texts(report, law):
    for rule, path, bad, good in TEXTS:
        got = rules_of(path, SPDX + bad, law)
        report.check(got == [rule], "%s in %s: wanted it once, got %s: %r"
                     % (rule, path, got, bad[:60]))
        if good is not None:
            got = rules_of(path, SPDX + good, law)
            report.check(not got, "%s in %s: wanted nothing, got %s: %r"
                         % (rule, path, got, good[:60]))
    report.check(rules_of("src/sched/a.c", "int x;\n", law) == ["spdx"], "spdx missing")
    report.check(rules_of("tools/x.sh", "#!/bin/sh\n", law) == ["spdx"], "spdx missing in a script")


def check_bans(report, law):
    """Each banned call, where it stands and where it may stand."""
    for call, ban in sorted(law.bans.items()):
        text = SPDX + "void sched_x(void)\n{\n    %s(1);\n}\n" % call
        report.check("banned" in rules_of("src/exec/a.c", text, law), "banned call %s" % call)
        for place in ban.places:
            if place == "nowhere":
                continue
            path = place if place.endswith(".c") else place + "/a.c"
            report.check("banned" not in rules_of(path, text, law),
                         "%s is fine in %s" % (call, path))
        member = text.replace(call + "(", "d->ops->%s(" % call)
        report.check("banned" not in rules_of("src/exec/a.c", member, law), "member %s" % call)
        quoted = SPDX + 'static const char *x = "%s()"; /* %s() */\n' % (call, call)
        report.check("banned" not in rules_of("src/exec/a.c", quoted, law), "%s in a string" % call)
    for folder in law.bounds:
        text = SPDX + "int x;\nint %s_x(void)\n{\n    return time(0);\n}\n" % folder
        report.check(rules_of("src/%s/a.c" % folder, text, law) == ["bound"], "bound %s" % folder)


def check_reasons(report, law):
    for text in REASONS:
        found = textrules.check(source.Source("src/sched/a.c", SPDX + text), law)
        report.check([f.allowed for f in found] == [True], "a reason lifts the budget: %s" % found)
    needless = SPDX + "/* long: so */\n" + body(10)
    report.check(rules_of("src/sched/a.c", needless, law) == ["budget"], "a needless reason")
    report.check(rules_of("src/sched/a.c", SPDX + NO_REASON, law) == ["budget"],
                 "the reason of another function lifts nothing")


def check_slots(report):
    """A table's wide slot is judged in the table, its implementations are not judged again."""
    law = law_module.Law.read(LAYERS)
    many = "int a, int b, int c, int d, int e, int f, int g, int h, int i"
    table = "struct dev_ops {\n    void (*embed)(%s);\n};\n" % many
    header = source.Source("src/device/device.h", SPDX + table)
    textrules.learn_slots(header, law)
    report.check(rules_of(header.name, SPDX + table, law) == ["budget"], "a wide slot")
    reason = SPDX + "\n/* long: as BLAS has it */\n" + table
    report.check(rules_of(header.name, reason, law) == [], "a wide slot with a reason")
    text = "static void ref_%%s(%s)\n{\n}\n" % many
    path = "src/device/ref/a.c"
    report.check(rules_of(path, SPDX + text % "embed", law) == [], "implementation of a slot")
    report.check(rules_of(path, SPDX + text % "other", law) == ["budget"], "no slot's name")


def check_sizes(report):
    """A place over its budget, or none at all; the nearest place counts."""
    law = law_module.Law.parse("size src: 4\nsize src/a: 3\n")

    def found(*files):
        read = [source.Source(name, "int x;\n" * lines) for name, lines in files]
        return [(f.rule, f.place) for f in sizes.check(read, law)]
    report.check(not found(("src/a/a.c", 3), ("src/b.c", 4), ("tests/t.c", 99)), "sizes are kept")
    report.check(found(("src/a/a.c", 2), ("src/a/b.c", 2)) == [("size", "src/a")], "one is over")
    report.check(found(("src/b.c", 5)) == [("size", "src")], "the rest is over")
    report.check(found(("cmd/b.c", 1)) == [("size", "tools/layers")], "a place without a budget")
    law = law_module.Law.parse("size src: 9\nspine src/a src/b.c: 4\n")
    report.check(not found(("src/a/a.c", 3), ("src/b.c", 1), ("src/c.c", 5)), "the spine is kept")
    report.check(len(found(("src/a/a.c", 3), ("src/b.c", 2))) == 1, "the spine is over")
    report.check(len(found(("src/a/a.c", 3))) == 1, "a place of the spine that is not there")


def check_objects(report, law):
    def found(listed):
        objects = [symbols.Object(name, set(d.split()), set(u.split())) for name, d, u in listed]
        return [f.rule for f in symbols.check(objects, law)]
    for rule, bad, good in OBJECTS:
        report.check(found(bad) == [rule], "%s by symbols: got %s for %s" % (rule, found(bad), bad))
        report.check(not found(good), "%s by symbols: got %s for %s" % (rule, found(good), good))
    report.check(symbols.parse_nm(NM) == ({"sched_x", "sched_table"}, {"malloc"}), "reading nm")
    where = symbols.source_of(pathlib.Path("build/CMakeFiles/plait.dir/src/sched/a.c.o"))
    report.check(where == "src/sched/a.c", "source of an object")


def check_heads(report, law):
    head = SPDX.replace(" */", "\n *").rstrip("\n") + "\n"
    chart = " *\n *     rank 0   F0 F1\n" * 20
    for lines, wanted in ((12, []), (13, ["head"])):
        text = head + " * what it is\n" * lines + chart + " */\n"
        report.check(rules_of("src/sched/a.c", text, law) == wanted, "a head of %d lines" % lines)


def check_circles(report):
    law = law_module.Law.parse("")

    def found(*files):
        objects = [symbols.Object("src/%s.c" % name, {name}, set(used.split()))
                   for name, used in files]
        return [(f.rule, f.place) for f in symbols.check_circles(objects, law)]
    two = (("a/a", "a/b"), ("a/b", "a/a"))
    report.check(found(*two) == [("circle", "src/a/a.c")], "a circle")
    report.check(found(*two, ("a/c", "a/d"), ("a/d", "a/c")) ==
                 [("circle", "src/a/a.c"), ("circle", "src/a/c.c")], "two circles")
    report.check(found(("a/a", "a/b"), ("a/b", "a/c"), ("a/c", "a/a")) ==
                 [("circle", "src/a/a.c")], "a circle of three")
    report.check(not found(("a/a", "b/b"), ("b/b", "a/a")), "folders are the layer law's")


def check_law(report):
    for text in ("layer a: b\n", "layer a: b\nlayer b: a\n", "layer\n", "ban x: nowhere\n",
                 "vendor v: headers a\n", "size a: many\n",
                 "spine a: many\n"):
        try:
            law_module.Law.parse(text)
            report.check(False, "a broken law is refused: %r" % text)
        except SystemExit:
            report.check(True, "")


def run():
    law = law_module.Law.read(LAYERS)
    report = Report()
    check_texts(report, law)
    check_bans(report, law)
    check_reasons(report, law)
    check_slots(report)
    check_sizes(report)
    check_objects(report, law)
    check_circles(report)
    check_heads(report, law)
    check_law(report)
    print("%d passed, %d failed, 0 skipped" % (report.passed, report.failed))
    return 1 if report.failed else 0
