"""Real things, as small as can be: policies, checkpoints, data sets, recordings, exports, trainings."""
