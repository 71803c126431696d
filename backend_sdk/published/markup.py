"""HTML as text, and docstrings as HTML.

Does not: know what a page shows.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable

_VOID = frozenset({"meta", "link", "input", "br"})


class Markup(str):
    """Text that is HTML already. Any other text is escaped where it enters an element."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: str) -> Markup:
    """``element("a", "text", href="x")``. ``class_`` and ``for_`` stand for the words of Python."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{joined(children)}</{tag}>")


def joined(parts: Iterable[str], separator: str = "") -> Markup:
    """Parts one after the other."""
    return Markup(separator.join(part if isinstance(part, Markup) else html.escape(part) for part in parts))


def link(text: str, target: str) -> Markup:
    """A link with code as its text."""
    return element("a", element("code", text), href=target)


def table(header: Iterable[str], rows: Iterable[Iterable[str]], **attributes: str) -> Markup:
    """A table that scrolls by itself where the page is narrow. The first cell of a row is its heading."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = []
    for row in rows:
        first, *rest = row
        body.append(element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest)))
    made = element("table", element("thead", head), element("tbody", *body), **attributes)
    return element("div", made, class_="wide")


# In this order: a longer form would be taken for a shorter one.
_INLINE = re.compile(r"``(?P<code>.+?)``|`(?P<name>[^`]+)`|arXiv:(?P<arxiv>\d{4}\.\d{4,5})", re.DOTALL)


def docstring(text: str, target: Callable[[str], str | None]) -> Markup:
    """A docstring: paragraphs with code, names of ops as links (``target`` gives them), and papers on arXiv."""
    paragraphs = (part for part in re.split(r"\n\s*\n", text.strip()) if part)
    return joined(element("p", _inline(paragraph, target)) for paragraph in paragraphs)


def _inline(text: str, target: Callable[[str], str | None]) -> Markup:
    parts: list[str] = []
    end = 0
    for found in _INLINE.finditer(text):
        parts.append(text[end : found.start()])
        end = found.end()
        if found["arxiv"]:
            parts.append(element("a", found[0], href=f"https://arxiv.org/abs/{found['arxiv']}"))
            continue
        code = found["code"] or found["name"]
        place = target(code)
        parts.append(link(code, place) if place else element("code", code))
    return joined([*parts, text[end:]])
