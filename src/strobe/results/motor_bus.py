"""The motors' bus during a rollout, and the state of the servos after a rehearsal."""

from __future__ import annotations

from pydantic import Field

from strobe.results.data import Data, Finite
from strobe.results.quantiles import Quantiles


class Bus(Data):
    """Synchronous reads of all motors. A try is one question to them; LeRobot asks up to three times."""

    arm: str = Field(default="", description="whose bus it is; '' where the robot has one")
    ms: Quantiles = Field(description="milliseconds of reads that were answered at the first try")
    on_cpu: Finite = Field(description="of such a read, the share in which its thread ran on a CPU (median)")
    blocked: Finite = Field(
        default=0.0, description="of such a read, the share in which it neither ran nor waited for a CPU (median)"
    )
    lost: int = Field(description="tries without an answer")
    damaged: int = Field(description="tries with an answer that could not be read")
    failed_reads: int = Field(description="reads with a try of either kind")
    failed_ms: Quantiles | None = Field(default=None, description="milliseconds of those reads")
    stale: int = Field(description="reads that found answers to an earlier question in the port's input")
    stale_from_s: Finite | None = Field(default=None, description="seconds from the first tick to the first of them")
    stale_at_end: bool = Field(default=False, description="the last read was one of them")


class Turns(Data):
    """The use of the CPUs during a run."""

    waited_share: Finite = Field(description="of the run, the share in which the control thread waited for a CPU")
    own_cpus: Finite = Field(description="CPUs that this process kept busy, on average")
    other_cpus: Finite = Field(description="CPUs that the machine's other processes kept busy, on average")


class ServoLeft(Data):
    """A servo at the end of a rehearsal. Positions are counts of 4096 a turn, less the homing offset."""

    joint: str
    id: int
    torque: bool
    lock: bool = Field(description="settings in its EEPROM are protected")
    goal: int
    present: int
    celsius: int


class Rehearsal(Data):
    """The stand-ins for the robot, and the final state of its servos."""

    frames: str = Field(description="what the cameras showed")
    calibration: str = Field(description="what the servos' registers agree with")
    latency_ms: Finite = Field(description="milliseconds that the emulated adapter adds to each answer")
    planted: list[str] = Field(default_factory=list, description="faults, as they were asked for")
    struck: dict[str, int] = Field(default_factory=dict, description="requests on the bus that each kind struck")
    arms: dict[str, list[ServoLeft]] = Field(default_factory=dict, description="servos by arm, when all was over")
    goals: int = Field(default=0, description="goals that the servos of all arms were sent")
    ended: str = Field(default="", description="why the emulated arm could not tell how it was left")

    @property
    def holding(self) -> list[str]:
        """Joints whose torque is still on at the end."""
        several = len(self.arms) > 1
        return [
            f"{arm} {servo.joint}" if several else servo.joint
            for arm, servos in self.arms.items()
            for servo in servos
            if servo.torque
        ]
