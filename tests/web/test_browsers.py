"""The module in Firefox and WebKit: all vectors, AES, and one release above a megapixel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.make_vectors import FILE
from tests.web.expected import VECTORS, check_answer
from tests.web.node import NODE, WEB

webdriver = pytest.importorskip("selenium.webdriver")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
ANSWER = "const done = arguments[1]; check(arguments[0]).then(done, (error) => done({ wrong: [String(error)] }))"


def ask_firefox(address: str) -> Any:
    """Puppeteer drives it: there is no other driver that needs no download."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if not program or not NODE or not (WEB / "node_modules" / "puppeteer-core").is_dir():
        pytest.skip("Firefox, Node or puppeteer-core is not installed; `npm install` in web/ brings the last")
    script = str(WEB / "test" / "firefox.mjs")
    done = subprocess.run([NODE, script, program, address, str(FILE)], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask_webkit(address: str) -> Any:
    program, screen = shutil.which("WebKitWebDriver"), shutil.which("Xvfb")
    browser = next(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"), None)
    if not program or not screen or not browser:
        pytest.skip("WebKitWebDriver, its MiniBrowser or Xvfb is not installed")
    display = f":{90 + os.getpid() % 900}"
    options = webdriver.WebKitGTKOptions()
    options.binary_location = str(browser)
    options.add_argument("--automation")
    service = webdriver.WebKitGTKService(program, env={**os.environ, "DISPLAY": display})
    with subprocess.Popen([screen, display, "-screen", "0", "1024x768x24"], stderr=subprocess.DEVNULL) as xvfb:
        try:
            with webdriver.WebKitGTK(options, service=service) as session:
                session.set_script_timeout(120)
                session.get(address)
                WebDriverWait(session, 30).until(lambda one: one.title == "ready")
                return session.execute_async_script(ANSWER, VECTORS)
        finally:
            xvfb.terminate()


@pytest.mark.filterwarnings("ignore:setting remote_server_addr")  # of selenium's own call
@pytest.mark.parametrize("ask", [ask_firefox, ask_webkit])
def test_vectors_tables_and_aes(ask: Any, served: str) -> None:
    check_answer(ask(f"{served}/test/browser.html"))
