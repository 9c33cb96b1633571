"""A headless Chromium, as packaged by Debian: the DOM of a page, console messages, and pixels."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import pytest

_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


def chromium() -> str:
    """The program.  If it is missing, fails in CI and skips elsewhere."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        message = "no Chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def run(page: Path, profile: Path, *switches: str) -> subprocess.CompletedProcess[str]:
    """Open a page with a new profile."""
    command = [chromium(), *_SWITCHES, f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0", *switches]
    done = subprocess.run(
        [*command, page.as_uri()], capture_output=True, text=True, encoding="utf-8", timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


@dataclass(frozen=True)
class Dom:
    """The DOM of a page: elements with their attributes, strings, and console messages."""

    elements: tuple[tuple[str, dict[str, str | None]], ...]
    text: str
    title: str
    console: tuple[str, ...]

    def names(self) -> set[str]:
        """The names of all elements."""
        return {name for name, _ in self.elements}

    def of(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of each element of a name."""
        return [attributes for found, attributes in self.elements if found == name]


class _Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.titles: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)
        if self._open[-1:] == ["title"] and "svg" not in self._open:
            self.titles.append(data)


def dom(page: Path, profile: Path) -> Dom:
    """The DOM of a page."""
    done = run(page, profile, "--dump-dom")
    collector = _Collector()
    collector.feed(done.stdout)
    console = tuple(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return Dom(tuple(collector.elements), " ".join(collector.texts), "".join(collector.titles), console)


def first_pixel(page: Path, profile: Path, *, dark: bool = False) -> str:
    """The colour of the upper left pixel of the rendered page, in hexadecimal digits."""
    picture = profile.with_suffix(".png")
    scheme = "--blink-settings=preferredColorScheme=0" if dark else "--blink-settings=preferredColorScheme=1"
    run(page, profile, scheme, "--window-size=800,600", f"--screenshot={picture}")
    data, at, pixels = picture.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        pixels += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    return zlib.decompressobj().decompress(pixels, 4)[1:4].hex()
