"""The arm in a rollout: reads of its buses, and in a rehearsal its stand-ins and the state of its servos at the end."""

from __future__ import annotations

from pydantic import Field

from strobe.core.results.data import Data, Finite, Quantiles, many, mapping, optional


class Bus(Data):
    """Synchronous reads of all motors. A try is one question to them; LeRobot asks up to three times."""

    arm: str | None = optional("arm that the bus belongs to; None if the robot has one bus")
    ms: Quantiles = Field(description="milliseconds for reads answered at the first try")
    on_cpu: Finite = Field(description="share of such a read in which its thread ran on a CPU (median)")
    blocked: Finite = Field(
        default=0.0, description="share of such a read in which its thread neither ran nor waited for a CPU (median)"
    )
    lost: int = Field(description="tries without an answer")
    damaged: int = Field(description="tries with an answer that could not be read")
    failed_reads: int = Field(description="reads with a try of either kind")
    failed_ms: Quantiles | None = optional("milliseconds of those reads")
    stale: int = Field(description="reads that found answers to an earlier request in the port's input")
    stale_from_s: Finite | None = optional("seconds from the first tick to the first such read")
    stale_at_end: bool = Field(default=False, description="the last read was such a read")


class ServoLeft(Data):
    """A servo at the end of a rehearsal. Positions are counts of 4096 a turn, less the homing offset."""

    joint: str
    id: int
    torque: bool
    lock: bool = Field(description="the settings in its EEPROM are protected")
    goal: int
    present: int
    celsius: int


class Rehearsal(Data):
    """The stand-ins for the robot, and the final state of its servos."""

    frames: str = Field(description="source of the camera frames")
    calibration: str = Field(description="calibration that the servos' registers agree with")
    latency_ms: Finite = Field(description="milliseconds that the emulated adapter adds to each answer")
    planted: list[str] = many("requested faults")
    struck: dict[str, int] = mapping("fault → number of bus requests that it struck")
    arms: dict[str, list[ServoLeft]] = mapping("state of the servos at the end, by arm")
    goals: int = Field(default=0, description="number of goals sent to the servos of all arms")
    ended: str | None = optional("why the emulated arm could not report its final state")

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
