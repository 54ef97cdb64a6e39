#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keys, and the names in boxes, on the page of `plait sim --html`.

    tests/browser/keys_check.py build/plait

Real key presses and mouse moves: what is picked is told beside its own chart, and the tip stands at
the box that is picked, also when the window of time, the page or the mouse has moved. Names: the
page's canvas is asked what it draws, for many shapes and sizes of the window; in one chart all
names have one form, none is wider or higher than its box, and where there are none a word says why.

Exit status 77 (skipped) where there is no Chromium.
"""
import re
import sys

from browser import Counts, started, write_page

# Before the page's own program: notes each text and rectangle that a canvas is told of.
SPY = """
(() => {
    window.drawn = new Map();
    const proto = CanvasRenderingContext2D.prototype, text = proto.fillText, rect = proto.fillRect;
    const of = canvas => {
        if (!drawn.has(canvas)) drawn.set(canvas, {texts: [], rects: []});
        return drawn.get(canvas);
    };
    proto.fillText = function (s, x, y) {
        const m = this.measureText(s);
        of(this.canvas).texts.push({s, x, y, w: m.width, align: this.textAlign,
            high: m.actualBoundingBoxAscent + m.actualBoundingBoxDescent});
        text.apply(this, arguments);
    };
    proto.fillRect = function (x, y, w, h) {
        if (x === 0 && y === 0) drawn.set(this.canvas, {texts: [], rects: []}); /* begins anew */
        of(this.canvas).rects.push({x, y, w, h, fill: this.fillStyle});
        rect.apply(this, arguments);
    };
})();
"""

# Of each chart: the names in boxes with their boxes, how many boxes have room for one, the note.
NAMES = """
[...document.querySelectorAll("canvas")].map((canvas, i) => {
    const all = drawn.get(canvas), data = JSON.parse(document.getElementById("data").textContent);
    const fills = new Map();
    data.kinds.forEach(k => { if (k.letter) k.fill.forEach(f => fills.set(f, k.letter)); });
    const boxes = all.rects.filter(r => fills.has(r.fill));
    const left = t => t.align === "center" ? t.x - t.w / 2 : t.align === "right" ? t.x - t.w : t.x;
    const cut = all.texts.filter(t => left(t) < 0 || left(t) + t.w > canvas.clientWidth);
    const found = all.texts.filter(t => t.align === "center" && /[0-9]$/.test(t.s)).map(t => {
        const box = boxes.find(b => t.x >= b.x && t.x <= b.x + b.w &&
                                    t.y >= b.y && t.y <= b.y + b.h);
        return box && {s: t.s, kind: fills.get(box.fill), w: t.w, high: t.high, box,
                       out: Math.max(box.x - (t.x - t.w / 2), t.x + t.w / 2 - box.x - box.w)};
    }).filter(Boolean);
    return {cut: cut.map(t => t.s), boxes: boxes.length, names: found,
            stages: data.charts[i].stages,
            spans: data.charts[i].kind.filter(k => data.kinds[k].letter).length,
            note: document.getElementById("note" + i).textContent};
})
"""

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27, "End": 35,
        "Home": 36}


class Page:
    def __init__(self, browser):
        self.browser = browser

    def press(self, *keys):
        for key in keys:
            text = {} if key in KEYS else {"text": key}
            code = KEYS.get(key, ord(key[0].upper()))
            for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
                self.browser.ask("Input.dispatchKeyEvent", type=kind, key=key,
                                 windowsVirtualKeyCode=code, **(text if kind != "keyUp" else {}))
        self.frame()

    def mouse(self, chart, x, y):
        left, top = self.browser.value(
            "(r => [r.left, r.top])(chart%d.getBoundingClientRect())" % chart)
        self.browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=left + x, y=top + y)
        self.frame()

    def frame(self):
        self.browser.value("new Promise(requestAnimationFrame)")
        self.browser.value("new Promise(requestAnimationFrame)")

    def focus(self, chart):
        self.browser.value("chart%d.focus()" % chart)

    def said(self):
        return self.browser.value(
            "[...document.querySelectorAll('[role=status]')].map(e => e.textContent)")

    def tip(self):
        """Its text, or None: hidden."""
        return self.browser.value("(t => t.hidden ? null : t.textContent)"
                                  "(document.getElementById('tip'))")

    def gap(self, chart, axis):
        """Pixels between the tip and the box that is marked as picked."""
        return self.browser.value("""(() => {
            const t = document.getElementById('tip').getBoundingClientRect();
            const r = chart%d.getBoundingClientRect(), m = window.marked;
            const x0 = r.left + m.x, x1 = x0 + m.w, y0 = r.top + m.y, y1 = y0 + m.h;
            return %s;
        })()""" % (chart, "Math.max(t.left - x1, x0 - t.right, 0)" if axis == "x" else
                   "Math.max(t.top - y1, y0 - t.bottom, 0)"))


MARK = """
(() => {
    const stroke = CanvasRenderingContext2D.prototype.strokeRect;
    CanvasRenderingContext2D.prototype.strokeRect = function (x, y, w, h) {
        window.marked = {x, y, w, h};
        stroke.apply(this, arguments);
    };
})();
"""


def beside(page, chart, first_line, is_so, what):
    """The tip tells of the box that the chart's status tells of, and stands at it."""
    tip, said = page.tip(), page.said()
    name = first_line.split(",")[0]
    is_so("%s: the tip is of %s" % (what, name), tip and tip.startswith(first_line), tip)
    is_so("%s: it is said beside its chart" % what, first_line in said[chart], said)
    is_so("%s: and nowhere else" % what,
          all(not s for i, s in enumerate(said) if i != chart), said)
    if tip:
        gap = page.gap(chart, "x"), page.gap(chart, "y")
        is_so("%s: the tip is at its box" % what, gap[0] < 2 and gap[1] < 12, gap)


def check_keys(page, is_so):
    page.focus(0)
    page.press("ArrowRight")
    beside(page, 0, "F0, forward\nstage 0".split("\n")[0], is_so, "a first key")
    for n in range(1, 4):
        page.press("ArrowRight")
        beside(page, 0, "F%d, forward" % n, is_so, "right")
    page.press("ArrowDown")
    beside(page, 0, page.said()[0].split(": ", 1)[1].split(";")[0], is_so, "down")
    page.press("ArrowUp", "ArrowLeft")
    beside(page, 0, page.said()[0].split(": ", 1)[1].split(";")[0], is_so, "up and left")
    before = page.said()[0]
    for keys in ("+++", "-", "+++", "--"):
        page.press(*keys)
        beside(page, 0, before.split(": ", 1)[1].split(";")[0], is_so, "zoomed by %s" % keys)
    page.press("d", "d", "d", "d", "d")
    is_so("moved out of sight it has no tip", page.tip() is None, page.tip())
    is_so("and is still told", page.said()[0] == before, page.said())
    page.press("0")
    beside(page, 0, before.split(": ", 1)[1].split(";")[0], is_so, "the whole step again")

    # A mouse that lies somewhere does not hold the tip back.
    page.mouse(0, 700, 10)
    under = page.tip()
    is_so("the mouse has its tip", under and "rank 0" in under, under)
    is_so("and no text of a key", not any(page.said()), page.said())
    page.press("ArrowRight")
    beside(page, 0, page.said()[0].split(": ", 1)[1].split(";")[0], is_so, "a key under the mouse")
    is_so("the tip has moved on", page.tip() != under, page.tip())
    page.press(*["ArrowLeft"] * 6)  # far from the mouse
    beside(page, 0, page.said()[0].split(": ", 1)[1].split(";")[0], is_so, "keys from the mouse")

    # The other chart, which is further down: its own status, in sight.
    page.press("Escape")
    is_so("escape lets go", page.tip() is None and not any(page.said()), page.said())
    page.browser.value("document.activeElement.blur()")
    page.mouse(0, 5, 5)
    page.focus(1)
    page.press("ArrowRight", "ArrowRight")
    beside(page, 1, page.said()[1].split(": ", 1)[1].split(";")[0], is_so, "the second chart")
    for _ in range(3):
        page.press("ArrowDown")
    beside(page, 1, page.said()[1].split(": ", 1)[1].split(";")[0], is_so, "its last rank")
    seen = page.browser.value("(t => t.top >= 0 && t.bottom <= innerHeight)"
                              "(document.getElementById('tip').getBoundingClientRect())")
    is_so("the tip is in sight", seen)
    page.browser.value("scrollBy(0, 40)")
    page.frame()
    if page.tip():
        beside(page, 1, page.said()[1].split(": ", 1)[1].split(";")[0], is_so, "after scrolling")


def form_of(name):
    return re.sub("[0-9]+", "0", name)


def check_names(chart, what, is_so):
    is_so("%s: no text is cut by the chart's edge" % what, not chart["cut"], chart["cut"])
    forms = {re.sub("[FBIWR]", "A", form_of(n["s"])) for n in chart["names"]}
    is_so("%s: one form of names" % what, len(forms) <= 1, sorted(forms))
    wide = [n for n in chart["names"] if n["out"] > 0.25 or n["high"] > n["box"]["h"]]
    is_so("%s: no name leaves its box" % what, not wide, wide[:2])
    wrong = [n for n in chart["names"] if re.search("[FBIWR]", n["s"]) and n["kind"] not in n["s"]]
    is_so("%s: names tell the box's kind" % what, not wrong, wrong[:2])
    if chart["names"]:
        is_so("%s: all boxes are named" % what, len(chart["names"]) == chart["boxes"],
              (len(chart["names"]), chart["boxes"]))
        is_so("%s: it is said how" % what, chart["note"].startswith("In the boxes: "),
              chart["note"])
    else:
        is_so("%s: it is said why there are no names" % what,
              chart["note"].startswith("No names: "), chart["note"])


SHAPES = [
    ("1f1b", 2, 2), ("1f1b", 16, 64), ("gpipe", 4, 12), ("interleaved", 4, 16, "-v", 4),
    ("zb-h1", 8, 16), ("zb-v", 4, 11), ("dualpipe", 8, 20), ("dualpipev", 4, 128),
    ("chimera", 4, 8), ("seq1f1b", 4, 8, "--slices", 4), ("1f1b", 4, 8, "--recompute"),
    ("dualpipe", 16, 64),
    ("1f1b", 4, 12, "--scale", "1,1,1.7,1", "--tc", "0.3"), ("interleaved", 16, 128, "-v", 2),
    ("dualpipe", 64, 128), ("1f1b", 200, 2),
]


def check_shapes(browser, folder, plait, is_so):
    page = Page(browser)
    for name, p, m, *rest in SHAPES:
        what = "%s %d x %d %s" % (name, p, m, " ".join(map(str, rest)))
        path = write_page(plait, folder / "shape.html", name, "-p", p, "-m", m, *rest)
        for width in (600, 1300, 2400):
            browser.open(path, width, 900)
            page.frame()
            check_names(browser.value(NAMES)[0], "%s at %d" % (what, width), is_so)
            browser.value("document.getElementById('memory').click()")
            page.frame()
            check_names(browser.value(NAMES)[0], "%s at %d, no memory" % (what, width), is_so)
            browser.value("document.getElementById('memory').click()")
        # Zoomed in until there are names: boxes that the window's edge cuts need not have one.
        page.focus(0)
        for _ in range(20):
            if browser.value(NAMES)[0]["names"] or p > 64:
                break
            page.press("+", "+")
        chart = browser.value(NAMES)[0]
        is_so("%s: zoomed in there are names" % what, chart["names"] or p > 64, chart["note"])
        forms = {re.sub("[FBIWR]", "A", form_of(n["s"])) for n in chart["names"]}
        is_so("%s: zoomed, one form" % what, len(forms) <= 1, sorted(forms))


def main():
    is_so = Counts("keys_check")
    with started("keys_check") as (folder, browser):
        plait = sys.argv[1]
        browser.ask("Page.enable")
        browser.ask("Page.addScriptToEvaluateOnNewDocument", source=SPY + MARK)
        path = write_page(plait, folder / "two.html", "--compare", "1f1b,dualpipev@2", "-p", 4,
                          "-m", 8)
        browser.open(path, 1200, 600)
        check_keys(Page(browser), is_so)
        check_shapes(browser, folder, plait, is_so)
    return is_so.end()


if __name__ == "__main__":
    sys.exit(main())
