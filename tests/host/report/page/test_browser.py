# SPDX-License-Identifier: GPL-2.0-or-later
"""The page in a real browser: headless Chromium at two widths, light and dark."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from browser import Browser

_VISIBLE = """(function (selector) {
  var e = document.querySelector(selector);
  if (!e) { return false; }
  var b = e.getBoundingClientRect();
  return b.width > 0 && b.height > 0 && getComputedStyle(e).visibility == "visible";
})"""

_COLOUR = 'getComputedStyle(document.querySelector("%s")).%s'


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (390, "dark")])
def test_the_page_opens(
    chromium: str, failing_page: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    with Browser(chromium) as browser:
        browser.open(failing_page, width, scheme=scheme)
        assert browser.ask("innerWidth") == width
        assert browser.ask("document.documentElement.scrollWidth") <= width
        for selector in (
            "h1", ".finding", ".steps .hot", ".timeline svg rect", "table.heat td.empty",
            "table.heat td.m1", ".cmd code", ".pace svg",
        ):  # fmt: skip
            assert browser.ask(f"{_VISIBLE}({selector!r})"), selector
        # An empty cell has a frame, an impossible one a pattern; neither has the other's.
        assert browser.ask(_COLOUR % ("tr:not(.top) > td.empty", "boxShadow")) != "none"
        assert browser.ask(_COLOUR % ("tr:not(.top) > td.empty", "backgroundImage")) == "none"
        assert "gradient" in browser.ask(_COLOUR % ("td.never", "backgroundImage"))
        paper = browser.ask(_COLOUR % ("body", "backgroundColor"))
        light = sum(map(int, paper.removeprefix("rgb(").rstrip(")").split(","))) > 384
        assert light == (scheme == "light")
        # A cell tells itself in words when touched.
        browser.ask('document.querySelector("td.empty").click()')
        assert "not met" in browser.ask('document.getElementById("cell").textContent')
        picture = tmp_path / "page.png"
        browser.screenshot(picture)
        wide, high = struct.unpack(">II", picture.read_bytes()[16:24])
        assert wide == width
        assert high > 900
        assert browser.errors == []
        assert browser.requests == [failing_page.resolve().as_uri()]


def test_an_error_and_a_request_are_seen(chromium: str, tmp_path: Path) -> None:
    """The two checks above can fail."""
    page = tmp_path / "bad.html"
    page.write_text('<img src="missing.png"><script>nothing()</script>')
    with Browser(chromium) as browser:
        browser.open(page, 390)
        assert browser.errors
        assert len(browser.requests) == 2


def test_overflow_is_seen(chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text(
        '<meta name="viewport" content="width=device-width, initial-scale=1, minimum-scale=1">'
        '<div style="width: 2000px">wide</div>'
    )
    with Browser(chromium) as browser:
        browser.open(page, 390)
        assert browser.ask("document.documentElement.scrollWidth") > 390
