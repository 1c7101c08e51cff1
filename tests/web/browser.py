"""Chromium for the tests: the one on this machine, or the one that Playwright brought."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

try:
    from playwright.sync_api import Browser, Error, sync_playwright
except ModuleNotFoundError:  # without the extra `test`
    pytest.skip("Playwright is not installed", allow_module_level=True)

ARGUMENTS = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream", "--no-sandbox"]


@cache
def why_not() -> str:
    """Return why there is no Chromium, or nothing if there is one."""
    try:
        with chromium():
            return ""
    except Error as error:
        return f"there is no Chromium: {str(error).splitlines()[0]}"


@contextmanager
def chromium() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
