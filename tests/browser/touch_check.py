#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fingers on the page of `plait sim --html`, as the browser hands them on.

    tests/browser/touch_check.py build/plait

page_check.sh makes events of its own, which pass by what a browser does between a screen and a
page: it captures pointers, keeps small moves to itself, and cancels. Here headless Chromium is told
of touches over its debugging pipe (DevTools protocol, Input.dispatchTouchEvent; messages are JSON
ended by NUL, the browser reads them from descriptor 3 and answers on 4). Without a window it does
not scroll by touch: that the page leaves up and down to it is in page_check.sh.

Exit status 77 (skipped) where there is no Chromium.
"""
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT = 60  # seconds for all of it


class Browser:
    """Chromium without a window, and one page in it."""

    def __init__(self, program, folder):
        self.ends = time.monotonic() + LIMIT
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.ours_in, self.ours_out, self.got, self.last = ours_in, ours_out, b"", 0
        # The shell puts the pipes where the browser looks for them.
        words = ["sh", "-c", 'exec "$@" 3<&%d 4>&%d' % (theirs_in, theirs_out), "sh", program,
                 "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                 "--user-data-dir=%s/profile" % folder, "about:blank"]
        self.process = subprocess.Popen(words, pass_fds=(theirs_in, theirs_out),
                                        env={**os.environ, "HOME": folder},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def message(self):
        while b"\0" not in self.got:
            ready, _, _ = select.select([self.ours_in], [], [], self.ends - time.monotonic())
            more = os.read(self.ours_in, 1 << 16) if ready else b""
            if not more:
                raise RuntimeError("the browser has ended" if ready else "the browser is silent")
            self.got += more
        whole, self.got = self.got.split(b"\0", 1)
        return json.loads(whole)

    def ask(self, method, **params):
        self.last += 1
        call = {"id": self.last, "method": method, "params": params}
        if self.session:
            call["sessionId"] = self.session
        os.write(self.ours_out, json.dumps(call).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True,
                          awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError("%s: %s" % (expression, answer["exceptionDetails"]["text"]))
        return answer["result"].get("value")

    def open(self, path, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=True)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
        self.ask("Page.navigate", url="file://%s" % path)
        while not self.value("document.documentElement?.dataset.drawn || ''"):
            if time.monotonic() > self.ends:
                raise RuntimeError("the page is not drawn")
            time.sleep(0.05)

    def close(self):
        self.process.terminate()
        self.process.wait()


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
        return self.browser.value("document.getElementById('status').textContent")

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
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if not program:
        print("skip touch_check: there is no chromium")
        return 77
    counts = {True: 0, False: 0}

    def is_so(name, whether, seen):
        counts[bool(whether)] += 1
        if not whether:
            print("touch_check: not so: %s; seen: %s" % (name, seen))

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = pathlib.Path(folder) / "step.html"
        subprocess.run([sys.argv[1], "sim", "1f1b", "-p", "4", "-m", "8", "--html", page],
                       stdout=subprocess.DEVNULL, check=True)
        browser = Browser(program, folder)
        try:
            browser.open(page, 1200, 300)
            check(Chart(browser), is_so)
        finally:
            browser.close()
    print("%d passed, %d failed, 0 skipped" % (counts[True], counts[False]))
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
