"""Why does a recorded run jump from chunk to chunk? Each jump is split by cause. Behind `strobe replay`."""
