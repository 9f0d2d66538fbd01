from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from twoloop.models.hub import load_model


@pytest.fixture(scope="session")
def model_and_reference(tiny: Path, reference: Any) -> tuple[Any, Any]:
    return load_model(tiny), reference
