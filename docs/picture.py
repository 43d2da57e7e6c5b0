#!/usr/bin/env python3
"""Draws docs/picture.svg: the terminal of `muster dev examples/hello.toml`.

    pip install pyte
    python3 docs/picture.py target/quick/muster

Runs the program on a pseudo-terminal of 80x24, waits until its instances run, and writes the screen as an SVG.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from html import escape
from pathlib import Path

import pyte
from pyte.graphics import FG_BG_256

ROOT = Path(__file__).resolve().parent.parent
FILE = "examples/hello.toml"
COLUMNS, LINES = 80, 24
# Words on the screen once the web server runs, the other process has crashed four times, and the task has ended.
READY = {"RUNNING": 3, "CRASHED": 1, "SUCCEEDED": 1}
TIMEOUT = 60
# Shown in place of the temporary folder, which has a name of the same length.
RUNTIME_DIR = b"/run/user/1000"

# Sizes in pixels.
CHAR, LINE, FONT_SIZE, PADDING, TITLE = 8.4, 18, 14, 14, 34
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BACKGROUND, FOREGROUND, FAINT, BORDER = "#1b1f27", "#d8dee9", "#8a94a6", "#454c5a"
NAMES = ["black", "red", "green", "brown", "blue", "magenta", "cyan", "white"]
PALETTE = [
    "#3b4252", "#f07178", "#a3d977", "#f2c56d", "#7fb4f5", "#c99bf0", "#7fdbe0", FOREGROUND,
    FAINT, "#ff8088", "#a3d977", "#ffd88a", "#9cc8ff", "#dbb3ff", "#98edf2", "#ffffff",
]  # fmt: skip
# pyte names the 16 colours of the terminal, and those of the table of 256 by their value.
COLOURS = dict(zip([*NAMES, *(f"bright{name}" for name in NAMES)], PALETTE))
COLOURS |= dict(zip(FG_BG_256, PALETTE)) | {"default": FOREGROUND}


class Terminal(pyte.Screen):
    """Screen that shows faint text, an attribute that pyte ignores, in another colour."""

    def select_graphic_rendition(self, *attributes, **_):
        super().select_graphic_rendition(*attributes)
        if 2 in attributes and self.cursor.attrs.fg == "default":
            self.cursor.attrs = self.cursor.attrs._replace(fg="brightblack")


def feed(terminal, stream, folder, seconds):
    """Passes the output of the next seconds to the screen."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and select.select([terminal], [], [], left)[0]:
        try:
            stream.feed(os.read(terminal, 65536).replace(folder.encode(), RUNTIME_DIR))
        except OSError:  # The program has exited.
            return


def record(program):
    """Returns the lines of the screen of `muster dev`, as characters with attributes."""
    screen = Terminal(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory(prefix="m", dir="/tmp") as folder:
        path = f"{program.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "TERM": "xterm-256color", "XDG_RUNTIME_DIR": folder}
        process = subprocess.Popen(
            [program, "dev", FILE], cwd=ROOT, env=environment, stdin=side, stdout=side, stderr=side
        )
        os.close(side)
        try:
            until = time.monotonic() + TIMEOUT
            while any("\n".join(screen.display).count(word) < count for word, count in READY.items()):
                if time.monotonic() > until or process.poll() is not None:
                    sys.exit("the instances do not run:\n" + "\n".join(screen.display))
                feed(terminal, stream, folder, 0.2)
            feed(terminal, stream, folder, 1.5)
            return [[screen.buffer[line][column] for column in range(COLUMNS)] for line in range(LINES)]
        finally:
            process.send_signal(signal.SIGINT)
            while process.poll() is None:
                feed(terminal, stream, folder, 0.2)


def style(char):
    """Returns the foreground, the background (`None` for that of the window) and the weight of a character."""
    front = COLOURS.get(char.fg, f"#{char.fg}")
    back = None if char.bg == "default" else COLOURS.get(char.bg, f"#{char.bg}")
    if char.reverse:
        front, back = back or BACKGROUND, front
    return front, back, "bold" if char.bold else "normal"


def parts(line):
    """Yields the column, text and style of each part of a line that has one style."""
    start = 0
    for column in range(1, len(line) + 1):
        if column == len(line) or style(line[column]) != style(line[start]):
            yield start, "".join(char.data for char in line[start:column]), style(line[start])
            start = column


def svg(lines):
    """Yields the lines of the picture. `textLength` keeps columns aligned in every font."""
    width, height = COLUMNS * CHAR + 2 * PADDING, TITLE + LINES * LINE + PADDING
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}">'
    frame = f'x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8"'
    yield f'<rect {frame} fill="{BACKGROUND}" stroke="{BORDER}"/>'
    for x, fill in (18, COLOURS["red"]), (36, COLOURS["brown"]), (54, COLOURS["green"]):
        yield f'<circle cx="{x}" cy="17" r="5.5" fill="{fill}"/>'
    yield f'<g font-family="{FONTS}" font-size="{FONT_SIZE}" style="white-space: pre" xml:space="preserve">'
    yield f'<text x="{width / 2:g}" y="22" fill="{FAINT}" text-anchor="middle">muster dev {FILE}</text>'
    for number, line in enumerate(lines):
        top = TITLE + number * LINE
        for column, text, (front, back, weight) in parts(line):
            if back:
                x, long = PADDING + column * CHAR, len(text) * CHAR
                yield f'<rect x="{x:g}" y="{top}" width="{long:g}" height="{LINE}" fill="{back}"/>'
            column += len(text) - len(text.lstrip())
            if text := text.strip():
                at = f'x="{PADDING + column * CHAR:g}" y="{top + 13}" textLength="{len(text) * CHAR:g}"'
                yield f'<text {at} fill="{front}" font-weight="{weight}">{escape(text)}</text>'
    yield "</g>\n</svg>"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} PROGRAM")
    picture = "\n".join(svg(record(Path(sys.argv[1]).absolute())))
    (ROOT / "docs/picture.svg").write_text(picture + "\n")
