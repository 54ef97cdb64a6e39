#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fingers on the page of `plait sim --html`, as the browser hands them on.

    tests/browser/touch_check.py build/plait

page_check.sh makes events of its own, which pass by what a browser does between a screen and a
page: it captures pointers, keeps small moves to itself, and cancels. Here headless Chromium is told
of touches (browser.py, Input.dispatchTouchEvent). Without a window it does not scroll by touch:
that the page leaves up and down to it is in page_check.sh.

Exit status 77 (skipped) where there is no Chromium.
"""
import sys

from browser import Counts, started, write_page


class Chart:
    """The page's first chart, under fingers. Places are in pixels from its corner."""

    def __init__(self, browser):
        self.browser = browser

    def touch(self, kind, *fingers):
        box = self.browser.value("(b => [b.left, b.top])(chart0.getBoundingClientRect())")
        points = [{"x": box[0] + x, "y": box[1] + y, "id": i} for i, (x, y) in enumerate(fingers)]
        self.browser.ask("Input.dispatchTouchEvent", type="touch" + kind, touchPoints=points)
        self.browser.value("new Promise(requestAnimationFrame)")  # moves come once a frame

    def swipe(self, *ways):
        """Fingers down, along their ways (from, to) in steps, and up."""
        steps = 10
        self.touch("Start", *[a for a, b in ways])
        for k in range(1, steps + 1):
            self.touch("Move", *[(a[0] + (b[0] - a[0]) * k / steps,
                                  a[1] + (b[1] - a[1]) * k / steps) for a, b in ways])
        self.touch("End")

    def tap(self, x, y=10):
        """What the page says of the action under a tap."""
        self.free()
        self.touch("Start", (x, y))
        self.touch("End")
        return self.said()

    def free(self):
        self.browser.value("chart0.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")

    def said(self):
        return self.browser.value("document.getElementById('status0').textContent")

    def place(self):
        """Where the window of time stands, of 1000; None: it shows everything."""
        return self.browser.value("(p => p.disabled ? null : +p.value)"
                                  "(document.getElementById('pan'))")


def check(chart, is_so):
    """Calls is_so(name, whether, seen) for each thing that fingers should do."""
    seen = chart.tap(80)
    is_so("a tap names the action", seen.startswith("F0, forward; stage 0"), seen)
    tip = chart.browser.value("document.getElementById('tip').textContent")
    is_so("a tap shows it beside the finger", tip.startswith("F0, forward"), tip)

    under = chart.tap(420)
    chart.free()
    chart.swipe(((410, 10), (300, 10)), ((430, 10), (540, 10)))
    is_so("two fingers zoom", chart.place() is not None, chart.place())
    is_so("zooming names nothing", chart.said() == "", chart.said())
    seen = chart.tap(420)
    is_so("time stays between the fingers", under != "" and seen == under, (under, seen))

    before = chart.place()
    chart.free()
    chart.swipe(((420, 10), (570, 10)))
    is_so("a finger moves the time", chart.place() < before, (before, chart.place()))
    is_so("moving names nothing", chart.said() == "", chart.said())
    seen = chart.tap(570)
    is_so("time stays under the finger", seen == under, (under, seen))

    before = chart.place()
    chart.free()
    chart.touch("Start", (570, 10))
    chart.touch("Cancel")
    is_so("a cancelled touch names nothing", chart.said() == "", chart.said())
    is_so("a cancelled touch moves nothing", chart.place() == before, (before, chart.place()))

    chart.swipe(((180, 10), (290, 10)), ((420, 10), (310, 10)))
    is_so("fingers together show all again", chart.place() is None, chart.place())

    # A finger lifted and put down elsewhere: the zoom begins anew from where the two stand.
    chart.touch("Start", (200, 10), (300, 10))
    chart.touch("Move", (200, 10), (350, 10))
    chart.touch("Move", (200, 10), (400, 10))
    before = chart.place()
    chart.touch("End", (200, 10))
    chart.touch("Start", (900, 10), (400, 10))
    chart.touch("Move", (900, 10), (401, 10))
    is_so("a finger put down anew zooms nothing", abs(chart.place() - before) < 5,
          (before, chart.place()))
    chart.touch("Move", (1000, 10), (300, 10))
    is_so("from there the two zoom", abs(chart.place() - before) > 50, (before, chart.place()))
    chart.touch("End")
    is_so("none of it names anything", chart.said() == "", chart.said())


def main():
    is_so = Counts("touch_check")
    with started("touch_check") as (folder, browser):
        page = write_page(sys.argv[1], folder / "step.html", "1f1b", "-p", 4, "-m", 8)
        browser.open(page, 1200, 300, touch=True)
        check(Chart(browser), is_so)
    return is_so.end()


if __name__ == "__main__":
    sys.exit(main())
