"""One game as a picture: subnets, hosts, what Red holds, what Blue sees, decoys and the latest actions.

Hosts are filled by the true state, as Red's road goes: clean, scanned, user, privileged. Their second line is Blue's
view. Frames around hosts mark what Blue and Red aimed at in the latest step.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import (
    DECOYS,
    ENTERPRISE,
    FIRST_BLOCK,
    HOSTS,
    NUM_DECOYS,
    NUM_HOSTS,
    OPERATIONAL,
    RED_SLEEP,
    SUBNET_HOSTS,
    SUBNETS,
    SWEEP,
    USER,
)
from cavalcade.envs.cage2.text import HostView, blue_line, green_line, host_views, red_line, red_name, service_line

WIDTH, HEIGHT = 960, 640
_MARGIN, _TOP, _PANEL, _ROW, _BOX = 12, 72, 304, 88, (280, 78)
_BACKGROUND, _PAPER, _INK, _FAINT, _BORDER = "#f3f4f6", "#ffffff", "#111827", "#6b7280", "#d1d5db"
FILLS = {"clean": "#e5e7eb", "scanned": "#fde68a", "user": "#fdba74", "privileged": "#fca5a5"}
_ALARMS = {"scan": "#b45309", "exploit": "#b91c1c"}
_BLUE, _RED, _DECOY, _FINE = "#1e40af", "#b91c1c", "#047857", "#047857"
_BELOW = _TOP + 5 * _ROW + 44  # the first line below the subnets

Box = tuple[int, int, int, int]


def draw(env: Cage2, e: int = 0) -> NDArray[np.uint8]:
    """A picture of one game of a batch, (640, 960, 3)."""
    s = env.state
    image = _background().copy()
    pen = ImageDraw.Draw(image)
    reward = f"step {s.step[e]}    reward {env.buffers.reward[e]:.1f}    so far {s.total[e] / 10:.1f}"
    pen.text((_MARGIN, 12), reward, _INK, _font(22))
    runs = bool(s.ot_running[e])
    service = f"operational service {service_line(env, e)}"
    pen.text((WIDTH - _MARGIN, 14), service, _FINE if runs else _RED, _font(18), anchor="ra")
    blue, red = _aims(env, e)
    for h, view in enumerate(host_views(env, e)):
        _draw_host(pen, h, view, bool(s.scanned[e] >> h & 1), _kinds(env, e, h))
    for hosts, colour, gap in ((red, _RED, 4), (blue, _BLUE, 1)):
        for h in hosts:
            x0, y0, x1, y1 = box_of(h)
            pen.rounded_rectangle((x0 - gap, y0 - gap, x1 + gap, y1 + gap), 8, outline=colour, width=3)
    lines = [(f"Blue   {blue_line(env, e)}", _BLUE), (f"Red    {red_line(env, e)}   ({red_name(env, e)})", _RED)]
    if env.params.green:
        lines.append((f"Green  {green_line(env, e)}", _FINE))
    for i, (line, colour) in enumerate(lines):
        pen.text((_MARGIN, _BELOW + 22 * i), line, colour, _font(17))
    return np.array(image)


def _draw_host(pen: ImageDraw.ImageDraw, h: int, view: HostView, scanned: bool, decoys: list[int]) -> None:
    x0, y0, x1, y1 = box_of(h)
    state = view.held or ("scanned" if scanned else "clean")
    pen.rounded_rectangle((x0, y0, x1, y1), 6, fill=FILLS[state], outline=_BORDER)
    pen.text((x0 + 8, y0 + 5), view.name, _INK, _font(17))
    if state != "clean":
        pen.text((x1 - 8, y0 + 7), state, _INK, _font(14), anchor="ra")
    if view.activity:
        pen.text((x0 + 8, y0 + 30), f"Blue sees {view.activity}", _ALARMS[view.activity], _font(14))
    if view.belief:
        pen.text((x1 - 8, y0 + 30), f"Blue believes {view.belief}", _BLUE, _font(14), anchor="ra")
    for i, kind in enumerate(decoys):
        left, top = x0 + 7 + 34 * i, y0 + 54
        pen.rounded_rectangle((left, top, left + 31, top + 17), 4, fill=_DECOY)
        pen.text((left + 16, top + 9), DECOYS[kind][:3], _PAPER, _font(12), anchor="mm")


def _kinds(env: Cage2, e: int, h: int) -> list[int]:
    """The kinds of decoys on a host."""
    return [k for k in range(NUM_DECOYS) if env.state.decoys[NUM_DECOYS * e + k] >> h & 1]


def _aims(env: Cage2, e: int) -> tuple[list[int], list[int]]:
    """The hosts that the latest actions of Blue and Red were aimed at."""
    s = env.state
    action, target = int(s.blue_action[e]), int(s.red_target[e])
    blue = [(action - FIRST_BLOCK) % NUM_HOSTS] if action >= FIRST_BLOCK else []
    if s.red_action[e] == RED_SLEEP or target < 0:
        return blue, []
    return blue, _members(target) if s.red_action[e] == SWEEP else [target]


def _members(subnet: int) -> list[int]:
    return [h for h in range(NUM_HOSTS) if SUBNET_HOSTS[subnet] >> h & 1]


@cache
def box_of(h: int) -> Box:
    """Where a host is drawn."""
    for column, subnet in enumerate((USER, ENTERPRISE, OPERATIONAL)):
        if h in _members(subnet):
            x = _MARGIN + column * (_PANEL + _MARGIN) + (_PANEL - _BOX[0]) // 2
            y = _TOP + 32 + _ROW * _members(subnet).index(h)
            return x, y, x + _BOX[0], y + _BOX[1]
    raise ValueError(HOSTS[h])


@cache
def _background() -> Image.Image:
    """What is the same in every picture: subnets, the road between them, the legend."""
    image = Image.new("RGB", (WIDTH, HEIGHT), _BACKGROUND)
    pen = ImageDraw.Draw(image)
    bottom = _TOP + 32 + 5 * _ROW
    for column, subnet in enumerate((USER, ENTERPRISE, OPERATIONAL)):
        x = _MARGIN + column * (_PANEL + _MARGIN)
        if column:
            pen.line((x - _MARGIN, _TOP + 14, x, _TOP + 14), fill=_FAINT, width=4)
        pen.rounded_rectangle((x, _TOP, x + _PANEL, bottom), 8, fill=_PAPER, outline=_BORDER)
        pen.text((x + _PANEL // 2, _TOP + 6), SUBNETS[subnet], _FAINT, _font(17), anchor="ma")
    x = WIDTH - _MARGIN
    for name, fill in reversed(FILLS.items()):
        x -= int(pen.textlength(name, _font(14)))
        pen.text((x, 44), name, _FAINT, _font(14))
        pen.rectangle((x - 20, 46, x - 6, 58), fill=fill, outline=_BORDER)
        x -= 32
    pen.text((_MARGIN, 44), "filled by what Red holds; frames: aims of Blue and Red", _FAINT, _font(14))
    return image


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
