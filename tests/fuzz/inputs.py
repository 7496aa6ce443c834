"""Broken inputs for readers: makers that start from whole ones and damage them.

A whole input is edited a few times: something odd is put in or over a piece of it, pieces are
left out, repeated or exchanged, numbers replaced, the end cut off. JSON is also edited as a tree,
so that it stays JSON and single values are odd.
"""

import copy
import json
import math
import os
import re
import reprlib
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

Maker = Callable[[Random], Any]
"""Makes an input from random numbers."""

_EXAMPLES = int(os.environ.get("OBBFLOW_FUZZ_EXAMPLES", "0"))
_IN_SUITE = 250
_SECONDS = 30  # for one input; the longest takes less than one

_NUMBERS = [
    *("nan", "NaN", "inf", "-inf", "Infinity", "1e400", "-1e308", "1e9", "1e-400", "1_000", "0x10"),
    *("+.5", ".", "-", "1e", "5.", "1,5", "0b_", "1:60", "-0", "2", "\u0663", "\u00b2"),
]
_BLANKS = [*"\n\r \t,\f\x1c\u0085\u00a0\u2028", "\r\n", "\n\n", "", "\ufeff"]
_SIGNS = [*"\"'\\/#%|:;(){}[]<>", "..", "*x", "&x", "!!float", "</", "<a>", "-->", "<!--", "]]>"]
_SIGNS += ["<![CDATA[", "&lol;", "&#0;", "\\ud800", "\\u0000", "null", "true", "[]", "{}"]
_DECLARATIONS = [
    "<?xml version='1.1' encoding='utf-16'?>",
    '<!DOCTYPE a [<!ENTITY b "' + "c" * 99 + '">' + '<!ENTITY d "' + "&b;" * 99 + '">]>',
]
_BYTES = [b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xff\xfe", b"\x1a", b"\x7f"]
TOKENS = [text.encode() for text in (*_NUMBERS, *_BLANKS, *_SIGNS, *_DECLARATIONS)] + _BYTES
"""What is put into inputs."""

_LONG = [b"x" * 50_000, b"0 " * 5000, b"1" * 50_000, b"9" * 5000, b"0x" + b"f" * 5000]
_LONG += [b"0." + b"1" * 400, b"[" * 20_000, b'{"a":' * 20_000, b"<a>" * 5000]

_NUMBER = re.compile(rb"-?\d+\.?\d*")
_WORD = re.compile(rb"[A-Za-z_]+")
_MOST = 10_000  # positions are this many parts of the whole

ODD_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10**400, 1.5, float("nan"), float("inf"), -1e308, 1e9, 1e300),
    *("", "x", "1", " ", "\ud800", "\0", "../P1.png", "/P1.png", "P9.png", "MultiPolygon"),
    *([], [[]], [[[]]], {}, {"a": []}, [1, 2], [[1, 2], [3, 4], [5, 6]], [0, 0, 4, 0, 4, 2, 0, 2]),
    *([10, 10, 4, 2, 30], [10, 10, 4, 2], [0] * 5000),
]
"""What values in JSON are replaced by."""


def one_of(*values: Any) -> Maker:
    """Return a maker that takes one of the values."""
    return lambda rng: rng.choice(values)


def _edit_bytes(content: bytes, edit: tuple[str, int, int, bytes]) -> bytes:
    """Return the content with one piece of it changed."""
    kind, at, length, token = edit
    start = at * (len(content) + 1) // _MOST
    if kind in {"number", "word"}:
        pieces = list((_NUMBER if kind == "number" else _WORD).finditer(content))
        if not pieces:
            return content + token
        piece = pieces[at % len(pieces)]
        return content[: piece.start()] + token + content[piece.end() :]
    end = start + length
    return {
        "insert": lambda: content[:start] + token + content[start:],
        "replace": lambda: content[:start] + token + content[end:],
        "delete": lambda: content[:start] + content[end:],
        "repeat": lambda: content[:start] + content[start:end] * (at % 5) + content[start:],
        "exchange": lambda: content[:start] + content[end : end + length] + content[start:end],
        "cut off": lambda: content[:start],
    }[kind]()


_KINDS = [*["number"] * 3, "word", "insert", "insert", "replace", "delete", "repeat", "exchange"]
_KINDS += ["cut off"]


def damaged(samples: Sequence[bytes], own_tokens: Sequence[bytes] = ()) -> Maker:
    """Return a maker of samples with up to six edits.

    Args:
        samples: Whole inputs.
        own_tokens: What may be put in beside ``TOKENS``, such as words that the format knows.
    """
    tokens = [*TOKENS, *own_tokens, *own_tokens]

    def make(rng: Random) -> bytes:
        content = rng.choice(samples)
        for _ in range(rng.randrange(7)):
            token = rng.choice(tokens if rng.randrange(50) else _LONG)
            edit = rng.choice(_KINDS), rng.randrange(_MOST), rng.randrange(40), token
            content = _edit_bytes(content, edit)
        return content

    return make


def damaged_json(sample: Any) -> Maker:
    """Return a maker of JSON of which up to five values are odd, or of its text with edits."""
    edit_text = damaged([json.dumps(sample).encode()])

    def make(rng: Random) -> bytes:
        if rng.randrange(3) == 0:
            return edit_text(rng)
        content = copy.deepcopy(sample)
        for _ in range(rng.randrange(1, 6)):
            places = list(_places(content))
            if not places:
                break
            holder, key = rng.choice(places)
            value = rng.choice([*ODD_VALUES, _drop, _repeat])
            if callable(value):
                value(holder, key)
            else:
                holder[key] = copy.deepcopy(value)
        return json.dumps(content).encode()

    return make


def _places(value: Any) -> Any:
    """Yield (list or dict, index or key) of all values within a JSON value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list) and len(value[key]) < 100:
            yield from _places(value[key])


def _drop(holder: Any, key: Any) -> None:
    del holder[key]


def _repeat(holder: Any, key: Any) -> None:
    if isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))


def fuzz(*makers: Maker, share: float = 1.0) -> Callable[[Callable[..., None]], Any]:
    """Decorate a test that takes ``folder`` and one value of each maker, to call it many times.

    The suite takes the same few inputs each time, and hypothesis looks for the smallest that fails.
    OBBFLOW_FUZZ_EXAMPLES asks for that many new ones; ``share`` of them for a slow test.
    """
    batch = 100 if _EXAMPLES else 1  # inputs an example: hypothesis takes longer than most readers
    chosen = settings(
        max_examples=max(1, math.ceil(share * (_EXAMPLES or _IN_SUITE) / batch)),
        derandomize=not _EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate] if _EXAMPLES else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )

    def decorate(test: Callable[..., None]) -> Any:
        def run(folder: Path, rng: Random) -> None:
            for _ in range(batch):
                values = [make(rng) for make in makers]
                try:
                    with no_hang():
                        test(folder, *values)
                except Exception as error:
                    error.add_note(f"with {reprlib.repr(values)}; in full: {values!r:.20000}")
                    raise

        run.__name__, run.__module__ = test.__name__, test.__module__
        return chosen(given(rng=st.randoms(use_true_random=bool(_EXAMPLES)))(run))

    return decorate


@contextmanager
def no_hang() -> Iterator[None]:
    """Raise if what is done within takes too long."""

    def give_up(*_):
        raise TimeoutError(f"one input took more than {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
