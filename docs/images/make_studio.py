"""Draw docs/images/studio.webp, studio-attack.webp and studio-phone.webp: the page with the portrait, in Chromium.

Run it with `python docs/images/make_studio.py` after a change of the page.
"""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "src" / "ldp_slicing" / "studio" / "page" / "studio.html"

NETWORK = PAGE.parents[1] / "page-network.bin"
FACE = (0.44, 0.23)  # where it is in the portrait


def save(screenshot: bytes, name: str) -> None:
    with Image.open(io.BytesIO(screenshot)) as image:
        image.convert("RGB").save(HERE / f"{name}.webp", quality=82, method=6)


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    for name, width, height, scheme in (("studio", 1280, 1110, "light"), ("studio-phone", 390, 932, "dark")):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.goto(PAGE.as_uri())
        page.set_input_files("#files", str(ROOT / "examples" / "astronaut.jpg"))
        page.select_option("#preset", "paper")
        expect(page.locator("#planes figure")).to_have_count(24)
        save(page.screenshot(), name)
        if name == "studio":
            page.set_input_files("#network", str(NETWORK))
            page.locator("#place").scroll_into_view_if_needed()
            box = page.locator("#place").bounding_box()
            page.click("#place", position={"x": FACE[0] * box["width"], "y": FACE[1] * box["height"]})
            expect(page.locator("#attack-reconstruction")).to_be_visible()
            expect(page.locator("#place")).to_have_attribute("aria-valuetext", re.compile("^(3|4). %"))
            page.wait_for_timeout(1000)  # until the new part is reconstructed
            save(page.locator("section[aria-labelledby=attack-title]").screenshot(), "studio-attack")
    browser.close()
