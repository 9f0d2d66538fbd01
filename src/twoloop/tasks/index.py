"""A package index, read without running anything: the simple API in JSON (PEP 691), at the address that pip uses."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import subprocess
import sys
import urllib.request
from urllib.parse import urljoin

_JSON = "application/vnd.pypi.simple.v1+json"
_DEFAULT = "https://pypi.org/simple"


def sdist(name: str, version: str) -> bytes:
    """The .tar.gz of one version, its hash checked against the index. Raises OSError when it cannot be had."""
    page = f"{_address().rstrip('/')}/{name}/"
    listing = json.loads(_get(page, accept=_JSON))
    endings = {f"{stem}-{version}.tar.gz" for stem in (name, name.replace("-", "_"), name.replace("-", "."))}
    found = next((f for f in listing["files"] if f["filename"] in endings), None)
    if found is None:
        raise OSError(f"the index has no sdist of {name} {version}")
    data = _get(urljoin(page, found["url"]))
    expected = found.get("hashes", {}).get("sha256")
    if expected and hashlib.sha256(data).hexdigest() != expected:
        raise OSError(f"the sdist of {name} {version} arrived damaged")
    return data


def _address() -> str:
    given = os.environ.get("PIP_INDEX_URL")
    if given:
        return given
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or _DEFAULT


def _get(url: str, accept: str = "*/*") -> bytes:
    if not url.startswith(("https://", "http://")):
        raise OSError(f"not an address of a package index: {url}")
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        data: bytes = answer.read()
    return data
