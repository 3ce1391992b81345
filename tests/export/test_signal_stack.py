"""Exported policies come and go in one process, and its signals go on being handled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from strobe import export

pytest.importorskip("openvino")

# Prints the address of the stack for signals with two engines, and once both are gone, the first of them first.
TWO = """
import ctypes, gc, importlib.util, json, sys
import numpy, openvino
from openvino import opset13

class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

def stack():
    now = Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(now))
    return now.sp

def engine(name):
    spec = importlib.util.spec_from_file_location(name, sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.ENGINES["openvino"](sys.argv[2], "fp32", 1)

given = opset13.parameter([1, 4], numpy.float32, name="x")
openvino.save_model(openvino.Model([opset13.relu(given)], [given]), sys.argv[2])
first, second = engine("one"), engine("other")
both = stack()
del first
gc.collect()
del second
gc.collect()
print(json.dumps([both, stack()]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sigaltstack is looked at as Linux has it")
def test_two_policies_that_go_leave_no_freed_stack_for_signals(tmp_path: Path) -> None:
    """Where the CPU has AMX a core of OpenVINO sets the thread's stack for signals; elsewhere there is none."""
    program = Path(export.__file__).parent / "carried" / "policy.py"
    command = [sys.executable, "-c", TWO, str(program), str(tmp_path / "model.xml")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    both, none = json.loads(run.stdout.splitlines()[-1])
    assert none == both
