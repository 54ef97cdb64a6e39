/* SPDX-License-Identifier: Apache-2.0
 *
 * The page's chart. All data stand in the page; nothing is fetched. One window of time serves all
 * charts, so that schedules are seen at the same moment and scale. Only what is in the window is
 * drawn: a row's spans are in order, so the first visible one is found by bisection.
 */
"use strict";
(function () {
    const data = JSON.parse(document.getElementById("data").textContent);
    const $ = id => document.getElementById(id);
    const view = { from: 0, to: data.end || 1 };
    const charts = data.charts.map((chart, i) =>
        ({ ...chart, canvas: $("chart" + i), status: $("status" + i), note: $("note" + i) }));
    const AXIS = 28, HALF = 1, LOWER = 2, RIGHT = 8;
    const FONT = "px system-ui, 'DejaVu Sans', sans-serif", LARGE = 11, SMALL = 8.5;
    let picked = null;   /* {chart, span}: under the mouse, tapped, or reached by key */
    let mouse = null;    /* {chart, x, y}: where it stands, in the chart's pixels */
    let memory = true, colors = {}, frame = 0;

    const number = x => String(+x.toPrecision(6));
    const time = x => number(x) + (data.time ? " " + data.time : "");
    function amount(x) {
        if (data.memory !== "bytes")
            return number(x) + " " + (x === 1 ? data.memory.replace(/s$/, "") : data.memory);
        const units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let u = 0;
        while (x >= 1024 && u < 4) { x /= 1024; u++; }
        return +x.toPrecision(4) + " " + units[u];
    }

    /* ---- sizes ---- */
    function measure(c) {
        const n = c.ranks;
        c.row = n <= 8 ? 30 : n <= 16 ? 24 : n <= 32 ? 19 : n <= 64 ? 14 : Math.max(2, Math.floor(1200 / n));
        if (c.pairs && n <= 64) c.row = Math.max(c.row, 20); /* two names above one another */
        c.spark = memory && c.memory && c.row >= 8 ? Math.round(c.row * 0.7) : 0;
        c.beside = c.comm ? Math.max(2, Math.round(c.row * 0.25)) + 1 : 0;
        c.gap = c.row >= 8 ? 4 : 0;
        c.left = c.row >= 10 ? 14 + 7 * ("rank " + (n - 1)).length : 8;
        c.right = RIGHT + (c.spark ? 64 : 0);
        c.pitch = c.row + c.beside + c.spark + c.gap;
        c.height = n * c.pitch + AXIS;
        c.width = c.canvas.clientWidth;
        const most = 16000 / Math.max(c.height, c.width, 1);
        c.ratio = Math.min(window.devicePixelRatio || 1, most);
        c.canvas.style.height = c.height + "px";
        c.canvas.width = Math.round(c.width * c.ratio);
        c.canvas.height = Math.round(c.height * c.ratio);
        c.inner = Math.max(c.width - c.left - c.right, 1);
    }
    const toX = (c, t) => c.left + (t - view.from) / (view.to - view.from) * c.inner;
    const toTime = (c, x) => view.from + (x - c.left) / c.inner * (view.to - view.from);

    /* The first of lo .. hi - 1 from which on `is` holds; hi: none. */
    function bisect(lo, hi, is) {
        while (lo < hi) {
            const mid = (lo + hi) >> 1;
            if (is(mid)) hi = mid; else lo = mid + 1;
        }
        return lo;
    }
    /* The first span of a rank that ends after `t`. Pairs overlap, hence the step back. */
    function first(c, rank, t) {
        let lo = bisect(c.begin[rank], c.begin[rank + 1], i => c.stop[i] > t);
        while (lo > c.begin[rank] && c.stop[lo - 1] > t) lo--;
        return lo;
    }

    /* ---- drawing ---- */
    function readColors() {
        const style = getComputedStyle(document.documentElement);
        for (const name of ["ground", "ink", "soft", "line", "idle", "accent", "memory"])
            colors[name] = style.getPropertyValue("--" + name).trim();
    }

    function boxOf(c, i, rank) {
        const x = toX(c, c.start[i]), w = toX(c, c.stop[i]) - x, lane = c.lane[i];
        let y = rank * c.pitch, h = c.row;
        if (data.kinds[c.kind[i]].thin) { y += h * 0.4; h *= 0.2; }
        else if (lane >= HALF) { h /= 2; y += lane === LOWER ? h : 0; }
        return { x, y, w, h };
    }

    function label(c, i) {
        if (c.labels[i]) return c.labels[i];
        const kind = data.kinds[c.kind[i]];
        if (!kind.letter) return kind.name;
        return (c.stages ? c.stage[i] : "") + kind.letter + c.mb[i];
    }

    /* How the boxes of a chart are named: all in one form, so that what is missing never depends on
     * a number's digits. A form is taken when the longest name of each kind fits in its shortest
     * box. `names` are by kind: that box's time (0: there is none), digits of stage and microbatch. */
    const FORMS = [
        { letter: true, stage: true, words: "action, microbatch" },
        { letter: true, words: "action and microbatch" },
        { words: "microbatch" },
    ];
    /* Widest digit and letters of a font, in pixels. */
    const widths = {};
    function widthsOf(g, size) {
        if (widths[size]) return widths[size];
        g.font = size + FONT;
        const of = { digit: Math.max(...[..."0123456789"].map(d => g.measureText(d).width)) };
        for (const kind of data.kinds)
            if (kind.letter) of[kind.letter] = g.measureText(kind.letter).width;
        return widths[size] = of;
    }
    function needed(c, g, form, size) {
        const w = widthsOf(g, size);
        return data.kinds.map((kind, k) => {
            const [time, stage, mb] = c.names[k];
            if (!time) return 0;
            return (mb + (form.stage && c.stages ? stage : 0)) * w.digit +
                (form.letter ? w[kind.letter] : 0) + (size === LARGE ? 3 : 2);
        });
    }
    function chooseNames(c, g) {
        const scale = c.inner / (view.to - view.from), height = c.pairs ? c.row / 2 : c.row;
        c.form = null;
        for (const size of height < 9 ? [] : height < 13 ? [SMALL] : [LARGE, SMALL])
            for (const form of FORMS) {
                const need = needed(c, g, form, size);
                if (c.form || need.some((w, k) => w > c.names[k][0] * scale)) continue;
                c.form = { ...form, size, need };
            }
        const said = !c.start.length ? "" : height < 9 ? "No names: the rows are too low for them." :
            !c.form ? "No names: the boxes are too narrow for their numbers; zoom in." :
            "In the boxes: " + (c.form.stage && c.stages ? "stage, " : "") + c.form.words + ".";
        if (c.note.textContent !== said) c.note.textContent = said;
    }
    function nameOf(c, i) {
        if (c.labels[i]) return c.labels[i];
        return (c.form.stage && c.stages ? c.stage[i] : "") +
            (c.form.letter ? data.kinds[c.kind[i]].letter : "") + c.mb[i];
    }

    function drawName(c, g, i, b) {
        if (!c.form || !data.kinds[c.kind[i]].letter) return;
        /* A box cut by the window's edge has its name in the part that is seen. */
        const from = Math.max(b.x, c.left), to = Math.min(b.x + b.w, c.left + c.inner);
        g.font = c.form.size + FONT;
        const name = nameOf(c, i);
        if (to - from < (c.labels[i] ? g.measureText(name).width + 3 : c.form.need[c.kind[i]])) return;
        g.fillStyle = c.level[i] < 4 ? "#10161d" : "#ffffff";
        g.fillText(name, (from + to) / 2, b.y + b.h / 2 + 0.5);
    }

    function drawRow(c, g, rank) {
        g.fillStyle = colors.idle;
        g.fillRect(c.left, rank * c.pitch, c.inner, c.row);
        const follow = picked && charts[picked.chart].mb[picked.span];
        let last = -1;
        for (let i = first(c, rank, view.from); i < c.begin[rank + 1] && c.start[i] < view.to; i++) {
            const b = boxOf(c, i, rank), pixel = Math.floor((b.x + b.w) * 2);
            if (b.w < 0.5 && pixel === last && c.lane[i] === 0) continue;
            last = pixel;
            g.fillStyle = data.kinds[c.kind[i]].fill[c.level[i]];
            const same = picked && data.kinds[c.kind[i]].letter && c.mb[i] === follow;
            g.globalAlpha = !picked || same ? 1 : 0.45;
            const edge = b.w > 3 ? 0.7 : 0;
            g.fillRect(b.x, b.y, Math.max(b.w - edge, 0.5), b.h - (b.h > 6 ? 0.7 : 0));
            drawName(c, g, i, b);
        }
        g.globalAlpha = 1;
    }

    /* What a rank sums and gathers, below its boxes. */
    function drawLane(c, g, rank) {
        const lane = c.comm[rank], y = rank * c.pitch + c.row + 1;
        g.fillStyle = colors.idle;
        g.fillRect(c.left, y, c.inner, c.beside - 1);
        for (let k = 0; k < lane.length; k += 4) {
            if (lane[k + 1] <= view.from || lane[k] >= view.to) continue;
            const x = toX(c, lane[k]), w = toX(c, lane[k + 1]) - x;
            g.fillStyle = c.lanes[lane[k + 2]];
            g.fillRect(x, y, Math.max(w - (w > 3 ? 0.7 : 0), 0.5), c.beside - 1);
        }
    }

    function drawMemory(c, g, rank) {
        const curve = c.memory[rank], base = rank * c.pitch + c.row + c.beside + c.spark;
        const high = (c.spark - 4) / (data.peak || 1);
        const lo = bisect(0, curve.length / 2, k => curve[2 * k] > view.from);
        let peak = 0;
        for (let k = 1; k < curve.length; k += 2) peak = Math.max(peak, curve[k]);
        let value = lo > 0 ? curve[2 * lo - 1] : 0;
        g.beginPath();
        g.moveTo(c.left, base);
        g.lineTo(c.left, base - value * high);
        for (let k = lo; k < curve.length / 2 && curve[2 * k] < view.to; k++) {
            const x = toX(c, curve[2 * k]);
            g.lineTo(x, base - value * high);
            value = curve[2 * k + 1];
            g.lineTo(x, base - value * high);
        }
        g.lineTo(c.left + c.inner, base - value * high);
        g.lineTo(c.left + c.inner, base);
        g.fillStyle = colors.memory;
        g.fill();
        if (c.spark < 9) return;
        g.textAlign = "left";
        g.fillStyle = colors.soft;
        g.font = "10px system-ui, 'DejaVu Sans', sans-serif";
        g.fillText(data.memory === "bytes" ? amount(peak) : number(peak), c.left + c.inner + 6, base - 5);
    }

    function drawAxis(c, g) {
        const span = view.to - view.from, least = span / Math.max(1, Math.floor(c.inner / 90));
        const ten = Math.pow(10, Math.floor(Math.log10(least)));
        const step = ten * [1, 2, 5, 10].find(s => s * ten >= least * (1 - 1e-9));
        const bottom = c.ranks * c.pitch;
        g.font = "11px system-ui, 'DejaVu Sans', sans-serif";
        g.textAlign = "center";
        for (let k = Math.ceil(view.from / step - 1e-9); k * step <= view.to * (1 + 1e-9); k++) {
            const x = toX(c, k * step);
            g.fillStyle = colors.line;
            g.fillRect(x, 0, 1, bottom + 4);
            g.fillStyle = colors.soft;
            const half = g.measureText(time(k * step)).width / 2 + 1; /* whole at both edges */
            g.fillText(time(k * step), Math.min(Math.max(x, half), c.width - half), bottom + 16);
        }
    }

    function drawNames(c, g) {
        if (c.row < 10) return;
        g.textAlign = "right";
        g.fillStyle = colors.soft;
        g.font = "12px system-ui, 'DejaVu Sans', sans-serif";
        for (let rank = 0; rank < c.ranks; rank++)
            g.fillText("rank " + rank, c.left - 6, rank * c.pitch + c.row / 2 + 1);
    }

    function drawMarks(c, g, index) {
        if (picked && picked.chart === index) {
            const b = boxOf(c, picked.span, c.rank(picked.span));
            g.strokeStyle = colors.ink;
            g.lineWidth = 2;
            g.strokeRect(b.x, b.y + 1, Math.max(b.w - 1, 2), b.h - 2);
        }
        if (mouse) {
            const x = toX(c, toTime(charts[mouse.chart], mouse.x));
            g.fillStyle = colors.accent;
            if (x >= c.left && x <= c.left + c.inner) g.fillRect(x, 0, 1, c.ranks * c.pitch);
        }
    }

    function draw() {
        frame = 0;
        charts.forEach((c, index) => {
            const g = c.canvas.getContext("2d");
            g.setTransform(c.ratio, 0, 0, c.ratio, 0, 0);
            g.fillStyle = colors.ground;
            g.fillRect(0, 0, c.width, c.height);
            g.textBaseline = "middle";
            drawAxis(c, g);
            g.save();
            g.beginPath();
            g.rect(c.left, 0, c.inner, c.height);
            g.clip();
            g.textAlign = "center";
            chooseNames(c, g);
            for (let rank = 0; rank < c.ranks; rank++) drawRow(c, g, rank);
            for (let rank = 0; c.comm && rank < c.ranks; rank++) drawLane(c, g, rank);
            g.restore();
            for (let rank = 0; c.spark && rank < c.ranks; rank++) drawMemory(c, g, rank);
            drawNames(c, g);
            drawMarks(c, g, index);
        });
        placeTip();
    }
    const redraw = () => { if (!frame) frame = requestAnimationFrame(draw); };

    /* ---- the window of time ---- */
    function show(from, to) {
        const all = data.end || 1, least = Math.min(all, (data.shortest || all) / 2);
        let span = Math.min(Math.max(to - from, least), all);
        from = Math.min(Math.max((from + to - span) / 2, 0), all - span);
        view.from = from;
        view.to = from + span;
        $("pan").disabled = all - span <= 1e-9 * all;
        $("pan").value = $("pan").disabled ? 0 : 1000 * from / (all - span);
        look();
    }
    /* The middle of what is picked, if it is in the window, or of the window. */
    function middle() {
        const c = picked && charts[picked.chart];
        const at = c ? (c.start[picked.span] + c.stop[picked.span]) / 2 : -1;
        return at >= view.from && at <= view.to ? at : (view.from + view.to) / 2;
    }
    function zoom(factor, around) {
        const at = around === undefined ? middle() : around;
        let span = (view.to - view.from) / factor;
        const least = Math.min(data.end || 1, (data.shortest || data.end || 1) / 2);
        span = Math.max(span, least);
        const from = at - (at - view.from) * span / (view.to - view.from);
        show(from, from + span);
    }
    function move(by) {
        show(view.from + by, view.to + by);
    }

    /* ---- what is under the pointer, what the keys reach ---- */
    charts.forEach(c => { c.rank = span => bisect(0, c.ranks, rank => c.begin[rank + 1] > span); });

    function describe(index, i) {
        const c = charts[index], kind = data.kinds[c.kind[i]];
        const lines = [label(c, i) + (kind.letter ? ", " + kind.name : "")];
        if (kind.letter) lines.push("stage " + c.stage[i] + ", microbatch " + c.mb[i] +
            (c.level[i] >= 4 ? ", second replica" : ""));
        lines.push("rank " + c.rank(i) + ", " + time(c.start[i]) + " to " + time(c.stop[i]) +
            ": " + time(c.stop[i] - c.start[i]));
        if (c.memory) lines.push(memoryAt(c, c.rank(i), c.start[i]) + " kept");
        return lines;
    }
    function memoryAt(c, rank, t) {
        const curve = c.memory[rank];
        let value = 0;
        for (let k = 0; k < curve.length && curve[k] <= t; k += 2) value = curve[k + 1];
        return amount(value);
    }
    function hit(c, x, y) {
        const rank = Math.floor(y / c.pitch), t = toTime(c, x), slack = 2 / c.inner * (view.to - view.from);
        if (rank < 0 || rank >= c.ranks || x < c.left || x > c.left + c.inner) return -1;
        const low = y - rank * c.pitch > c.row / 2;
        let best = -1;
        for (let i = first(c, rank, t - slack); i < c.begin[rank + 1] && c.start[i] <= t + slack; i++)
            if (best < 0 || (c.start[i] <= t && c.stop[i] > t && (c.lane[i] === 0 || (c.lane[i] === LOWER) === low)))
                best = i;
        return best;
    }
    /* What is picked is said beside its chart, where it was asked for: by a key or a tap, not by
     * each move of the mouse. */
    function pick(index, span, say) {
        picked = span < 0 ? null : { chart: index, span, by: say ? "key" : "mouse" };
        charts.forEach((c, i) => {
            const said = picked && say && i === index ?
                (charts.length > 1 ? c.title + ": " : "") + describe(index, span).join("; ") : "";
            if (c.status.textContent !== said) c.status.textContent = said;
        });
        placeTip();
        redraw();
    }
    /* The mouse picks what is under it, also when the chart moves under the mouse. What was picked
     * by a key or a tap stays picked. */
    function look() {
        if (mouse && !(picked && picked.by === "key"))
            pick(mouse.chart, hit(charts[mouse.chart], mouse.x, mouse.y), false);
        redraw();
    }
    /* The tip stands beside the mouse, or beside the box that was picked otherwise; where that box is
     * out of the window of time or of the reader's sight, there is none. */
    function placeTip() {
        const box = $("tip");
        let at = null;
        if (picked) {
            const c = charts[picked.chart], r = c.canvas.getBoundingClientRect();
            const b = boxOf(c, picked.span, c.rank(picked.span));
            const from = Math.max(b.x, c.left), to = Math.min(b.x + b.w, c.left + c.inner);
            if (picked.by === "mouse" && mouse)
                at = { x: r.left + mouse.x + 14, high: r.top + mouse.y - 12, low: r.top + mouse.y + 18 };
            else if (from <= to && r.top + b.y + b.h >= 0 && r.top + b.y <= innerHeight)
                at = { x: r.left + (from + to) / 2, high: r.top + b.y - 6, low: r.top + b.y + b.h + 6 };
        }
        box.hidden = !at;
        if (!at) return;
        const text = describe(picked.chart, picked.span).join("\n");
        if (box.textContent !== text) box.textContent = text;
        const w = box.offsetWidth, h = box.offsetHeight;
        box.style.left = Math.max(4, Math.min(at.x, innerWidth - w - 4)) + "px";
        box.style.top = Math.max(4, at.low + h > innerHeight ? at.high - h : at.low) + "px";
    }
    /* The visible neighbour: left and right within a rank, up and down at the same time. */
    function step(index, dx, dy) {
        const c = charts[index];
        if (!picked || picked.chart !== index) {
            const rank = 0, i = first(c, rank, view.from);
            return go(index, Math.min(i, c.begin[rank + 1] - 1));
        }
        let rank = c.rank(picked.span), i = picked.span + dx;
        if (dy) {
            const middle = (c.start[picked.span] + c.stop[picked.span]) / 2;
            rank += dy;
            if (rank < 0 || rank >= c.ranks) return;
            i = Math.min(first(c, rank, middle), c.begin[rank + 1] - 1);
        }
        if (i >= c.begin[rank] && i < c.begin[rank + 1]) go(index, i);
    }
    function go(index, i) {
        const c = charts[index];
        if (i < 0) return;
        pick(index, i, true);
        if (c.start[i] < view.from) move(c.start[i] - view.from);
        if (c.stop[i] > view.to) move(c.stop[i] - view.to);
        const b = boxOf(c, i, c.rank(i)), top = c.canvas.getBoundingClientRect().top + b.y;
        const bar = document.querySelector(".bar").getBoundingClientRect().bottom;
        if (top < bar) scrollBy(0, top - bar - 8);
        else if (top + c.pitch > innerHeight) scrollBy(0, top + c.pitch + 8 - innerHeight);
    }

    const keys = {
        "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "0": () => show(0, data.end),
        w: () => zoom(1.5), s: () => zoom(1 / 1.5), a: () => move(-0.25 * (view.to - view.from)), d: () => move(0.25 * (view.to - view.from)),
        Home: () => move(-data.end), End: () => move(data.end),
        Escape: () => pick(0, -1, true),
        ArrowLeft: i => step(i, -1, 0), ArrowRight: i => step(i, 1, 0),
        ArrowUp: i => step(i, 0, -1), ArrowDown: i => step(i, 0, 1),
    };

    charts.forEach((c, index) => {
        const down = new Map(); /* pointers that touch, by id */
        let moved = false, spread = 0;
        const at = e => {
            const r = c.canvas.getBoundingClientRect();
            return { x: e.clientX - r.left, y: e.clientY - r.top };
        };
        c.canvas.addEventListener("pointerdown", e => {
            down.set(e.pointerId, at(e));
            moved = false;
            spread = 0;
            if (e.pointerType !== "mouse" || e.button === 0) c.canvas.setPointerCapture(e.pointerId);
        });
        c.canvas.addEventListener("pointermove", e => {
            const p = at(e), before = down.get(e.pointerId);
            if (before && down.size === 1) {
                if (Math.abs(p.x - before.x) > 2 || moved) {
                    moved = true;
                    move((before.x - p.x) / c.inner * (view.to - view.from));
                    down.set(e.pointerId, p);
                }
            } else if (before && down.size === 2) {
                down.set(e.pointerId, p);
                const [a, b] = [...down.values()], wide = Math.max(Math.abs(a.x - b.x), 8);
                if (spread) zoom(wide / spread, toTime(c, (a.x + b.x) / 2));
                spread = wide;
                moved = true;
            }
            if (e.pointerType !== "mouse") return;
            /* A page that scrolls below a mouse that lies still is no move of the mouse. */
            const still = mouse && mouse.clientX === e.clientX && mouse.clientY === e.clientY;
            mouse = { chart: index, x: p.x, y: p.y, clientX: e.clientX, clientY: e.clientY };
            if (still && picked && picked.by === "key") return;
            pick(index, moved && before ? -1 : hit(c, p.x, p.y), false);
        });
        const up = e => {
            const p = at(e);
            if (down.delete(e.pointerId) && !moved && e.type === "pointerup") {
                pick(index, hit(c, p.x, p.y), true);
            }
        };
        c.canvas.addEventListener("pointerup", up);
        c.canvas.addEventListener("pointercancel", up);
        c.canvas.addEventListener("pointerleave", e => {
            if (e.pointerType !== "mouse") return;
            mouse = null;
            if (picked && picked.by === "mouse") pick(index, -1, false);
            redraw();
        });
        c.canvas.addEventListener("dblclick", e => zoom(2, toTime(c, at(e).x)));
        c.canvas.addEventListener("wheel", e => {
            if (e.ctrlKey || e.metaKey) {
                e.preventDefault();
                zoom(Math.exp(-e.deltaY * 0.004), toTime(c, at(e).x));
            } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
                e.preventDefault();
                move((e.deltaX || e.deltaY) / c.inner * (view.to - view.from));
            }
        }, { passive: false });
        c.canvas.addEventListener("keydown", e => {
            const key = keys[e.key] || keys[e.key.toLowerCase()];
            if (!key || e.ctrlKey || e.metaKey || e.altKey) return;
            e.preventDefault();
            key(index);
        });
    });

    function resize() {
        readColors();
        charts.forEach(measure);
        draw();
    }
    $("in").onclick = () => zoom(1.5);
    $("out").onclick = () => zoom(1 / 1.5);
    $("all").onclick = () => show(0, data.end);
    $("pan").oninput = e => {
        const span = view.to - view.from, from = e.target.value / 1000 * ((data.end || 1) - span);
        show(from, from + span);
    };
    if ($("memory")) $("memory").onchange = e => { memory = e.target.checked; resize(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resize);
    addEventListener("resize", resize);
    addEventListener("scroll", placeTip, { passive: true });
    resize();
    document.documentElement.dataset.drawn = charts.reduce((n, c) => n + c.start.length, 0);
})();
