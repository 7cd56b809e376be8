"""Opens the reports in a folder in headless Chromium and looks at them.

usage: html_report.py FOLDER

Chromium is driven over the DevTools protocol by a pipe; see html_report.sh.
"""
import base64
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

SIZES = [(1440, 900), (800, 1000), (390, 844)]
# What a page says of itself: width, charts, marked values, and the labels that
# stand outside their chart.
LOOK = """(() => {
  const cut = [];
  for (const svg of document.querySelectorAll("figure svg")) {
    const frame = svg.getBoundingClientRect();
    for (const label of svg.querySelectorAll("text")) {
      const box = label.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1
          || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
        cut.push(label.textContent.trim());
      }
    }
  }
  const hidden = [...document.querySelectorAll(".scroll")]
    .filter(box => box.scrollWidth > box.clientWidth + 1)
    .map(box => box.textContent.trim().slice(0, 40));
  const values = {};
  for (const one of document.querySelectorAll("[id][data-value]")) {
    values[one.id] = one.dataset.value;
  }
  return JSON.stringify({
    width: document.documentElement.scrollWidth,
    window: window.innerWidth,
    height: document.documentElement.scrollHeight,
    charts: document.querySelectorAll("figure svg").length,
    verdicts: [...document.querySelectorAll("tr[data-verdict]")].map(row => row.dataset.verdict),
    figures: [...document.querySelectorAll("#figures td[data-value]")].map(cell => cell.dataset.value),
    differing: document.querySelectorAll("#results tr.differs").length,
    said: document.querySelectorAll("#sentences li").length,
    verdict: (document.querySelector("#verdict") || {}).textContent,
    values, cut, hidden,
  });
})()"""


class Browser:
    """A Chromium of its own, its messages over two pipes."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory()
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()

        def descriptors():
            # Through high numbers: 3 and 4 may be among those given.
            read, write = os.dup2(to_read, 60), os.dup2(back_write, 61)
            os.dup2(read, 3)
            os.dup2(write, 4)

        command = [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--remote-debugging-pipe", "--hide-scrollbars", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={self.profile.name}",
        ]
        self.process = subprocess.Popen(
            command, preexec_fn=descriptors, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(back_write)
        self.rest, self.number, self.events = b"", 0, []

    def message(self):
        while b"\0" not in self.rest:
            got = os.read(self.back, 1 << 20)
            if not got:
                raise SystemExit("FAILED: Chromium has gone")
            self.rest += got
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        call = {"id": self.number, "method": method, "params": parameters}
        if session:
            call["sessionId"] = session
        os.write(self.to, json.dumps(call).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise SystemExit(f"FAILED: {method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.message())

    def close(self):
        self.call("Browser.close")
        self.process.wait()
        self.profile.cleanup()


def look(browser, path, size, scheme):
    """The page at `path` as it is seen, and what happened while it was opened."""
    width, height = size
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ["Network", "Page", "Runtime", "Log"]:
        browser.call(f"{domain}.enable", session)
    browser.call("Emulation.setDeviceMetricsOverride", session, width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 500)
    media = "print" if scheme == "print" else ""
    features = [{"name": "prefers-color-scheme", "value": "dark" if scheme == "dark" else "light"}]
    browser.call("Emulation.setEmulatedMedia", session, media=media, features=features)
    browser.events.clear()
    began = time.monotonic()
    browser.call("Page.navigate", session, url=f"file://{path}")
    browser.wait("Page.loadEventFired")
    took = time.monotonic() - began
    found = browser.call("Runtime.evaluate", session, expression=LOOK)["result"]["value"]
    found = json.loads(found)
    metrics = {"x": 0, "y": 0, "width": width, "height": min(found["height"], 8000), "scale": 1}
    shot = browser.call("Page.captureScreenshot", session, captureBeyondViewport=True, clip=metrics)
    name = f"{os.path.splitext(path)[0]}-{width}-{scheme}.png"
    with open(name, "wb") as file:
        file.write(base64.b64decode(shot["data"]))
    found["seconds"] = took
    found["requests"], found["console"] = [], []
    for event in browser.events:
        method, about = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            found["requests"].append(about["request"]["url"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            found["console"].append(json.dumps(about)[:300])
    if scheme == "print":
        browser.call("Page.printToPDF", session)
    browser.call("Target.closeTarget", targetId=target)
    return found


def expected(document):
    """Charts, and three values at least, of the JSON that a page was made of."""
    kind = document.get("kind")
    if "pcload" in document:
        judged = document["pcload"]
        actual = judged["hits"]["actual"]
        values = {
            "hit-rate": actual and actual["hit_rate"],
            "ttft-p50": judged["latency"]["ttft_ms"]["p50"],
            "output-rate": judged["throughput"]["output_tokens_per_second"],
        }
        return 9, values, {"verdict": judged["verdict"]}
    if kind == "pcload.comparison":
        told = [told_of(metric) for metric in document["metrics"]]
        return 1, {}, {"figures": told, "said": len(document["sentences"])}
    if kind == "pcload.probe_comparison":
        lines = {line["name"]: line for line in document["result"]}
        values = {f"verdict-{side}": lines["verdict"][name]
                  for side, name in [("a", "left"), ("b", "right")]}
        differing = sum(not line["same"] for line in document["result"])
        return 5, values, {"differing": differing}
    record = document
    values = {
        "passed": record["passed_count"],
        "requests": record["totals"]["request_count"],
        "prompt-tokens": record["totals"]["prompt_tokens"],
    }
    if record["knee"]:
        values["harmless"] = record["knee"]["harmless_tokens"]
        values["harmful"] = record["knee"]["harmful_tokens"]
    judged = [row["verdict"] for row in record["requests"]
              if row["kind"] in ("turn", "question", "cold_control")]
    cases = record["needles"] or record["doses"]
    verdicts = [case["verdict"] for case in cases] if cases else judged
    charts = {"needle": 1}.get(record["probe"], 2) + (1 if record["control"] else 0)
    return charts, values, {"verdicts": verdicts}


def told_of(metric):
    ratio = metric["quantity"] in ("hit_rate", "success_rate")
    told = metric["absolute"] if ratio or not metric["relative"] else metric["relative"]
    return told["value"]


def same(found, value):
    if value is None:
        return found == ""
    if isinstance(value, (int, float)):
        return found != "" and float(found) == float(value)
    return found == value


def faults(found, size, document, path):
    charts, values, others = expected(document)
    wrong = []
    if found["requests"] != [f"file://{path}"]:
        wrong.append(f"it asked for {found['requests']}")
    wrong += [f"console: {line}" for line in found["console"]]
    if found["width"] > size[0]:
        wrong.append(f"{found['width']} pixels wide")
    if os.path.getsize(path) > 5_000_000:
        wrong.append(f"{os.path.getsize(path)} bytes")
    if size[0] >= 1440 and found["hidden"]:
        wrong.append(f"tables that hide columns: {found['hidden']}")
    if found["cut"]:
        wrong.append(f"labels outside their chart: {found['cut']}")
    if found["charts"] != charts:
        wrong.append(f"{found['charts']} charts, not {charts}")
    for name, value in values.items():
        if not same(found["values"].get(name, "absent"), value):
            wrong.append(f"{name} is {found['values'].get(name)}, not {value}")
    for name, value in others.items():
        seen = found[name]
        if isinstance(value, list):
            equal = len(seen) == len(value) and all(same(*pair) for pair in zip(seen, value))
        else:
            equal = seen == value
        if not equal:
            wrong.append(f"{name}: {seen}, not {value}")
    return wrong


def main():
    folder = os.path.realpath(sys.argv[1])
    pages = sorted(glob.glob(os.path.join(folder, "*.html")))
    browser, failed = Browser(), 0
    for path in pages:
        with open(path.replace(".html", ".json"), encoding="utf-8") as file:
            document = json.load(file)
        slowest = 0
        for size in SIZES:
            schemes = ["light", "dark"] + (["print"] if size[0] == 800 else [])
            for scheme in schemes:
                found = look(browser, path, size, scheme)
                slowest = max(slowest, found["seconds"])
                for fault in faults(found, size, document, path):
                    print(f"FAILED {os.path.basename(path)} at {size[0]}, {scheme}: {fault}")
                    failed += 1
        print(f"{os.path.basename(path)}: {os.path.getsize(path):,} bytes, {found['charts']} charts, "
              f"{len(found['values']) + len(found['figures'])} values, opened in {slowest * 1e3:.0f} ms")
    browser.close()
    print(f"{len(pages)} pages, {failed} faults")
    sys.exit(failed > 0 or not pages)


main()
