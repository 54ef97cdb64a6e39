#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The page of `plait sim --html` in a real browser: every box is drawn, keys move from action to
# action, zoom and let go, a pointer finds what lies under it, a finger taps and drags, two fingers
# zoom. A copy of the page gets a script that does these things and writes what came of them into
# the document, which headless Chromium prints. (Fingers as a browser hands them on: touch_check.py)
#
#     tests/browser/page_check.sh build/plait
#
# Exit status 77 (skipped) where there is no Chromium; it is no dependency of plait.
set -eu

plait=$1
browser=
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        browser=$name
        break
    fi
done
if [ -z "$browser" ]; then
    echo "skip page_check: there is no chromium"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$plait" sim --compare 1f1b,dualpipev@2 -p 4 -m 8 --html "$dir/step.html" >/dev/null

cat > "$dir/act.html" <<'END'
<script>
const chart = document.getElementById("chart0"), said = document.getElementById("status0");
const result = {};
const key = k => chart.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true}));
const point = (type, x, y) => chart.dispatchEvent(new PointerEvent(type,
    {clientX: x, clientY: y, pointerId: 1, pointerType: "mouse", bubbles: true}));
key("ArrowRight"); result.first = said.textContent;
key("ArrowRight"); result.second = said.textContent;
key("ArrowDown"); result.below = said.textContent;
key("Escape"); result.freed = said.textContent;
const box = chart.getBoundingClientRect();
point("pointermove", box.left + 80, box.top + 10);
result.tip = document.getElementById("tip").textContent.split("\n")[0];
for (let i = 0; i < 4; i++) key("+");
result.zoomed = !document.getElementById("pan").disabled;
key("0");
result.whole = document.getElementById("pan").disabled;
const paint = chart.getContext("2d").getImageData(chart.width / 12, 12, 1, 1).data;
result.painted = paint[2] > paint[0];

/* Fingers: events made here cannot be captured, so the canvas is told not to. */
const pan = document.getElementById("pan"), captured = [];
chart.setPointerCapture = id => captured.push(id);
const touch = (type, id, x) => chart.dispatchEvent(new PointerEvent(type,
    {clientX: box.left + x, clientY: box.top + 10, pointerId: id, pointerType: "touch",
     bubbles: true}));
const wide = () => !pan.disabled;
key("Escape");
document.getElementById("tip").textContent = "";
touch("pointerdown", 2, 80); touch("pointermove", 2, 81);
result.hovers = !document.getElementById("tip").hidden;
touch("pointerup", 2, 81);
result.tap = said.textContent.split(",")[2];
result.shown = document.getElementById("tip").textContent.split("\n")[0];
result.captured = captured.join("+");
key("Escape");
touch("pointerdown", 2, 400); touch("pointerdown", 3, 500);
touch("pointermove", 3, 510); touch("pointermove", 3, 730);
result.pinched = wide();
touch("pointermove", 3, 450);
result.spread_back = wide();
touch("pointermove", 3, 1060);
touch("pointerup", 3, 1060); touch("pointerup", 2, 400);
result.pinch_picks = said.textContent !== "";
const before = +pan.value;
touch("pointerdown", 2, 500); touch("pointermove", 2, 400);
const after = +pan.value;
touch("pointermove", 2, 500);
result.dragged = after > before && Math.abs(+pan.value - before) < 2;
touch("pointerup", 2, 500);
result.drag_picks = said.textContent !== "";
touch("pointerdown", 2, 500); touch("pointercancel", 2, 500);
touch("pointermove", 2, 300);
result.cancelled = Math.abs(+pan.value - before) < 2 && said.textContent === "";
result.scrolls = getComputedStyle(chart).touchAction;
document.body.dataset.result = Object.entries(result).map(e => e.join("=")).join("|");
</script>
END
cat "$dir/step.html" "$dir/act.html" > "$dir/page.html"
HOME=$dir timeout 60 "$browser" --headless --no-sandbox --disable-gpu --window-size=1200,900 \
    --user-data-dir="$dir/profile" --virtual-time-budget=2000 --dump-dom "file://$dir/page.html" \
    > "$dir/dom.html" 2>/dev/null || { echo "page_check: $browser failed"; exit 1; }

failed=0
expect() {
    if ! grep -q -- "$1" "$dir/dom.html"; then
        echo "page_check: the page has no $1"
        failed=1
    fi
}
expect 'data-drawn="[1-9][0-9]*"'
expect 'first=1f1b, p 4, m 8: F0, forward; stage 0, .*: 1; 1 activation kept|'
expect '|second=1f1b, p 4, m 8: F1, forward'
expect '|below=1f1b, p 4, m 8: F0, forward; stage 1'
expect '|freed=|'
expect '|tip=F0, forward'
expect '|zoomed=true|whole=true|painted=true'
expect '|hovers=false|tap= m 8: F0|shown=F0, forward|captured=2|'
expect '|captured=2|pinched=true|spread_back=false|pinch_picks=false'
expect '|pinch_picks=false|dragged=true|drag_picks=false'
expect '|drag_picks=false|cancelled=true|scrolls=pan-y'
if [ $failed -ne 0 ]; then
    grep -o 'data-result="[^"]*"' "$dir/dom.html" || echo "page_check: the script did not end"
    exit 1
fi
echo "1 passed, 0 failed, 0 skipped"
