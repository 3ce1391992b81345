"""A rehearsal's stage: an emulated arm, cameras that replay, and faults that strike on demand."""
