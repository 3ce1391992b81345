"""The motion of a recording: faults that its numbers do not show one by one, and its motion does."""
