"""An OpenVINO model in 8 bits: its products and convolutions, scaled by what they were given in recorded calls.

By NNCF, OpenVINO's own quantiser (https://github.com/openvinotoolkit/nncf, Apache-2.0): weights symmetric by channel,
what they are multiplied with by one scale each, as a transformer wants it. The scales are constants of the engine, so
that no call has to look for the largest number of its inputs first. Convolutions are quantised too, which int8=dynamic
cannot.
"""

from __future__ import annotations

import importlib
import io
import logging
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from strobe.errors import UserError, install

INT8 = "int8"


def require() -> None:
    """Raises UserError where NNCF is missing."""
    if find_spec("nncf") is None:
        raise UserError(f"int8_engine needs a package: {install('openvino')}")


def calibrated(model: Any, calls: Sequence[Sequence[Tensor]]) -> Any:
    """Return ``model`` with the products that NNCF quantises in int8.

    Args:
        calls: its inputs in recorded calls, on the CPU, floating ones in float32; scales are taken from all of them.
    """
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # bars of progress, and notes on CUDA
        nncf: Any = importlib.import_module("nncf")
        nncf.set_log_level(logging.ERROR)
        arrays = [[value.detach().contiguous().numpy() for value in call] for call in calls]
        return nncf.quantize(
            model, nncf.Dataset(arrays), subset_size=len(arrays), model_type=nncf.ModelType.TRANSFORMER
        )
