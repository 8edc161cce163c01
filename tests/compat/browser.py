"""A headless Chromium, driven through a pipe by the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""
import base64
import json
import os
import shutil
import subprocess


class Browser:
    """One page. Messages are JSON ended by a zero byte; the browser reads them from fd 3 and writes to fd 4."""

    def __init__(self, folder):
        """`folder`: for the browser's profile. Raises FileNotFoundError where there is no Chromium."""
        program = shutil.which("chromium")
        if program is None:
            raise FileNotFoundError("chromium is not installed")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        # By a shell, since Popen can't give a child a certain descriptor.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec {{from}}<&{to_browser} {{to}}>&{from_browser}; exec "$0" "$@" 3<&"$from" 4>&"$to"', program, "--headless",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={folder}",
             "--window-size=1280,1000", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.unread = b""
        self.last_id = 0
        self.events = []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
        except (EOFError, OSError):
            pass
        os.close(self.out)
        os.close(self.into)
        self.process.wait()

    def _read(self):
        while b"\0" not in self.unread:
            piece = os.read(self.into, 1 << 16)
            if not piece:
                raise EOFError("the browser is gone")
            self.unread += piece
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, event):
        while not any(e.get("method") == event for e in self.events):
            self.events.append(self._read())

    def open(self, url):
        self.events = []
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def value(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, x, y):
        """At a place in the page's window, in CSS pixels."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def click_on(self, selector):
        box = self.value(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                         " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        self.click(*box)

    def screenshot(self, file):
        """The whole page as a PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def requested(self):
        """The URLs that the page has asked for since it was opened."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self):
        """Exceptions and errors that the page has met since it was opened."""
        return [e["params"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"
                or (e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] == "error")]
