"""Draw docs/images/studio.webp and studio-phone.webp: the page with the portrait, in Chromium.

Run it with `python docs/images/make_studio.py` after a change of the page.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "src" / "ldp_slicing" / "studio" / "page" / "studio.html"

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    for name, width, height, scheme in (("studio", 1280, 1040, "light"), ("studio-phone", 390, 844, "dark")):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(PAGE.as_uri())
        page.set_input_files("#files", str(ROOT / "examples" / "astronaut.jpg"))
        page.select_option("#preset", "paper")
        expect(page.locator("#planes figure")).to_have_count(24)
        with Image.open(io.BytesIO(page.screenshot())) as image:
            image.convert("RGB").save(HERE / f"{name}.webp", quality=82, method=6)
    browser.close()
