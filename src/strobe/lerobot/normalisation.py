"""Statistics that LeRobot's modes of normalisation read, by the names of its `NormalizationMode`; IDENTITY reads none.

Plain data: results of preflight and a training's inputs are read without LeRobot and torch.
"""

from __future__ import annotations

# Mode → the statistics that become −1 and +1.
ENDS = {"MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90")}
# Mode → the statistics of its offset and its scale. MEAN_STD has its mean at 0 and one deviation for a unit.
READ = {"MEAN_STD": ("mean", "std"), **ENDS}
