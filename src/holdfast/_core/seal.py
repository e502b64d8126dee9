"""Seals: what a file of ours is, in which format, and a checksum over all that it says.

A file says `file`, what it holds; `format`, a number that grows when its parts change; and
`digest`, over everything else. A flipped bit is an error then, and so is a file of another kind or
time.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from holdfast.errors import FileError

Content = dict[str, Any]


def sealed(
    file: str, version: int, content: Mapping[str, Any], parts: Iterable[bytes] = ()
) -> Content:
    """The content with what it is, its format, and the digest of it all.

    Args:
        file: what it is, such as "recourse".
        version: the number of its format.
        content: plain values that JSON knows; what is sealed already is sealed anew.
        parts: what the file holds beside them.
    """
    marked = {**content, "file": file, "format": version}
    marked.pop("digest", None)
    return marked | {"digest": digest_of(marked, parts)}


def unsealed(file: str, version: int, content: Any, parts: Iterable[bytes] = ()) -> Content:
    """The content that `sealed` was given, or an error that says what is wrong with the file."""
    if not isinstance(content, dict):
        raise FileError(f"it says nothing of a {file}")
    marked = cast(Content, content).copy()
    if "digest" not in marked or "format" not in marked:
        raise FileError("it was written before files had a format number; save it again")
    written = marked["format"]
    if marked.get("file") != file:
        raise FileError(f"it holds a {marked.get('file')!s:.40}, not a {file}")
    if written != version:
        raise FileError(
            f"it was written in format {written!s:.20}, and this version of Holdfast reads format "
            f"{version}"
        )
    digest = marked.pop("digest")
    if digest != digest_of(marked, parts):
        raise FileError("its content is not as it was written: the digest is another one")
    return {name: value for name, value in marked.items() if name not in ("file", "format")}


def digest_of(content: Mapping[str, Any], parts: Iterable[bytes] = ()) -> str:
    """SHA-256 over plain values, however they are written as JSON, and over what is beside them."""
    text = json.dumps(json.loads(json.dumps(content)), sort_keys=True)
    digest = hashlib.sha256(text.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
