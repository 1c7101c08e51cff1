"""The page in Chromium, as a person uses it: from a file, without any server."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ldp_slicing import Card, Plan
from ldp_slicing.png import read_release_png
from ldp_slicing.presets import presets
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify
from tests.web.browser import chromium, why_not
from tests.web.expected import VECTORS, check_answer
from tests.web.networks import some_network, tiny_network
from tests.web.node import WEB

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

ROOT = WEB.parent
PAGES = ROOT / "src" / "ldp_slicing" / "studio" / "page"
PORTRAIT = ROOT / "examples" / "astronaut.jpg"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """The page, with everything that it logged or requested."""
    context = browser.new_context(accept_downloads=True, viewport={"width": 1280, "height": 900})
    one = context.new_page()
    one.requests, one.problems = [], []
    one.on("request", lambda request: one.requests.append(request.url))
    one.on("console", lambda message: one.problems.append(message.text) if message.type == "error" else None)
    one.on("pageerror", lambda error: one.problems.append(str(error)))
    one.goto((PAGES / "studio.html").as_uri())
    one.wait_for_selector("html[data-ready]")
    yield one
    context.close()


def open_images(page: Any, *paths: Path) -> None:
    page.set_input_files("#files", [str(path) for path in paths])
    expect(page.locator("#planes figure")).to_have_count(24, timeout=60_000)
    expect(page.locator("#status")).to_have_text("", timeout=60_000)
    expect(page.locator("#images li[data-id]")).to_have_count(len(paths))


def download(page: Any, button: str, count: int) -> dict[str, bytes]:
    found: list[Any] = []
    page.on("download", lambda one: found.append(one))
    page.click(button)
    expect(page.locator("#taken")).to_contain_text("Downloaded", timeout=60_000)
    while len(found) < count:
        page.wait_for_timeout(50)
    return {one.suggested_filename: Path(one.path()).read_bytes() for one in found}


def download_one(page: Any) -> tuple[bytes, bytes]:
    """Return a release and its card. Their common name is that of no other release."""
    (_, png), (_, card) = files = sorted(download(page, "#download", 2).items(), key=lambda one: len(one[0]))
    name = f"release-{hashlib.sha256(png).hexdigest()[:8]}.png"
    assert [each for each, _ in files] == [name, f"{name}.card.json"]
    expect(page.locator("#taken")).to_contain_text(f"Downloaded {name} and its card.")
    return png, card


def test_page_is_one_small_file() -> None:
    for name in ("studio.html", "collector.html"):
        assert (PAGES / name).stat().st_size <= 150_000


def test_a_release_is_downloaded_with_its_card(page: Any, tmp_path: Path) -> None:
    open_images(page, PORTRAIT)
    page.select_option("#preset", "paper")
    expect(page.locator("#risk")).to_contain_text("re-identified")
    expect(page.locator("#promise-title")).to_have_text("What this promises")
    expect(page.locator("#before")).to_be_hidden()
    one, card = download_one(page)
    expect(page.locator("#promise-title")).to_have_text("What release 2 of this image would promise")
    expect(page.locator("#before")).to_contain_text("The page now describes release 2")
    expect(page.locator("#taken")).to_contain_text("1 release made on this page. It is not recorded in the ledger")
    two, next_card = download_one(page)
    (statement,) = Card.from_json(card).statements
    assert [Card.from_json(each).statements[0].times for each in (card, next_card)] == [1, 2]
    assert (statement.plan, statement.width, statement.height) == (Plan.paper(20.0), (512, 512), (512, 512))
    pixels, extras = read_release_png(one, statement.plan)
    assert (pixels.shape, extras) == ((512, 512, 3), [])
    with Image.open(PORTRAIT) as source:
        assert np.mean(pixels == np.asarray(source)) < 0.1
    assert one != two, "each download has a fresh key"
    expect(page.locator("#taken")).to_contain_text("2 releases made on this page")
    expect(page.locator("#taken")).to_contain_text("One image was released 2 times: the epsilons of its")
    expect(page.locator("#taken")).to_contain_text("They are not recorded in the ledger")
    assert page.problems == []
    assert all(url.startswith(("file:", "blob:", "data:")) for url in page.requests)


def test_nothing_is_released_before_a_budget_is_chosen(page: Any) -> None:
    """Until then there is an example. The keyboard leads to the field, whose message says what is missing."""
    open_images(page, PORTRAIT)
    expect(page.locator("#tag-release")).to_have_text("Example")
    expect(page.locator("#missing")).to_have_text("Choose a preset or enter an epsilon first.")
    page.select_option("#prune", "")  # is no choice of a budget
    page.focus("#download")
    page.keyboard.press("Enter")
    missing = "() => [document.activeElement.id, document.activeElement.validationMessage]"
    assert page.evaluate(missing) == ["epsilon", "Choose a preset or enter an epsilon."]
    expect(page.locator("#download")).to_have_attribute("aria-disabled", "true")
    page.keyboard.type("5.2")
    expect(page.locator("#tag-release")).to_have_text("Preview")
    expect(page.locator("#missing")).to_be_hidden()
    (statement,) = Card.from_json(download_one(page)[1]).statements
    assert (statement.plan, statement.prune, statement.count) == (Plan.paper(5.2), None, 1)
    expect(page.locator("#taken")).to_contain_text("1 release made on this page")
    page.fill("#epsilon", "")
    expect(page.locator("#tag-release")).to_have_text("Example")
    expect(page.locator("#download")).to_have_attribute("aria-disabled", "true")


def test_settings_change_the_release_and_the_preview_keeps_its_mask(page: Any) -> None:
    open_images(page, PORTRAIT)
    before = layer(page)
    page.fill("#size", "112")
    page.select_option("#plan", "Y7+Y4+Cb7+Cr7")
    page.fill("#epsilon", "5.2")
    expect(page.locator("#facts")).to_contain_text("released as 112 x 112", timeout=30_000)
    expect(page.locator("#planes figure.dropped")).to_have_count(20, timeout=30_000)
    assert layer(page) != before
    page.select_option("#preset", "paper")
    expect(page.locator("#facts")).to_contain_text("released as 512 x 512", timeout=30_000)
    expect(page.locator("#planes figure.dropped")).to_have_count(0, timeout=30_000)
    assert layer(page) == before, "the same image and settings have the same preview"


def layer(page: Any) -> str:
    pixels = page.evaluate(
        """() => { const canvas = document.getElementById("layer-release");
        return Array.from(canvas.getContext("2d").getImageData(0, 0, canvas.width, 80).data) }"""
    )
    return hashlib.sha256(bytes(pixels)).hexdigest()


def test_a_folder_is_downloaded_that_verify_accepts(page: Any, tmp_path: Path) -> None:
    Image.fromarray(np.arange(90 * 70 * 3).reshape(70, 90, 3).astype(np.uint8)).save(tmp_path / "small.png")
    Image.fromarray(np.arange(50 * 60).reshape(50, 60).astype(np.uint8)).save(tmp_path / "grey.jpg")
    expect(page.locator("#download-all")).to_be_hidden()
    open_images(page, PORTRAIT, tmp_path / "small.png", tmp_path / "grey.jpg")
    page.fill("#epsilon", "20")
    page.fill("#size", "112")
    expect(page.locator("#facts")).to_contain_text("released as 112 x 112", timeout=30_000)
    content = download(page, "#download-all", 1)["releases.zip"]
    zipfile.ZipFile(io.BytesIO(content)).extractall(tmp_path / "folder")
    report = verify(LocalStorage(tmp_path / "folder"))
    assert (report.problems, report.releases) == ([], 3)
    card = Card.read(tmp_path / "folder" / "card.json")
    assert [(one.plan, one.count) for one in card.statements] == [(Plan.paper(20.0), 2), (Plan.grey(20.0), 1)]
    expect(page.locator("#images .released")).to_have_count(3)
    expect(page.get_by_role("button", name="Show grey.jpg, released")).to_be_visible()


def test_a_folder_is_complete_after_many_settings(page: Any, tmp_path: Path) -> None:
    """The page forgets plans when it has seen many, such as after a slider was dragged."""
    Image.fromarray(np.arange(9 * 7 * 3).reshape(9, 7, 3).astype(np.uint8)).save(tmp_path / "colour.png")
    Image.fromarray(np.arange(9 * 7).reshape(9, 7).astype(np.uint8)).save(tmp_path / "grey.png")
    open_images(page, tmp_path / "colour.png", tmp_path / "grey.png")
    for number in range(1, 65):  # with the example, 65 plans
        page.fill("#epsilon", str(number / 10))
        expect(page.locator("#card")).to_contain_text(f'"epsilon_requested": {number / 10}', timeout=30_000)
    content = download(page, "#download-all", 1)["releases.zip"]
    zipfile.ZipFile(io.BytesIO(content)).extractall(tmp_path / "folder")
    report = verify(LocalStorage(tmp_path / "folder"))
    assert (report.problems, report.releases) == ([], 2)


def test_an_image_that_was_opened_twice_is_one_source(page: Any, tmp_path: Path) -> None:
    shutil.copy(PORTRAIT, tmp_path / "copy.jpg")
    open_images(page, PORTRAIT, tmp_path / "copy.jpg")
    page.fill("#epsilon", "20")
    page.fill("#size", "64")
    expect(page.locator("#facts")).to_contain_text("released as 64 x 64", timeout=30_000)
    content = download(page, "#download-all", 1)["releases.zip"]
    zipfile.ZipFile(io.BytesIO(content)).extractall(tmp_path / "folder")
    assert verify(LocalStorage(tmp_path / "folder")).problems == []
    (statement,) = Card.read(tmp_path / "folder" / "card.json").statements
    assert (statement.count, statement.times, statement.spent) == (2, 2, None)
    expect(page.locator("#taken")).to_contain_text("One image was released 2 times")
    expect(page.locator("#card")).to_contain_text('"most_releases_of_one_source": 3', timeout=30_000)  # the next one
    expect(page.locator("#promise")).to_contain_text("The next release of this image is its release 3")


@pytest.mark.parametrize("name", ["grey.png", "grey.jpg"])
def test_a_grey_source_becomes_a_grey_release(page: Any, tmp_path: Path, name: str) -> None:
    """Almost without noise, the release shows what the browser decoded."""
    with Image.open(PORTRAIT) as image:
        image.convert("L").crop((0, 0, 101, 67)).save(tmp_path / name)
    open_images(page, tmp_path / name)
    expect(page.locator("#facts")).to_contain_text("101 x 67, grey")
    expect(page.locator("#planes figure:visible")).to_have_count(8)
    page.select_option("#prune", "")
    page.fill("#epsilon", "1000")
    expect(page.locator("#remark")).to_contain_text("almost never changes", timeout=30_000)
    png, card = download_one(page)
    (statement,) = Card.from_json(card).statements
    assert statement.plan == Plan.grey(1000.0)
    pixels, extras = read_release_png(png, statement.plan)
    with Image.open(tmp_path / name) as image:
        assert np.array_equal(pixels, np.asarray(image))
    assert extras == []
    page.select_option("#plan", "Y7+Y6")
    expect(page.locator("#status")).to_contain_text("This image is grey: there is no bit", timeout=30_000)
    page.select_option("#plan", "7+6")
    expect(page.locator("#planes figure.dropped:visible")).to_have_count(6, timeout=30_000)


def test_a_reduced_bit_depth_is_said(page: Any, tmp_path: Path) -> None:
    Image.fromarray(np.arange(40 * 40, dtype=np.uint16).reshape(40, 40)).save(tmp_path / "scan.png")
    page.set_input_files("#files", str(tmp_path / "scan.png"))
    expect(page.locator("#facts")).to_contain_text("40 x 40, grey", timeout=30_000)
    notice = "scan.png has 16 bits per channel, which are reduced to 8. The command line keeps 16 bits of grey images."
    expect(page.locator("#status")).to_have_text(notice)
    page.set_input_files("#files", str(PORTRAIT))
    expect(page.locator("#images li[data-id]")).to_have_count(2, timeout=30_000)
    expect(page.locator("#status")).to_have_text(notice)
    page.click("#images .remove >> nth=0")
    expect(page.locator("#status")).to_have_text("", timeout=30_000)


def test_a_grey_image_that_a_file_stores_in_colour_is_released_in_colour(page: Any, tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), (90, 90, 90)).save(tmp_path / "plain.jpg")
    open_images(page, tmp_path / "plain.jpg")
    expect(page.locator("#planes figure:visible")).to_have_count(24)


def captions(plan: Plan) -> list[str]:
    """What the page writes below the 24 planes."""
    shares = dict[int, str]()
    for part in plan.slices:
        flips = float((1 - plan.tables.miss_probability(part.bits)) / 2)
        text = f"{100 * flips:.0f} %" if flips >= 0.0995 else f"{100 * flips:.2g} %"
        shares |= {bit: text for bit in range(24) if part.bits >> bit & 1}
    return [plan.bit_name(bit) + shares.get(bit, "dropped") for bit in range(23, -1, -1)]


def test_every_preset_has_its_settings(page: Any) -> None:
    open_images(page, PORTRAIT)
    for preset in presets():
        page.select_option("#preset", preset.name)
        assert page.locator("#about").text_content() == preset.about
        plan = preset.plan(24)
        side = 512 if preset.size is None else preset.size
        expect(page.locator("#facts")).to_contain_text(f"released as {side} x {side}", timeout=30_000)
        expect(page.locator("#card")).to_contain_text(f'"height": [\n        {side},', timeout=30_000)
        (statement,) = Card.from_json(page.locator("#card").text_content()).statements
        assert (statement.plan, statement.prune, statement.size) == (plan, preset.prune, preset.size)
        assert page.locator("#risk").text_content() == statement.risk.sentence
        assert page.locator("#planes figcaption").all_text_contents() == captions(plan)


def test_the_source_is_what_python_decodes(page: Any, tmp_path: Path) -> None:
    """Without pruning and almost without noise, a release shows what the browser decoded."""
    with Image.open(PORTRAIT) as image:
        image.crop((0, 0, 101, 67)).save(tmp_path / "part.png")
        image.crop((0, 0, 101, 67)).save(tmp_path / "part.jpg", quality=90)
    for name in ("part.png", "part.jpg"):
        page.reload()
        page.wait_for_selector("html[data-ready]")
        open_images(page, tmp_path / name)
        page.select_option("#prune", "")
        page.fill("#epsilon", "1000")
        expect(page.locator("#remark")).to_contain_text("almost never changes", timeout=30_000)
        with Image.open(tmp_path / name) as image:
            expected = np.asarray(image.convert("RGB")).astype(int)
        pixels, _ = read_release_png(download_one(page)[0])
        assert np.mean(np.abs(pixels.astype(int) - expected) <= 2) > 0.99, name


def test_nothing_can_be_sent_by_page_or_worker(page: Any) -> None:
    sent = "fetch('https://example.org/', {method: 'POST', body: 'source'}).then(() => 'sent', () => 'blocked')"
    assert page.evaluate(f"() => {sent}") == "blocked"
    worker = f"{sent}.then((answer) => postMessage(answer))"
    planted = """(code) => new Promise((resolve) => {
        const worker = new Worker(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
        worker.onmessage = (event) => resolve(event.data);
    })"""
    assert page.evaluate(planted, worker) == "blocked"
    for code in (
        "new Image().src = 'https://example.org/?source'",
        "navigator.sendBeacon('https://example.org/', 'source')",
        "new WebSocket('wss://example.org/')",
    ):
        page.evaluate(f"() => {{ try {{ {code} }} catch (error) {{}} }}")
    assert page.problems, "the browser reports what it blocked"
    assert all("example.org" not in url or "blocked" in " ".join(page.problems).lower() for url in page.requests)


def test_no_message_decides_the_key_of_a_release(browser: Any) -> None:
    context = browser.new_context()
    context.add_init_script(
        """const Original = Worker;
        globalThis.Worker = class extends Original { constructor(...rest) { super(...rest); self.caught = this; } };"""
    )
    page = context.new_page()
    page.goto((PAGES / "studio.html").as_uri())
    open_images(page, PORTRAIT)
    asked = """() => new Promise((resolve) => {
        const key = new Uint8Array(32), settings = {epsilon: 20, slices: null, prune: "haar", size: 32, key, seed: 1};
        caught.addEventListener("message", ({data}) => data.number === 1e6 && resolve(Array.from(data.result.png)));
        caught.postMessage({number: 1e6, ask: "release", id: 0, settings, key, seed: 1, keystream: key}); })"""
    assert page.evaluate(asked) != page.evaluate(asked)
    context.close()


def test_a_browser_that_falsifies_pixels_is_refused(browser: Any) -> None:
    context = browser.new_context()
    context.add_init_script(
        """const original = CanvasRenderingContext2D.prototype.getImageData;
        CanvasRenderingContext2D.prototype.getImageData = function (...rest) {
            const image = original.apply(this, rest); image.data[8] ^= 1; return image; }"""
    )
    page = context.new_page()
    page.goto((PAGES / "studio.html").as_uri())
    page.set_input_files("#files", str(PORTRAIT))
    expect(page.locator("#empty-status")).to_contain_text("this browser changes the pixels")
    expect(page.locator("#studio")).to_be_hidden()
    context.close()


@pytest.mark.parametrize("problem", ["not an image", "transparent"])
def test_files_that_cannot_be_released(page: Any, tmp_path: Path, problem: str) -> None:
    path = tmp_path / "file.png"
    if problem == "transparent":
        Image.new("RGBA", (8, 8), (1, 2, 3, 100)).save(path)
    else:
        path.write_text("hello")
    page.set_input_files("#files", str(path))
    expect(page.locator("#empty-status")).to_contain_text("file.png")
    expect(page.locator("#studio")).to_be_hidden()


def test_files_that_cannot_be_opened_are_listed(page: Any, tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"{number}.heic").write_text("hello")
    page.set_input_files("#files", [*sorted(map(str, tmp_path.iterdir())), str(PORTRAIT)])
    status = page.locator("#status.problem")
    expect(status).to_contain_text("0.heic cannot be opened: it is damaged, or of a format", timeout=30_000)
    expect(status).to_contain_text("2 more files could not be opened.")
    expect(status).not_to_contain_text("Opening", timeout=30_000)  # the last file opens
    assert len(status.text_content().split("\n")) == 6
    page.focus("#images .remove")
    page.keyboard.press("Enter")
    expect(page.locator("#choose")).to_be_focused()


def test_what_is_shown_is_never_of_other_settings(page: Any) -> None:
    open_images(page, PORTRAIT)
    page.fill("#epsilon", "5")
    stale = page.locator("#studio.stale")
    for field, wrong, message, right in (
        ("#epsilon", "0", "Enter an epsilon from 0.01 to 1000.", "5"),
        ("#size", "0", "Enter a longest side from 1 to 65535 pixels, or none.", "64"),
        ("#slices", "Y9", 'These settings do not work: there is no bit "Y9"', "Y7"),
    ):
        if field == "#slices":
            page.select_option("#plan", "own")
        page.fill(field, wrong)
        expect(stale).to_have_count(1, timeout=30_000)
        expect(page.locator("#missing")).to_contain_text(message)
        expect(page.locator("#download")).to_have_attribute("aria-disabled", "true")
        page.fill(field, right)
        expect(stale).to_have_count(0, timeout=30_000)
        expect(page.locator("#missing")).to_be_hidden()


def test_an_image_that_does_not_fit_the_settings_is_named(page: Any, tmp_path: Path) -> None:
    Image.new("L", (20, 20), 90).save(tmp_path / "grey.png")
    open_images(page, PORTRAIT, tmp_path / "grey.png")
    expect(page.locator("#facts")).to_contain_text("astronaut.jpg: 512 x 512 pixels")
    page.select_option("#preset", "tiny")
    page.click("#download-all")
    expect(page.locator("#taken.problem")).to_contain_text("Nothing was released: grey.png does not fit the settings")


def test_dropped_images_are_opened_and_a_reload_forgets_them(page: Any) -> None:
    page.evaluate(
        """(bytes) => {
        const [dropped, place] = [new DataTransfer(), document.getElementById("drop")];
        dropped.items.add(new File([new Uint8Array(bytes)], "portrait.jpg", {type: "image/jpeg"}));
        place.dispatchEvent(new DragEvent("drop", {dataTransfer: dropped, bubbles: true})); }""",
        list(PORTRAIT.read_bytes()),
    )
    expect(page.locator("#facts")).to_contain_text("512 x 512 pixels", timeout=30_000)
    kept = page.evaluate("() => [localStorage.length, sessionStorage.length, document.cookie, history.length]")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#studio")).to_be_hidden()
    assert kept[:3] == [0, 0, ""]


def test_camera(page: Any) -> None:
    page.click("#camera")
    expect(page.locator("#video")).to_be_visible()
    page.wait_for_timeout(500)
    page.click("#shoot")
    expect(page.locator("#planes figure")).to_have_count(24, timeout=30_000)


def test_vectors_tables_and_aes(browser: Any, served: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{served}/test/browser.html")
    expect(page).to_have_title("ready")
    check_answer(page.evaluate("(content) => check(content)", VECTORS))
    context.close()


AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed; `npm install` in web/ brings it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_violation(browser: Any, scheme: Any, width: int, tmp_path: Path) -> None:
    # axe runs as a script, which the page's policy forbids to anybody but the page
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto((PAGES / "studio.html").as_uri())
    page.wait_for_selector("html[data-ready]")
    page.add_script_tag(path=str(AXE))
    for is_open in (False, True):
        if is_open:
            open_images(page, PORTRAIT)
            (tmp_path / "n").write_bytes(tiny_network())
            page.set_input_files("#network", str(tmp_path / "n"))
            expect(page.locator("#place")).to_be_visible(timeout=30_000)
            for summary in page.locator("summary").all():
                summary.click()
        found = page.evaluate("() => axe.run()")["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
        overflow = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, "the page must not scroll sideways"
        with Image.open(io.BytesIO(page.screenshot())) as seen:
            corner = seen.convert("L").getpixel((2, 2))
        assert (corner > 128) == (scheme == "light")
    context.close()


def test_a_pointer_drags_the_nearer_divider(page: Any) -> None:
    open_images(page, PORTRAIT)
    box = page.locator("#stage").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.34 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle)
    page.mouse.up()
    expect(page.locator("#divider-one")).to_have_value("50")
    expect(page.locator("#divider-two")).to_have_value("66")


def test_nothing_jumps_while_settings_change(page: Any) -> None:
    open_images(page, PORTRAIT)
    places = "() => ['stage', 'settings'].map((id) => document.getElementById(id).getBoundingClientRect().y + scrollY)"
    before = page.evaluate(places)
    for epsilon in ("1", "58"):
        page.fill("#epsilon", epsilon)
        expect(page.locator("#promise")).to_contain_text(f"epsilon {epsilon} per pixel", timeout=30_000)
        assert page.evaluate(places) == before
    download(page, "#download", 2)
    assert page.evaluate(places) == before


def test_the_keyboard_is_enough(page: Any) -> None:
    choosers: list[Any] = []
    page.on("filechooser", lambda one: choosers.append(one))

    def choose(key: str, count: int) -> None:
        page.keyboard.press(key)
        while len(choosers) < count:
            page.wait_for_timeout(50)
        choosers[-1].set_files(str(PORTRAIT))
        expect(page.locator("#images li[data-id]")).to_have_count(count, timeout=60_000)
        expect(page.locator("#status")).to_have_text("", timeout=60_000)

    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the image"
    page.keyboard.press("Tab")
    choose("Enter", 1)
    expect(page.locator("#images .add")).to_be_visible()
    page.focus("#images .add")
    choose("Space", 2)
    page.focus("#divider-two")
    before = page.evaluate("() => getComputedStyle(document.getElementById('stage')).getPropertyValue('--two')")
    page.keyboard.press("ArrowLeft")
    after = page.evaluate("() => getComputedStyle(document.getElementById('stage')).getPropertyValue('--two')")
    assert (before, after) == ("66%", "65%")
    page.focus("#epsilon-slider")
    page.keyboard.press("Home")
    expect(page.locator("#epsilon")).to_have_value("0.5")
    expect(page.locator("#epsilon-slider")).to_have_attribute("aria-valuetext", "epsilon 0.5")
    expect(page.locator("#promise")).to_contain_text("epsilon 0.5 per pixel", timeout=30_000)


def check_part(page: Any, left: int, top: int) -> None:
    """The square is there, and the part of the source is the one below it."""
    text = f"{100 * left / 512:.0f} % from the left, {100 * top / 512:.0f} % from the top"
    expect(page.locator("#place")).to_have_attribute("aria-valuetext", text, timeout=30_000)
    with Image.open(PORTRAIT) as image:
        expected = np.asarray(image.convert("RGB").crop((left, top, left + 112, top + 112))).astype(int)
    shown = "() => [...document.getElementById('attack-source').getContext('2d').getImageData(0, 0, 112, 112).data]"
    pixels = np.array(page.evaluate(shown)).reshape(112, 112, 4)[:, :, :3]
    assert np.mean(np.abs(pixels - expected) <= 2) > 0.99


def test_attack_view(page: Any, tmp_path: Path) -> None:
    network = some_network()
    (tmp_path / "n").write_bytes(network)
    assert len(network) <= 3_000_000
    header = json.loads(network[12 : 12 + int.from_bytes(network[8:12], "little")])
    open_images(page, PORTRAIT)
    page.set_input_files("#network", str(tmp_path / "n"))
    status = page.locator("#attack-status")
    expect(status).to_contain_text(f"The network {header['name']}: {header['about']}", timeout=30_000)
    expect(status).to_contain_text(f"Licence of the weights: {header['licence']}")
    expect(status).to_contain_text(hashlib.sha256(network).hexdigest())
    expect(page.locator("#attack-reconstruction")).to_be_visible(timeout=30_000)
    assert page.locator("#attack-reconstruction").get_attribute("width") == "112"
    check_part(page, 200, 200)
    page.click("#place", position={"x": 9, "y": 9})
    check_part(page, 0, 0)
    page.focus("#place")
    page.keyboard.press("ArrowRight")
    check_part(page, 24, 0)  # a quarter of the square, on the grid of blocks
    page.fill("#size", "14")
    expect(status).to_contain_text("too small for the attack view", timeout=30_000)
    page.set_input_files("#network", str(PORTRAIT))
    expect(status).to_contain_text("is not a network", timeout=30_000)
