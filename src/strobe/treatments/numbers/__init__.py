"""Treatments of the numbers themselves: their formats, their precision, their layout in memory."""
