"""Registers of Dynamixel's X series, by LeRobot's names for them.

Source: ``lerobot/motors/dynamixel/tables.py`` (addresses, sizes), and the control tables of
https://emanual.robotis.com/docs/en/dxl/x/ (factory values, units). XL330 and XL430 agree in what is here.
"""

from __future__ import annotations

from strobe.emulator.register import TURN, Register

MEMORY = 256
EEPROM_END = 64
BAUD_RATES = (9_600, 57_600, 115_200, 1_000_000, 2_000_000, 3_000_000, 4_000_000)  # bits/s, by Baud_Rate
REVERSED = 1  # bit of Drive_Mode: positions count the other way
POSITION, EXTENDED, CURRENT_POSITION = 3, 4, 5  # of Operating_Mode: those that drive to a position

MODEL = Register(0, 2)
FIRMWARE = Register(6)
ID = Register(7)
BAUD_RATE = Register(8)
RETURN_DELAY = Register(9)  # 2 µs
DRIVE_MODE = Register(10)
MODE = Register(11)
PROTOCOL = Register(13)
HOMING_OFFSET = Register(20, 4, twos=True)
MOVING_THRESHOLD = Register(24, 4)
MAX_TEMPERATURE = Register(31)
PWM_LIMIT = Register(36, 2)
VELOCITY_LIMIT = Register(44, 4)
MAX_LIMIT = Register(48, 4)
MIN_LIMIT = Register(52, 4)
SHUTDOWN = Register(63)
TORQUE_ENABLE = Register(64)
STATUS_LEVEL = Register(68)  # 0: only pings are answered; 1: reads too; 2: all
HARDWARE_ERROR = Register(70)
D_GAIN = Register(80, 2)
I_GAIN = Register(82, 2)
P_GAIN = Register(84, 2)
GOAL_VELOCITY = Register(104, 4, twos=True)
PROFILE_VELOCITY = Register(112, 4)  # 0: as fast as it can
GOAL_POSITION = Register(116, 4, twos=True)
MOVING = Register(122)
PRESENT_CURRENT = Register(126, 2, twos=True)  # 1 mA; the XL430 has its load here, in 0.1 %
PRESENT_VELOCITY = Register(128, 4, twos=True)
PRESENT_POSITION = Register(132, 4, twos=True)
PRESENT_VOLTAGE = Register(144, 2)  # 0.1 V
PRESENT_TEMPERATURE = Register(146)  # °C

READ_ONLY = frozenset((*range(0, 7), 70, *range(120, 147)))

# As LeRobot leaves a servo that it has set up: 1 Mbaud. A new one has 57,600.
FACTORY = {
    FIRMWARE: 50, BAUD_RATE: 3, RETURN_DELAY: 250, MODE: POSITION, PROTOCOL: 2, MOVING_THRESHOLD: 10,
    MAX_TEMPERATURE: 70, PWM_LIMIT: 885, MAX_LIMIT: TURN - 1, SHUTDOWN: 52, STATUS_LEVEL: 2, P_GAIN: 800,
}  # fmt: skip
