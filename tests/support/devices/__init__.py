"""An accelerator played on the CPU, and what runs on it."""
