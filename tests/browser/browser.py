# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium over its debugging pipe, for the checks of the simulator's page: DevTools
protocol, messages are JSON ended by NUL, the browser reads them from descriptor 3 and answers on 4.
What is sent as input goes through all that a browser does between a keyboard, a mouse or a screen
and a page; events made by a script pass that by.
"""
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

LIMIT = 100  # seconds for all of a check


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

    def open(self, path, width, height, touch=False):
        """A page of `plait sim --html` or the like, drawn."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=touch)
        if touch:
            self.ask("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
        url = "file://%s?%d" % (path, self.last)  # never the one before
        self.ask("Page.navigate", url=url)
        while not self.value("location.href === %s && document.documentElement?.dataset.drawn"
                             % json.dumps(url)):
            if time.monotonic() > self.ends:
                raise RuntimeError("the page is not drawn")
            time.sleep(0.05)

    def close(self):
        self.process.terminate()
        self.process.wait()


class Counts:
    """What was so and what was not."""

    def __init__(self, name):
        self.name, self.of = name, {True: 0, False: 0}

    def __call__(self, what, whether, seen=""):
        self.of[bool(whether)] += 1
        if not whether:
            print("%s: not so: %s; seen: %s" % (self.name, what, seen))

    def end(self):
        print("%d passed, %d failed, 0 skipped" % (self.of[True], self.of[False]))
        return 1 if self.of[False] else 0


@contextlib.contextmanager
def started(name):
    """A folder, and a browser; where there is none the check is skipped (exit status 77)."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if not program:
        print("skip %s: there is no chromium" % name)
        sys.exit(77)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        try:
            yield pathlib.Path(folder), browser
        finally:
            browser.close()


def write_page(plait, path, *words):
    """`plait sim WORDS --html PATH`."""
    subprocess.run([plait, "sim", *map(str, words), "--html", str(path)],
                   stdout=subprocess.DEVNULL, check=True)
    return path
