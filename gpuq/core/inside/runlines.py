"""The lines with which a log tells how a run goes, written and read: `START`, `STEP`, `FINISHED`, `FAILED` and a few more.

A line is one word and then `key=value` pairs. A value goes on to the next ` key=`, so that a name may hold blanks as it
is (`device=NVIDIA GeForce RTX 3090 free=21.47GiB`); one that could be read in another way is a JSON string.

Only the standard library: training code imports this (`from gpuq import runlog`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuq.core.units import GIB, format_duration

START = "START"
"""The first: what runs, with which settings, on what."""
CONFIG = "CONFIG"
"""The settings of the program, where `gpuq run` has written START."""
STEP = "STEP"
"""How far it is."""
WAITING = "WAITING"
"""Why the program has not been started yet."""
NOTE = "NOTE"
"""Something that a reader should know."""
STOPPING = "STOPPING"
"""A signal that asks for an end has come."""
RESULT = "RESULT"
"""What came out, where `gpuq run` writes the last line."""
FINISHED = "FINISHED"
"""The last one of a run that ended well."""
FAILED = "FAILED"
"""The last one of every other run."""

KINDS = (START, CONFIG, STEP, WAITING, NOTE, STOPPING, RESULT, FINISHED, FAILED)
ENDS = (FINISHED, FAILED)
NOT_ENDED = "none"
"""`exit=none`: written before the end, because what ends the job leaves no time to write anything after it."""

RESERVED = frozenset({"cause", "exit", "oom_kill", "signal", "error", "elapsed", "at"})
"""Keys that say how a run ended; no result of the program's may have them."""

_KEY = r"[A-Za-z_][A-Za-z0-9_.-]*"
_HEAD = re.compile(rf"({'|'.join(KINDS)}) (?={_KEY}=)")
_PAIR = re.compile(rf"({_KEY})=")
_NEXT = re.compile(rf" (?={_KEY}=)")


def write(kind: str, fields: Mapping[str, object]) -> str:
    """The line, without its newline.

    >>> write("START", {"device": "NVIDIA GeForce RTX 3090", "free": "21.47GiB", "note": ""})
    'START device=NVIDIA GeForce RTX 3090 free=21.47GiB note=""'
    """
    return " ".join([kind, *(f"{key_of(key)}={_value(value)}" for key, value in fields.items())])


def key_of(text: str) -> str:
    """`text` as a key: what no key may hold becomes `_`."""
    key = re.sub(r"[^A-Za-z0-9_.-]", "_", text)
    return key if re.match(r"[A-Za-z_]", key) else f"_{key}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    if text and text.isprintable() and text[0] not in ' "' and text[-1] != " " and not _NEXT.search(text):
        return text
    import json

    return json.dumps(text)


class Line:
    """A line that was read: its kind and its fields, as text and in order."""

    __slots__ = ("fields", "kind")

    def __init__(self, kind: str, fields: dict[str, str]) -> None:
        self.kind = kind
        self.fields = fields

    def get(self, key: str) -> str | None:
        """A field; None where the line has none of that name."""
        return self.fields.get(key)


def read(text: str) -> Line | None:
    """The line that `text` is; None: it is the program's own. Raises ValueError for one of ours that cannot be read."""
    head = _HEAD.match(text)
    if head is None:
        return None
    fields: dict[str, str] = {}
    at = head.end()
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ValueError(f"column {at + 1}: not a key=value: {text[at : at + 40]!r}")
        key, at = pair[1], pair.end()
        if key in fields:
            raise ValueError(f"{key} stands there twice")
        if text.startswith('"', at):
            fields[key], at = _string(text, at)
        else:
            following = _NEXT.search(text, at)
            end = following.start() if following else len(text)
            fields[key], at = text[at:end], end
            if not fields[key] or fields[key][-1] == " ":
                raise ValueError(f'{key} has no value; an empty one is written {key}=""')
        if at < len(text):
            if text[at] != " ":
                raise ValueError(f"column {at + 1}: a blank is missing after {key}")
            at += 1
    return Line(head[1], fields)


def _string(text: str, at: int) -> tuple[str, int]:
    import json

    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except ValueError:
        raise ValueError(f"column {at + 1}: a string that does not end") from None
    return str(value), end


def gib(size: int) -> str:
    """Bytes of GPU or host memory: 21.47GiB."""
    return f"{size / GIB:.2f}GiB"


def parse_gib(text: str) -> int | None:
    """Bytes from `21.47GiB`; None: it is something else."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)GiB", text)
    return round(float(match[1]) * GIB) if match else None


def clock(seconds: float) -> str:
    """A duration: 2.6s below a minute, then 1m12s, 1h12m."""
    return f"{max(0.0, seconds):.1f}s" if seconds < 59.95 else format_duration(seconds)


_EXCEPTION = re.compile(
    rb"^(?:\[?rank ?\d+\]?:? ?)?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Killed)\b(?::.*)?)$", re.M
)
_LONGEST_ERROR = 300


def last_error(tail: bytes) -> str:
    """The last line of a program's output that names an exception, as Python prints it; empty: there is none."""
    found = _EXCEPTION.findall(tail.replace(b"\r", b"\n"))
    if not found:
        return ""
    text: bytes = found[-1]
    return text.decode("utf-8", "replace").replace("\0", "").strip()[:_LONGEST_ERROR]


def stopped_early(tail: bytes) -> str | None:
    """Of a run that ended well because it was asked to end: how far it was (`118/400`), empty where it did not say.
    None: it went on to its end, or the log does not tell. tail: the end of the log, of the last start only."""
    at = tail.rfind(b"\nFINISHED ")
    if at < 0 and not tail.startswith(b"FINISHED "):
        return None
    try:
        line = read(tail[at + 1 :].split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r"))
    except ValueError:
        return None
    if line is None or line.get("stopped") != "true":
        return None
    steps = re.findall(rb"^STEP step=([0-9][0-9./]*)(?= |$)", tail[: at + 1], re.MULTILINE)
    step: str = steps[-1].decode("ascii") if steps else ""
    done, slash, total = step.partition("/")
    return None if slash and done == total else step


_VRAM = re.compile(rb"^(?:STEP|RESULT|FINISHED) (?:.* )?vram=([0-9.]+GiB)", re.MULTILINE)


def last_vram(tail: bytes) -> int | None:
    """The most GPU memory that a run has held, from the end of its log, in bytes; None: the log does not tell."""
    sizes = [parse_gib(text.decode("ascii")) for text in _VRAM.findall(tail)]
    return max((size for size in sizes if size is not None), default=None)


def last_result(tail: bytes) -> dict[str, str]:
    """The fields of the last RESULT line in a program's output."""
    at = tail.rfind(b"\nRESULT ")
    if at < 0 and not tail.startswith(b"RESULT "):
        return {}
    try:
        line = read(tail[at + 1 :].split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r"))
    except ValueError:
        return {}
    return {} if line is None else {key: text for key, text in line.fields.items() if key not in RESERVED}
